"""The benchmark runs: server, peers, results and report; on objects so few that its numbers mean nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from benchmarks import conditions
from benchmarks.bars import REASONS
from benchmarks.environments import _constraints, _package
from benchmarks.objects import Load, compare, fill, manifest
from benchmarks.report import render
from benchmarks.runner import measure
from benchmarks.sections import SECTIONS
from benchmarks.server import Server, missing, serve
from tests.benchmarks.forked import forking, run
from tests.conftest import REQUIRE_SERVERS

ROOT = Path(__file__).parents[2]
QUICK = ["--quick", "--only", "floor", "penstock"]
COMMAND = [sys.executable, "-m", "benchmarks", *QUICK]
MEASURED = {"wall_s", "objects", "bytes", "cpu_s", "peak_rss", "beyond", "compute_s", "slept_s"}
# What is run by one command, and how many of its bars need no engine of others. Over another port, beside a busy thread
# or on more, the same scripts run: each of them once, and each port.
PARTS = {
    "near": (["small", "events", "unknown", "ranges", "table"], 6),
    "dialects": (["dialects"], 6),
    "late": (["late", "late-busy", "unknown-busy"], 5),
    "whole": (["big", "big-tls", "write", "write-tls"], 4),
    "photos": (["decode"], 2),
    "saved": (["state-save", "state-async"], 6),
    "loaded": (["state-load"], 4),
    "safetensors": (["state-safetensors"], 1),
    "ranks": (["state-ranks"], 1),
    "arrays": (["zarr", "zarr-get"], 0),
    "epochs": (["fields-4", "fields-shards"], 5),
    "shards": (["shards", "shards-tiny"], 7),
    "many": (["shards-many-late"], 2),
    "mds": (["mds"], 1),
    "mixture": (["mixture"], 2),
    "pairs": (["pairs"], 1),
    "tokens": (["tokens"], 7),
    "parquet": (["parquet"], 2),
}
AT_ONCE = 2  # each is a chain of processes, one after another


@pytest.fixture(scope="module")
def _nginx():
    if message := missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)


def _produced(part, runners, tmp_path_factory):
    folder, output = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("output")
    arguments = [*QUICK, *PARTS[part][0], "--folder", str(folder), "--output", str(output)]
    runner = runners.get()
    print(json.dumps(arguments), file=runner.stdin, flush=True)
    ended = json.loads(runner.stdout.readline() or '"what is above says why"')
    runners.put(runner)
    assert ended is None, ended
    return json.loads((output / "results.json").read_text()), (output / "RESULTS.md").read_text(), folder


@pytest.fixture(scope="module", autouse=True)
def begun(request, tmp_path_factory):
    """Begin whatever the tests of this run ask for: it goes on beside those that come first."""
    own = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    asked = {item.callspec.params.get("part") for item in own}
    parts = [part for part in PARTS if part in asked and not missing()]
    runners = SimpleQueue()
    with ExitStack() as ends:
        for _ in range(min(AT_ONCE, len(parts))):
            command, pipe = [sys.executable, "-m", "tests.benchmarks.forked"], subprocess.PIPE
            runners.put(ends.enter_context(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)))
        pool = ends.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield {part: pool.submit(_produced, part, runners, tmp_path_factory) for part in parts}
        pool.shutdown(cancel_futures=True)


def _ours(results, plans, loads):
    """Yield each plan with each row of it and its load, which are all those asked for and no others."""
    assert [each["name"] for each in results["conditions"]] == [each.name for each in plans]
    for condition, plan in zip(results["conditions"], plans, strict=True):
        ours = [run.name for run in plan.runs if run.engine in ("floor", "penstock")]
        assert [row["name"] for row in condition["rows"]] == ours
        for row in condition["rows"]:
            yield condition, row, loads[plan.load]


def _bars(report):
    bars, _, reasons = report.partition("\n## Bars\n")[2].partition("\nWhy those are missed")
    bars = bars.strip().splitlines()[2:]
    assert all("| met |" in bar or "| **missed** by " in bar for bar in bars)
    return bars, reasons


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
        "load": {"count": 10, "state": False},
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
    report = render({**about, "conditions": [condition], "sections": []})
    assert "| small: CPU per object beside the floor's, map | ≤ 2.5 x | 2 (2 - 2) | met |" in report
    assert "| small: objects/s beside s3torchconnector's, map | ≥ 6 x | 6 (5 - 7) | met |" in report


@pytest.mark.usefixtures("_nginx")
def test_a_wrong_body_is_caught(tmp_path):
    load = Load("few", 10 << 10, 4)
    fill(tmp_path, [load])
    victim = tmp_path / "data/bench" / load.keys[2]
    with serve(tmp_path) as server:
        assert _peer(tmp_path, load, server).returncode == 0
        manifest(tmp_path, load, 4)
        victim.write_bytes(b"x" + victim.read_bytes()[1:])
        refused = _peer(tmp_path, load, server)
    assert refused.returncode == 1
    assert f"{load.keys[2]}: wrong body" in refused.stderr


@pytest.mark.usefixtures("_nginx")
@pytest.mark.parametrize("port", ["plain", "tls"])
def test_compare_checks_completed_uploads_and_detects_changed_bytes(tmp_path, port):
    load = Load("one", (16 << 20) + 5, 1)
    fill(tmp_path, [load])
    with serve(tmp_path) as server:
        with pytest.raises(SystemExit, match="0 objects were completed"):
            compare(tmp_path, load)
        done = _peer(tmp_path, load, server, script="floor_write", port=port)
        assert done.returncode == 0, done.stderr
        connection = http.client.HTTPConnection(server.plain.partition("//")[2], timeout=60)
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


@pytest.mark.usefixtures("_nginx")
def test_changed_checkpoint_state_is_detected_on_load_and_save(tmp_path):
    load = Load("state", 4 << 20, 1, layouts=("000000.bin",))
    with forking():
        fill(tmp_path, [load])
    digests = tmp_path / "state.json"
    with serve(tmp_path) as server:
        assert _peer(tmp_path, load, server, script="penstock_load", run=run).returncode == 0
        described = json.loads(digests.read_text())
        described["tensors"]["embedding"][0] ^= 1
        digests.write_text(json.dumps(described))
        refused = _peer(tmp_path, load, server, script="penstock_load", run=run)
        assert (refused.returncode, refused.stderr) == (1, "not what was saved: embedding\n")
        described["tensors"]["embedding"][0] ^= 1
        digests.write_text(json.dumps(described))
        saving = _peer(tmp_path, load, server, script="penstock_save", run=run)
        assert saving.returncode == 0, saving.stderr
    (part,) = (path for path in (tmp_path / "put").rglob("*") if path.is_file())
    kept = part.read_bytes()
    middle = len(kept) // 2
    part.write_bytes(kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :])
    with forking(), pytest.raises(SystemExit, match=r"000000.bin is not what was saved"):
        compare(tmp_path, load)


@pytest.mark.usefixtures("_nginx")
def test_server_lists_copies_reads_and_deletes_written_objects(tmp_path):
    with serve(tmp_path) as server:
        connection = http.client.HTTPConnection(server.plain.partition("//")[2], timeout=60)

        def ask(method, path, body=None, headers=None):
            connection.request(method, f"/bench{path}", body, headers or {})
            with connection.getresponse() as answer:
                return answer.status, answer.read().decode(), answer.headers

        status, _, headers = ask("PUT", "/written/a/.one", b"whole", {"If-None-Match": "*"})
        assert (status, ask("HEAD", "/written/a/.one")[2]["ETag"]) == (200, headers["ETag"])
        assert ask("PUT", "/written/a/two", headers={"x-amz-copy-source": "/bench/written/a/.one"})[0] == 200
        assert ask("GET", "/written/a/two")[:2] == (200, "whole")
        assert ask("DELETE", "/written/a/.one")[0] == 204
        assert ask("GET", "/written/a/.one")[0] == ask("HEAD", "/written/a/.one")[0] == 404
        listed = ask("GET", "?list-type=2&prefix=written%2F&delimiter=%2F")[1]
        assert "<Prefix>written/a/</Prefix>" in listed
        assert "<Key>written/a/two</Key><Size>5</Size>" in ask("GET", "/?list-type=2&prefix=written%2Fa%2F")[1]
        assert ask("POST", "?delete", "<Delete><Object><Key>written/a/two</Key></Object></Delete>")[0] == 200
        assert "<Key>" not in ask("GET", "?list-type=2")[1]
        connection.close()


def test_peer_constraints_keep_our_versions_except_for_pinned_packages():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (botocore,) = [line for line in lines if line.startswith("botocore==")]
    assert _constraints("s3fs==1 botocore==2").splitlines() == [line for line in lines if line != botocore]


def _peer(folder, load, server, *, script="floor", port="plain", run=subprocess.run):
    task = {"endpoint": getattr(server, port), "ca": server.ca, "manifest": str(manifest(folder, load, load.count))}
    task |= {"digests": str(folder / f"{load.name}.json"), "batch": 2, "threads": 2, "compute_s": 0}
    command = [sys.executable, str(ROOT / f"benchmarks/peers/{script}.py"), json.dumps(task)]
    return run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)


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


@pytest.mark.usefixtures("_nginx")
def test_server_process_has_ended_after_an_interrupted_run(tmp_path, monkeypatch):
    """However long it takes: on a busy machine that is more than what ``Popen`` waits after a Ctrl-C."""

    class Impatient(subprocess.Popen):
        _sigint_wait_secs = property(lambda _: 0, lambda *_: None)

    monkeypatch.setattr(subprocess, "Popen", Impatient)
    with pytest.raises(KeyboardInterrupt), serve(tmp_path):
        nginx = int((tmp_path / "nginx.pid").read_text())
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(nginx, 0)


@pytest.mark.parametrize(("requirement", "attempts"), [("s3fs", 2), (conditions.OURS, 1)])
def test_an_engine_of_others_that_fails_once_does_not_cost_the_run_and_ours_does(
    tmp_path, monkeypatch, requirement, attempts
):
    load = Load("few", 10, 1)
    fill(tmp_path, [load])
    asked = []

    def once(requirement, *_):
        asked.append(requirement)
        if len(asked) == 1:
            raise SystemExit("it hung")
        return dict.fromkeys(MEASURED, 1)

    monkeypatch.setattr("benchmarks.runner.answer", once)
    (tmp_path / "complete").mkdir()
    condition = conditions.Condition("c", "t", "few", "plain", (conditions.Run("s3fs_cat", requirement),))
    served = (Server("", "", "", ""), tmp_path)
    with suppress(SystemExit):
        assert len(measure(condition, load, served, range(1))["rows"]) == 1
    assert asked == [requirement] * attempts


def test_unknown_condition_name_is_reported_with_the_known_names():
    done = subprocess.run([*COMMAND, "nonsense"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "late-busy" in done.stderr


@pytest.mark.usefixtures("_nginx")
@pytest.mark.parametrize("part", PARTS)
def test_every_condition_is_measured_with_every_engine_asked_for_and_reported(begun, part):
    results, report, folder = begun[part].result(timeout=280)  # of a hang; a busy machine has others to serve
    plans = [each for each in conditions.CONDITIONS if each.name in PARTS[part][0]]
    loads = {each.name: each for each in conditions.quick(conditions.LOADS)}
    for condition, row, load in _ours(results, plans, loads):
        (only,) = row["rounds"]
        assert set(only) >= MEASURED
        assert only["objects"] == load.count * only.get("epochs", 1)
        assert only["cpu_s"] > 0 < only["wall_s"]
        assert (only["compute_s"] > 0) == (condition["compute_s"] > 0)
        _sized(only, load)
    assert {"command", "date", "commit", "machine", "versions", "rounds", "quick"} < set(results)
    assert results["quick"] is True
    assert {"nginx", "libcurl", "python", "pycurl", "torch"} <= set(results["versions"])
    for condition in results["conditions"]:
        assert f"\n## {condition['name']}: " in report
    assert "numbers mean nothing" in report
    bars, reasons = _bars(report)
    assert len(bars) == PARTS[part][1], "those that need no engine of others"
    missed = {bar[2:].partition(":")[0] for bar in bars if "**missed**" in bar}
    assert {line[2:].partition(":")[0] for line in reasons.splitlines() if line.startswith("- ")} == missed & {*REASONS}
    assert list(folder.iterdir()) == [], "something is left behind"


def _sized(only, load):
    size = only["bytes"] / only["objects"]
    if load.layouts:
        assert load.size == 32 << 20
        assert load.size * 0.9 < size < load.size * 1.1
        assert only["beyond"] < only["peak_rss"]
    elif load.beside:
        assert size == (load.size + load.beside) / 2
    elif load.shards or load.rows:
        assert load.size * 0.9 < size < load.size * 1.1
    elif load.array:
        assert load.size * 0.3 < size < load.size * 0.9
    elif load.table:
        assert load.size <= size < load.size * 1.2
    else:
        assert size == load.size or (load.photos and 60 << 10 < size < 80 << 10)


def test_smoke_conditions_cover_every_script_port_and_busy_thread_script():
    def asked(chosen):
        ran = [(each, run) for each in chosen for run in each.runs]
        return {run.script for _, run in ran}, {each.port for each, _ in ran}, {r.script for c, r in ran if c.compute_s}

    named = {name for names, _ in PARTS.values() for name in names}
    here = [each for each in conditions.CONDITIONS if each.name in named]
    assert {each.name for each in here} == named
    assert asked(conditions.CONDITIONS) == asked(here)


def test_no_peer_s_environment_is_made_anew_for_another_peer():
    wanted = {run.requirement for condition in conditions.CONDITIONS for run in condition.runs} - {conditions.OURS}
    wanted |= {requirement for section in SECTIONS for requirement in section.requirements.values()}
    assert len({*map(_package, wanted)}) == len(wanted), "an environment is named after the first package in it"
