"""Reports of jobs: sums of the records, by machine, and what bound the job; as JSON and as a page."""

import json

import pytest

from penstock.jobs.parts.records import JobPlan, PartRecord, Records
from penstock.jobs.parts.report import JobReport
from penstock.options import StoreOptions

PLAN = JobPlan("copy_tree", {"source": "s3://a/", "include": []}, ([0, 1, 10],) * 4, 4, 40, "2026-11-27T10:00:00+00:00")


def record(part, host="one", *, began=0, cpu_s=1.0, **counts):
    time = f"2026-11-27T10:00:{began:02}+00:00"
    return PartRecord(part, counts, began=time, seconds=10.0, cpu_seconds=cpu_s, host=host, process=1)


@pytest.fixture
def records(tmp_path):
    found = Records(f"{tmp_path}/job", StoreOptions())
    found.planned(lambda _: PLAN, PLAN)
    return found


def test_records_add_up(records):
    records.write(record(0, copied=1, copied_bytes=100))
    records.write(record(1, "two", began=5, copied=1, copied_bytes=200))
    failed = record(2, "two", began=10, failed=1)
    failed.failures.append({"url": "s3://a/<x>", "error": "gone\x1b"})
    records.write(failed)
    report = JobReport.of(records, PLAN.summary)
    assert (report.parts_done, report.parts_failed, report.wall_seconds, report.seconds) == (2, 1, 20.0, 30.0)
    assert report.counts == {"copied": 2, "copied_bytes": 300, "failed": 1}
    assert {name: (each.parts, each.processes) for name, each in report.hosts.items()} == {"one": (1, 1), "two": (2, 1)}
    assert (report.bytes_per_s, report.left_s, report.finished) == (15.0, 20.0, False)
    assert report.bound.startswith("stores and network: processors worked 10% of the time")
    as_json = json.loads(json.dumps(report.as_record()))
    assert (as_json["copied"], as_json["hosts"]["two"]["parts"], as_json["slowest"][0][1]) == (2, 2, 10.0)
    lines = "\n".join(report.lines(5))
    assert "2 of 4 done, 1 with failures" in lines
    assert "failed: s3://a/<x>: gone" in lines
    page = report.to_html()
    assert "s3://a/&lt;x&gt;" in page
    assert "\x1b" not in page
    assert page.count("<table>") == page.count("</table>") == 4


def test_skipped_samples_are_not_shown_as_failed(records):
    skipped = record(0, skipped=1)
    skipped.failures.append({"url": "s3://a/x", "error": "skipped: cannot map sample 2: ZeroDivisionError"})
    records.write(skipped)
    lines = [*JobReport.of(records, PLAN.summary).lines(5)]
    assert lines[-1] == "skipped: s3://a/x: cannot map sample 2: ZeroDivisionError"


def test_a_part_that_succeeded_after_a_failure_counts_once(records):
    records.write(record(0, failed=1))
    records.write(record(0, copied=1, cpu_s=9.0))
    report = JobReport.of(records, PLAN.summary)
    assert (report.parts_done, report.parts_failed, report.counts) == (1, 0, {"copied": 1})
    assert report.bound.startswith("processors: 90%")


def test_a_job_that_has_not_begun_has_no_rate(records):
    report = JobReport.of(records, PLAN.summary)
    assert (report.bytes_per_s, report.left_s, report.bound, report.parts_done) == (0.0, None, "", 0)
    assert "not finished" in next(report.rows())[1]
