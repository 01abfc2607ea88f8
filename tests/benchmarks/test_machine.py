"""Results say how they were measured, and nothing of the folders of the machine."""

import sys

from benchmarks.machine import describe


def test_command_of_results_has_no_folders(monkeypatch):
    given = ["x", "--rounds", "3", "--only", "shards", "penstock", "--output", "/home/a b/x", "--folder=/mnt/ram"]
    monkeypatch.setattr(sys, "argv", given)
    assert describe([], served=False)["command"] == "python -m benchmarks --rounds 3 --only shards penstock"
