"""A section of the benchmark runs alone, without a server; its numbers mean nothing here, and its words are checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report import render
from benchmarks.runner import tabulate
from benchmarks.sections import ORDERS, SECTIONS, Section

ROOT = Path(__file__).parents[2]
(ORDER,) = (section for section in SECTIONS if section.name == "order")
MACHINE = {"cpu": "c", "cores": 1, "memory_gib": 1, "system": "s", "load": 0}
ABOUT = {"command": "", "date": "", "commit": "", "machine": MACHINE, "versions": {}, "rounds": 2, "quick": False}


def test_the_order_is_measured_alone_and_without_a_server(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "order", "--output", str(tmp_path)]
    command += ["--folder", str(tmp_path / "not there, and not missed")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    results, report = json.loads((tmp_path / "results.json").read_text()), (tmp_path / "RESULTS.md").read_text()
    assert results["conditions"] == []
    assert "nginx" not in report
    (section,) = results["sections"]
    assert [row["name"] for row in section["rows"]] == list(ORDERS)
    assert all(each > 0 for row in section["rows"] for only in row["rounds"] for each in only.values())
    bars = report.partition("\n## Bars\n")[2].splitlines()[3:]
    assert len(bars) == 8
    assert all("| met |" in bar or "| **missed** by " in bar for bar in bars)


def test_report_shows_the_median_and_the_missed_bar():
    rows = [{"name": "10,000 samples", "rounds": [{"sample_us": us, "first_s": 0.5, "beyond_mib": 1} for us in (1, 5)]}]
    section = {"name": "order", "title": "t", "columns": ORDER.columns, "rows": rows}
    report = render({**ABOUT, "conditions": [], "sections": [section]})
    assert "\n## order: t\n\n| | µs/sample | first batch, s | peak RSS MiB beyond numpy |\n" in report
    assert "| 10,000 samples | 3 (1 - 5) | 0.5 (0.5 - 0.5) | 1 (1 - 1) |" in report
    assert "| order: 10,000 samples, time per sample | ≤ 2 µs | 3 (1 - 5) | **missed** by 50% |" in report


def test_failing_script_ends_the_run_with_its_error_output():
    broken = Section("order", "t", "order", (("nothing", {"samples": -1}),), ())
    with pytest.raises(SystemExit, match=r"(?s)order, nothing, failed \(1\).*Unusable"):
        tabulate(broken, range(1))
