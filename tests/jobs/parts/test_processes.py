"""Parts in processes of this machine, which are killed, interrupted, or lose their parent."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import Bug, NoSpace, Transient, Unusable
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import Job, JobOptions
from penstock.options import StoreOptions
from tests.jobs.packed import fill
from tests.jobs.parts.deadly import Deadly


@dataclass(frozen=True)
class Raising(Deadly):
    """Parts in ``deadly`` raise an error that ends the job."""

    error: type[Exception] = NoSpace

    def work(self, part, record, means):
        if part.number in self.deadly:
            raise self.error("broken")
        return super().work(part, record, means)


def complete(folder, processes=3, kind=Deadly, **options):
    return Job(kind(str(folder), **options), f"{folder}/job", JobOptions(processes=processes)).work()


def is_alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def test_parts_are_shared_by_processes_and_finished_by_the_parent(tmp_path):
    assert complete(tmp_path, pause_s=0.2).parts_done == 5
    assert (tmp_path / "finished").read_text() == "5"
    hosts = {each.process for each in Records(f"{tmp_path}/job", StoreOptions()).read()}
    assert len(hosts) == 3
    assert os.getpid() not in hosts
    assert not any(map(is_alive, hosts))


def test_a_part_that_kills_its_workers_is_set_aside_after_three_and_the_others_are_done(tmp_path):
    with pytest.raises(Transient, match=r"part 2 was set aside: its worker died 3 times \(killed by SIGKILL\)"):
        complete(tmp_path, deadly=(2,))
    assert (tmp_path / "deaths").read_text().split() == ["2", "2", "2"]
    records = Records(f"{tmp_path}/job", StoreOptions())
    assert (records.numbers(), records.numbers(failed=True)) == ({0, 1, 3, 4}, {2})
    assert complete(tmp_path, processes=1).parts_done == 5


@pytest.mark.parametrize(("error", "raised"), [(NoSpace, NoSpace), (ZeroDivisionError, Bug)])
def test_an_error_that_ends_the_job_ends_all_processes(tmp_path, error, raised):
    began = time.monotonic()
    with pytest.raises(raised, match="broken"):
        complete(tmp_path, kind=Raising, deadly=(0,), pause_s=60, error=error)
    assert time.monotonic() - began < 30


def test_a_script_without_a_guard_raises_with_advice(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from penstock.jobs.parts.run import Job, JobOptions\nfrom tests.jobs.parts.deadly import Deadly\n"
        f"Job(Deadly({str(tmp_path)!r}), {str(tmp_path / 'job')!r}, JobOptions(processes=2)).work()\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert 'write what it does below if __name__ == "__main__":' in ended.stderr.splitlines()[-1]


def began(folder):
    """Return the processes that have begun a part."""
    file = folder / "began"
    return [*map(int, file.read_text().split())] if file.exists() else []


PROGRAM = """
import sys
from penstock.jobs.parts.run import Job, JobOptions
from tests.jobs.parts.deadly import Deadly
Job(Deadly(sys.argv[1], pause_s=60), sys.argv[1] + "/job", JobOptions(processes=2)).work()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, number):
    # In a session of its own: a terminal sends Ctrl-C to all processes of the group.
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True) as driver:
        until = time.monotonic() + 60
        while len(workers := began(tmp_path)) < 2:
            assert driver.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)
        else:
            driver.send_signal(number)
        _, errors = driver.communicate(timeout=30)
    assert driver.returncode != 0
    while any(map(is_alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)
    if number != signal.SIGKILL:
        assert "parts that are done are recorded: repeat the same call" in errors
        assert errors.count("Traceback") <= 1


def test_packs_and_indexes_of_several_processes_have_the_bytes_of_one(tmp_path):
    source = fill(tmp_path / "data")
    ps.pack(source, tmp_path / "alone", samples=5)
    catalog = ps.pack(source, tmp_path / "many", samples=5, job=tmp_path / "job", processes=2)
    assert len(catalog) == 20
    for name in ("shard-000000.tar", "shard-000003.tar", "pack.json"):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    shards = tmp_path / "many"
    ps.index(shards, tmp_path / "many.catalog", format="tar", job=tmp_path / "index", processes=2)
    ps.index(shards, tmp_path / "alone.catalog", format="tar")
    assert (tmp_path / "many.catalog").read_bytes() == (tmp_path / "alone.catalog").read_bytes()


def test_processes_without_a_job_and_beside_a_cluster_are_refused(tmp_path):
    source = fill(tmp_path / "data")
    with pytest.raises(Unusable, match=r"pass job="):
        ps.pack(source, tmp_path / "to", processes=2)
    with pytest.raises(Unusable, match=r"processes=2 is for one machine"):
        ps.pack(source, tmp_path / "to", job=tmp_path / "job", on=ps.Ray(), processes=2)
