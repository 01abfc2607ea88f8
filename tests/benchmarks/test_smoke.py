"""The benchmark runs: server, peers, results and report; on objects so few that its numbers mean nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import conditions
from benchmarks.environments import _constraints
from benchmarks.objects import Load, compare, fill, manifest
from benchmarks.report import REASONS, render
from benchmarks.server import missing, serve
from tests.conftest import REQUIRE_SERVERS

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "benchmarks", "--quick", "--only", "floor", "penstock"]
MEASURED = {"wall_s", "objects", "bytes", "cpu_s", "peak_rss", "rss_before", "compute_s", "slept_s"}


@pytest.fixture(scope="module")
def _nginx():
    if message := missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)


@pytest.fixture(scope="module")
def produced(_nginx, tmp_path_factory):
    folder, output = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("output")
    command = [*COMMAND, "--folder", str(folder), "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((output / "results.json").read_text()), (output / "RESULTS.md").read_text(), folder


def test_every_condition_is_measured_with_every_engine_asked_for(produced):
    results, _, _ = produced
    assert [each["name"] for each in results["conditions"]] == [each.name for each in conditions.CONDITIONS]
    for condition, plan in zip(results["conditions"], conditions.CONDITIONS, strict=True):
        ours = [run.name for run in plan.runs if run.engine in ("floor", "penstock")]
        assert [row["name"] for row in condition["rows"]] == ours
        for row in condition["rows"]:
            (only,) = row["rounds"]
            assert set(only) == MEASURED
            assert only["objects"] == condition["load"]["count"]
            size = only["bytes"] / condition["load"]["count"]
            assert size == condition["load"]["size"] or (condition["load"]["photos"] and 60 << 10 < size < 80 << 10)
            assert only["cpu_s"] > 0 < only["wall_s"]
            assert (only["compute_s"] > 0) == (condition["compute_s"] > 0)


def test_the_results_say_where_they_come_from(produced):
    results, _, _ = produced
    assert {"command", "date", "commit", "machine", "versions", "rounds", "quick"} < set(results)
    assert results["quick"] is True
    assert {"nginx", "libcurl", "python", "pycurl", "torch"} <= set(results["versions"])


def test_the_report_has_a_table_for_each_condition_and_says_of_each_bar_whether_it_is_met(produced):
    results, report, _ = produced
    for condition in results["conditions"]:
        assert f"\n## {condition['name']}: " in report
    assert "numbers mean nothing" in report
    bars, _, reasons = report.partition("\n## Bars\n")[2].partition("\nWhy those are missed")
    bars = bars.strip().splitlines()[2:]
    assert len(bars) == 14, "those that need no engine of others"
    assert all("| met |" in bar or "| **missed** by " in bar for bar in bars)
    missed = {bar[2:].partition(":")[0] for bar in bars if "**missed**" in bar}
    assert {line[2:].partition(":")[0] for line in reasons.splitlines() if line.startswith("- ")} == missed & {*REASONS}


def test_nothing_is_left_behind(produced):
    _, _, folder = produced
    assert list(folder.iterdir()) == []


def test_a_report_compares_round_by_round_with_the_connector_as_documented():
    def rows(script, seconds, *, threads=1, beside=""):
        rounds = [
            dict.fromkeys(MEASURED, 0) | {"wall_s": s, "objects": 10, "bytes": 10, "cpu_s": s / 2, "peak_rss": 1}
            for s in seconds
        ]
        return {"script": script, "name": f"{script} {threads}", "threads": threads, "beside": beside, "rounds": rounds}

    condition = {
        "name": "small",
        "title": "t",
        "load": {"count": 10, "size": 1},
        "compute_s": 0,
        "rows": [
            rows("floor", [1, 1, 2]),
            rows("penstock_map", [2, 2, 4], beside="s3torchconnector_map"),
            rows("s3torchconnector_map", [14, 10, 24]),
            rows("s3torchconnector_map", [1, 1, 1], threads=16),
        ],
    }
    machine = {"cpu": "c", "cores": 1, "memory_gib": 1, "system": "s", "load": 0}
    about = {"command": "", "date": "", "commit": "", "machine": machine, "versions": {}, "rounds": 3, "quick": False}
    report = render({**about, "conditions": [condition], "sections": []}, ["plots/small.svg"])
    assert "| small: CPU per object beside the floor's, map | ≤ 2.5 x | 2 (2 - 2) | met |" in report
    assert "| small: objects/s beside s3torchconnector's, map | ≥ 6 x | 6 (5 - 7) | met |" in report
    assert "![](plots/small.svg)" in report


@pytest.mark.usefixtures("_nginx")
def test_a_wrong_body_is_caught(tmp_path):
    load = Load("few", 10 << 10, 4)
    fill(tmp_path, [load])
    victim = tmp_path / "data/bench" / load.keys[2]
    with serve(tmp_path) as server:
        assert _floor(tmp_path, load, server).returncode == 0
        manifest(tmp_path, load, 4)
        victim.write_bytes(b"x" + victim.read_bytes()[1:])
        refused = _floor(tmp_path, load, server)
    assert refused.returncode == 1
    assert f"{load.keys[2]}: wrong body" in refused.stderr


@pytest.mark.usefixtures("_nginx")
@pytest.mark.parametrize("port", ["plain", "tls"])
def test_what_is_written_is_described_and_compared(tmp_path, port):
    load = Load("one", (16 << 20) + 5, 1)
    fill(tmp_path, [load])
    with serve(tmp_path) as server:
        with pytest.raises(SystemExit, match="0 objects were completed"):
            compare(tmp_path, load)
        done = _floor(tmp_path, load, server, script="floor_write", port=port)
        assert done.returncode == 0, done.stderr
        connection = http.client.HTTPConnection(server.plain.partition("//")[2], timeout=10)
        connection.request("HEAD", f"/bench/written/{load.keys[0]}")
        with connection.getresponse() as described:
            headers = described.headers
        connection.request("POST", f"/bench/written/{load.keys[0]}?uploadId=floor", "<PartNumber>3<")
        with connection.getresponse() as refused:
            assert (refused.status, b"InvalidPart" in refused.read()) == (400, True)
        connection.close()
    assert (headers["Content-Length"], headers["ETag"]) == (str(load.size), '"floor-2"')
    last = tmp_path / "put/floor/2"
    kept = last.read_bytes()
    last.write_bytes(b"x" * len(kept))
    with pytest.raises(SystemExit, match="bytes are not those"):
        compare(tmp_path, load)
    last.write_bytes(kept)
    compare(tmp_path, load)
    assert not (tmp_path / "put").exists()


def test_a_peer_is_held_to_our_versions_but_for_what_it_pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (botocore,) = [line for line in lines if line.startswith("botocore==")]
    assert _constraints("s3fs==1 botocore==2").splitlines() == [line for line in lines if line != botocore]


def _floor(folder, load, server, *, script="floor", port="plain"):
    task = {"endpoint": getattr(server, port), "ca": server.ca, "manifest": str(manifest(folder, load, load.count))}
    task |= {"digests": str(folder / f"{load.name}.json"), "batch": 2, "threads": 2, "compute_s": 0}
    command = [sys.executable, str(ROOT / f"benchmarks/peers/{script}.py"), json.dumps(task)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("_nginx")
def test_an_interrupted_run_leaves_nothing(tmp_path):
    command = [*COMMAND, "--folder", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert any(line.startswith("  1  floor") for line in running.stdout), "the server answers, a peer has read"
        (folder,) = tmp_path.iterdir()
        nginx = int((folder / "nginx.pid").read_text())
        running.send_signal(signal.SIGINT)
        running.stdout.read()
    assert running.returncode != 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(nginx, 0)


def test_a_name_that_means_nothing_is_told():
    done = subprocess.run([*COMMAND, "nonsense"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "late-busy" in done.stderr
