"""Outcomes as lines, and summed up."""

from __future__ import annotations

import json

import pytest

from penstock.errors import NotFound, Unusable
from penstock.jobs.outcome import Outcome, Synced, as_line, ledger


def test_json_line_of_an_outcome_reports_its_note_and_error():
    assert json.loads(as_line(Outcome("a", "b", 1, "copied"))) == {
        "source": "a",
        "dest": "b",
        "size": 1,
        "status": "copied",
    }
    assert json.loads(as_line(Outcome("", "b", 1, "skipped", "why"))) | {"note": "why", "source": None}
    assert json.loads(as_line(Outcome("", "b", 1, "failed", error=NotFound("gone", url="s3://b/k"))))[
        "error"
    ].startswith("gone")
    assert as_line(Outcome("\n\u2028\udcff", "b", 1, "copied")).count("\n") == 1


def test_sums_count_each_once_and_keep_a_hundred_failures():
    found = Synced()
    for number in range(150):
        found.add(Outcome("a", f"b{number}", 2, "failed", error=NotFound("gone")))
        found.add(Outcome("a", "b", 2, "copied"))
    found.add(Outcome("", "b", 2, "deleted"))
    assert (found.failed, found.copied, found.copied_bytes, found.deleted) == (150, 150, 300, 1)
    assert [each.dest for each in found.failures] == [f"b{number}" for number in range(100)]


@pytest.mark.parametrize("path", [3, True, b"report", ["report"]], ids=str)
def test_a_report_that_is_not_a_path_is_refused(path):
    with pytest.raises(Unusable, match="report must be the path of a file, got a"), ledger(path, ()):
        pass
