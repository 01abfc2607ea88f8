"""Outcomes as lines, and summed up."""

from __future__ import annotations

import json

import pytest

from penstock.errors import NoSpace, NotFound, Unusable
from penstock.jobs.syncing.mirror import SyncOptions, open_mirror
from penstock.jobs.trees.outcome import Outcome, Synced, as_line, ledger
from penstock.options import StoreOptions


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


# A report has a line for each outcome, at once, and lies in neither tree.


@pytest.fixture
def trees(tmp_path):
    (tmp_path / "in").mkdir()
    return open_mirror(str(tmp_path / "in"), str(tmp_path / "out"), SyncOptions(), StoreOptions()).trees


def test_each_line_is_there_as_soon_as_it_is_added(trees, tmp_path):
    path = tmp_path / "report"
    path.write_text("old")
    with ledger(path, trees) as add:
        add(Outcome("a\n", "b", 3, "copied"))
        assert json.loads(path.read_text()) == {"source": "a\n", "dest": "b", "size": 3, "status": "copied"}
        add(Outcome("", "c", 0, "failed", error=NotFound("gone")))
    assert [json.loads(line)["status"] for line in path.read_text().splitlines()] == ["copied", "failed"]


def test_ledger_without_file_accepts_outcomes_and_writes_no_report(trees):
    with ledger(None, trees) as add:
        add(Outcome("a", "b", 0, "copied"))


@pytest.mark.parametrize("place", ["in/report", "out/deep/report", "out/../in/report"])
def test_report_inside_a_source_or_destination_tree_is_refused(trees, tmp_path, place):
    with pytest.raises(Unusable, match="outside the trees"), ledger(tmp_path / place, trees):
        pass


def test_unwritable_report_raises_an_error(trees, tmp_path):
    with pytest.raises(Unusable, match="cannot write the report"), ledger(tmp_path / "no" / "report", trees):
        pass
    with pytest.raises(NoSpace, match="cannot write the report"), ledger("/dev/full", trees) as add:
        add(Outcome("a", "b", 0, "copied"))


def test_the_callers_own_errors_pass_unchanged(trees, tmp_path):
    with pytest.raises(NotFound, match="mine"), ledger(tmp_path / "report", trees):
        raise NotFound("mine")
