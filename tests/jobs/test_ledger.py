"""A report has a line for each outcome, at once, and lies in neither tree."""

from __future__ import annotations

import json

import pytest

from penstock.errors import NoSpace, NotFound, Unusable
from penstock.jobs.mirror import SyncOptions, open_mirror
from penstock.jobs.outcome import Outcome, ledger
from penstock.options import StoreOptions


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
    with pytest.raises(Unusable, match="one of the trees"), ledger(tmp_path / place, trees):
        pass


def test_unwritable_report_raises_an_error(trees, tmp_path):
    with pytest.raises(Unusable, match="cannot write the report"), ledger(tmp_path / "no" / "report", trees):
        pass
    with pytest.raises(NoSpace, match="cannot write the report"), ledger("/dev/full", trees) as add:
        add(Outcome("a", "b", 0, "copied"))


def test_the_callers_own_errors_pass_unchanged(trees, tmp_path):
    with pytest.raises(NotFound, match="mine"), ledger(tmp_path / "report", trees):
        raise NotFound("mine")
