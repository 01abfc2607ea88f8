"""A part is recorded whatever becomes of it, with its failures, its time and its processors' time."""

import pytest

from penstock.errors import Damaged, NoSpace
from penstock.jobs.parts.operation import JobPart, Means, done, fail
from penstock.jobs.parts.records import PartRecord, Records
from penstock.options import StoreOptions
from tests.jobs.parts.test_run import Failing

PART = JobPart(2, (2, 1, 10), again=False)


@pytest.fixture
def means(tmp_path):
    return Means(Records(f"{tmp_path}/job", StoreOptions(), "0123abcd"))


def test_a_part_is_recorded_with_its_times(tmp_path, means):
    record, error = done(Failing(str(tmp_path), pause_s=0.05), PART, means)
    assert error is None
    assert record.seconds >= 0.05 > record.cpu_seconds
    assert record.began.endswith("+00:00")
    assert [*means.records.read()] == [record]


def test_a_failure_is_recorded_and_returned(tmp_path, means):
    record, error = done(Failing(str(tmp_path), deadly=(2,)), PART, means)
    assert isinstance(error, Damaged)
    assert (record.failed, record.failures) == (1, [{"url": "", "error": "broken"}])
    assert (means.records.numbers(), means.records.numbers(failed=True)) == (set(), {2})
    done(Failing(str(tmp_path)), PART._replace(again=True), means)
    assert (means.records.numbers(), means.records.numbers(failed=True)) == ({2}, set())


def test_a_full_disk_ends_the_job_without_a_record(tmp_path, means):
    with pytest.raises(NoSpace):
        done(Failing(str(tmp_path), deadly=(2,), error=NoSpace), PART, means)
    assert means.records.numbers(failed=True) == set()


def test_a_record_keeps_twenty_failures():
    record = PartRecord(0)
    for number in range(30):
        fail(record, Damaged("broken", url=f"https://host/{number}?signature=x"))
    assert len(record.failures) == 20
    assert record.failures[0]["url"] == "https://host/0?…"
