"""The same rows at another commit and here: what is compared is what each checkout's own Penstock did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import conditions, pairs
from benchmarks.rows import Row
from benchmarks.server import missing
from tests.conftest import REQUIRE_SERVERS

ROOT = Path(__file__).parents[2]


def _row(*rounds):
    known = {"peak_rss": 0, "bytes": 0, "compute_s": 0.0, "slept_s": 0.0}
    told = [{**known, "objects": 100, "wall_s": wall_s, "cpu_s": cpu_s} for wall_s, cpu_s in rounds]
    return Row({"name": "n", "script": "s", "beside": "", "threads": 1, "rounds": told})


def test_ratios_are_taken_round_by_round():
    found = pairs.compared(_row((1, 1), (10, 10)), _row((2, 0.5), (20, 5)))
    assert found == {"rate x": [0.5, 0.5], "CPU x": [0.5, 0.5]}


def test_both_checkouts_run_in_turn_and_nothing_is_left(tmp_path, capsys, monkeypatch):
    if message := missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    ran, once = [], pairs.once

    def noted(condition, run, load, served, tree):
        ran.append((condition.name, tree == ROOT))
        return once(condition, run, load, served, tree)

    monkeypatch.setattr(pairs, "once", noted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pairs.main(["HEAD", "--quick", "--rounds", "2", "--only", "big", "--folder", str(tmp_path)])
    assert ran == [("big", False), ("big", True), ("big", True), ("big", False)]
    assert "penstock open" in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]


def test_unknown_commit_is_reported_with_exit_code_1(tmp_path):
    command = [sys.executable, "-m", "benchmarks.pairs", "no-such-commit", "--folder", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("no-such-commit is not a commit")


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--only", "nothing"], ["--folder", "/no/such"]])
def test_arguments_that_mean_nothing_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        pairs.main(["HEAD", *arguments])
    told = capsys.readouterr().err
    assert "at least one" in told or "is no directory" in told or conditions.CONDITIONS[0].name in told
