"""The loop of a job: shares, failures, the last step, and how it ends when it is interrupted."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import Damaged, NoSpace, NotFound, Unusable
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import How, Job, check_apart
from penstock.options import StoreOptions
from tests.jobs.parts.deadly import Deadly


@dataclass(frozen=True)
class Failing(Deadly):
    """Parts in ``deadly`` raise."""

    error: type[Exception] = Damaged

    def work(self, part, record, means):
        if part.number in self.deadly:
            raise self.error("broken")
        return super().work(part, record, means)


def done(tmp_path, how=None, **options):
    return Job(Failing(str(tmp_path), **options), f"{tmp_path}/job", how or How()).work()


def test_the_last_step_is_done_once_all_shares_are(tmp_path):
    assert done(tmp_path, How("1/2")).parts_done == 3
    assert not (tmp_path / "finished").exists()
    assert done(tmp_path, How("2/2")).parts_done == 2
    (tmp_path / "finished").unlink()
    assert done(tmp_path).parts_done == 5
    assert not (tmp_path / "finished").exists()


def test_a_killed_last_step_is_done_again(tmp_path):
    done(tmp_path)
    (tmp_path / "finished").unlink()
    (tmp_path / "job" / "finished.json").unlink()
    done(tmp_path)
    assert (tmp_path / "finished").exists()


def test_a_part_that_fails_as_a_whole_is_set_aside(tmp_path):
    with pytest.raises(Damaged, match="broken; 2 objects failed in 2 parts"):
        done(tmp_path, deadly=(0, 3))
    records = Records(f"{tmp_path}/job", StoreOptions())
    assert (records.numbers(), records.numbers(failed=True)) == ({1, 2, 4}, {0, 3})
    assert not (tmp_path / "finished").exists()
    assert done(tmp_path).parts_done == 5


def test_where_every_part_fails_the_others_are_not_tried(tmp_path):
    with pytest.raises(NotFound):
        done(tmp_path, deadly=tuple(range(100)), parts=100, error=NotFound)
    assert len(Records(f"{tmp_path}/job", StoreOptions()).numbers(failed=True)) == 20


def test_without_space_no_further_part_is_tried(tmp_path):
    with pytest.raises(NoSpace):
        done(tmp_path, deadly=(1,), error=NoSpace)
    assert Records(f"{tmp_path}/job", StoreOptions()).numbers() == {0}


PROGRAM = """
import sys, time
from penstock.jobs.parts.run import How, Job
from tests.jobs.parts.deadly import Deadly
folder = sys.argv[1]
Job(Deadly(folder, pause_s=0.5), folder + "/job", How()).work()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_an_interrupted_process_says_how_to_go_on(tmp_path, number, status):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "0").exists():
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == status
    assert f"penstock jobs resume file://{tmp_path}/job/" in errors
    assert done(tmp_path).parts_done == 5


def test_records_in_a_tree_are_refused(tmp_path):
    records = Records(f"{tmp_path}/a/job", StoreOptions())
    check_apart(records, f"file://{tmp_path}/b/")
    for tree in (f"file://{tmp_path}/a/", f"file://{tmp_path}/a/job/b/"):
        with pytest.raises(Unusable, match="outside the trees"):
            check_apart(records, tree)
    assert not Path(f"{tmp_path}/a").exists()
