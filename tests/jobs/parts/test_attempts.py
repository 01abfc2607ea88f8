"""Attempts of a part: how many follow after deaths of workers and of machines, and what is recorded at the end."""

from penstock.jobs.parts.attempts import PAUSE_S, PartAttempt
from penstock.jobs.parts.operation import JobPart, Means
from penstock.jobs.parts.records import JobPlan, Records
from penstock.options import StoreOptions

PART = JobPart(3, (3, 1, 10), again=False)


def test_a_part_has_as_many_further_attempts_as_retries():
    first = PartAttempt(PART)
    second = first.again(1)
    assert (second.part, second.deaths) == (PART, 1)
    assert second.again(1) is None
    assert first.again(0) is None


def test_machines_that_are_gone_count_after_a_minute():
    attempt, attempts = PartAttempt(PART), 0
    while attempt.deaths == 0:
        attempt, attempts = attempt.again(1, gone=True), attempts + 1
    assert attempts == 60 / PAUSE_S + 1


def test_a_part_that_is_set_aside_is_recorded_as_failed(tmp_path):
    records = Records(tmp_path / "job", StoreOptions())
    records.planned(lambda _: plan, plan := JobPlan("x", {}, ((0, 0),), 0, 0, ""))
    ended = PartAttempt(PART, deaths=2).set_aside("killed by SIGKILL", Means(records))
    assert "part 3 was set aside: its worker died 3 times (killed by SIGKILL)" in str(ended.error)
    assert [each.part for each in records.read(failed=True)] == [3]
    assert ended.record.failures[0]["error"] == str(ended.error)
