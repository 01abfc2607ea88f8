"""What a command says of many objects: each counted once, few words of many errors, and the worst one's code."""

from __future__ import annotations

import json

import pytest

from penstock.cli.output import Report
from penstock.errors import Damaged, Forbidden, NoSpace, NotFound, PenstockError, Unreachable, Unusable

RECORD = {"source": "s3://bucket/a", "dest": "file:///a"}


def test_report_totals_count_done_and_skipped_objects_separately(capsys):
    report = Report("copied")
    report.add(RECORD, 1024, "copied")
    report.add(RECORD, 512, "copied")
    report.add(RECORD, 1 << 30, "skipped")
    report.end()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("copied 2 objects, 1.5 KiB in ")
    assert err.endswith("/s; 1 skipped\n")


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([Unreachable("a")], 4),
        ([Unreachable("a"), NotFound("b")], 1),
        ([NotFound("a"), Unusable("b"), Unreachable("c")], 2),
        ([Unusable("a"), Forbidden("b")], 3),
        ([Forbidden("a"), NoSpace("b")], 6),
        ([NoSpace("a"), Damaged("b"), Unreachable("c")], 5),
        ([PenstockError("of no kind that has a code")], 1),
    ],
    ids=lambda value: "+".join(type(each).__name__ for each in value) if isinstance(value, list) else str(value),
)
def test_exit_code_is_that_of_the_worst_error_in_any_order(errors, code, capsys):
    for order in (errors, errors[::-1]):
        report = Report("deleted")
        for error in order:
            report.fail(RECORD, 1, error)
        with pytest.raises(SystemExit) as ended:
            report.end()
        assert ended.value.code == code
        assert capsys.readouterr().err.endswith(f"{len(errors)} failed\n")


def test_a_hundred_errors_are_shown_escaped_and_the_others_counted(capsys):
    report = Report("copied")
    for number in range(150):
        report.fail(RECORD, 1, NotFound(f"\x1b[2J{number}"))
    with pytest.raises(SystemExit):
        report.end()
    *shown, more, sums = capsys.readouterr().err.splitlines()
    assert (len(shown), more) == (100, "penstock: and more of them")
    assert sums.endswith("150 failed")
    assert "\x1b" not in "".join(shown)


def test_with_json_each_object_is_a_line_at_once_and_the_sums_are_left_out(capsys):
    report = Report("copied", as_json=True)
    report.add(RECORD, 3, "skipped", "a directory's marker")
    report.fail(RECORD, 4, NotFound("nothing there"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {**RECORD, "size": 3, "status": "skipped", "note": "a directory's marker"},
        {**RECORD, "size": 4, "status": "failed", "error": "nothing there"},
    ]
    with pytest.raises(SystemExit, match="1"):
        report.end()
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "penstock: left out: a directory's marker [s3://bucket/a]\npenstock: nothing there\n"


def test_ctrl_c_prints_the_sums_so_far_where_there_are_any(capsys):
    def interrupted(report):
        with report:
            raise KeyboardInterrupt

    report = Report("copied")
    with pytest.raises(KeyboardInterrupt):
        interrupted(report)
    assert capsys.readouterr().err == ""
    report.add(RECORD, 1024, "copied")
    with pytest.raises(KeyboardInterrupt):
        interrupted(report)
    assert capsys.readouterr().err.startswith("interrupted: copied 1 object, 1 KiB in ")
