"""``penstock report``: the reports of ranks, joined."""

from __future__ import annotations

import json
import os
import pty

from tests.terminal import read_all


def test_reports_of_ranks_are_joined(penstock, tmp_path):
    for rank, waited_s in enumerate((1.0, 7.0)):
        report = {"rank": rank, "world": 2, "waiting_s": waited_s, "computing_s": 3.0, "cause": "decode"}
        more = {"recommendation": "Do it.", "batches": 4, "samples": 8}
        (tmp_path / f"{rank}.json").write_text(json.dumps(report | more))
    done = penstock("report", f"{tmp_path}/*.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 ranks. Rank 1 waited longest for its batches, 7.0 s (70% of its time)")
    assert json.loads(penstock("report", "--json", f"{tmp_path}/1.json").stdout)["missing"] == [0]
    assert penstock("report", "--html", f"{tmp_path}/0.json").stdout.startswith("<!DOCTYPE html>")
    assert penstock("report", f"{tmp_path}/none.json").returncode == 1


def test_a_report_has_its_lines_on_a_terminal(start, tmp_path):
    report = {
        "rank": 0,
        "world": 1,
        "waiting_s": 1.0,
        "computing_s": 3.0,
        "cause": "decode",
        "batches": 4,
        "samples": 8,
    }
    (tmp_path / "0.json").write_text(json.dumps({**report, "recommendation": "Do \x1b[31mit."}))
    terminal, side = pty.openpty()
    start("report", f"{tmp_path}/0.json", stdout=side)
    os.close(side)
    shown = read_all(terminal)
    assert len(shown.splitlines()) > 2
    assert "\\n" not in shown
    assert "\x1b" not in shown
