"""``penstock top``: rates of running loaders, and of the requests of a process with metrics."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time

import pytest

import penstock as ps
from penstock.cli.commands import top
from penstock.cli.commands.top import loader_lines, loader_record, metrics, metrics_lines, metrics_record
from penstock.cli.output import json_line
from penstock.engine.node import live
from penstock.engine.node.live import Description
from penstock.errors import Damaged, Unreachable
from tests.data.loading.plants import changed

TRAINING = """
import sys, time
import penstock as ps
loader = ps.DataLoader(ps.MapDataset.from_prefix(sys.argv[1]), batch_size=2)
while True:
    for batch in loader:
        time.sleep(0.02)
        print("trained", flush=True)
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path / "node"))


@pytest.fixture
def training(node, tmp_path):  # noqa: ARG001  its variable is set
    """Start a training that has received its first batch, and does not end."""
    for number in range(8):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / str(number)).write_bytes(bytes(100))
    command = [sys.executable, "-c", TRAINING, f"{tmp_path}/data/"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "trained\n"
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield process
        process.kill()


def test_running_loader_is_shown_with_its_rate_and_as_json(training, penstock, tmp_path):
    done = penstock("top", "--interval", "1", "--count", "2", "--json", str(training.pid), **os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (second["process"], second["loader"], second["batch_size"]) == (training.pid, 1, 2)
    assert second["batches"] > first["batches"]
    assert 0 < second["batches_per_s"] < 50.5
    assert second["samples_per_s"] == pytest.approx(2 * second["batches_per_s"])
    assert sum(second["causes"].values()) <= second["waiting"] + 1e-6
    text = penstock("top", **os.environ).stdout
    assert text.startswith(f"process {training.pid}: file://{tmp_path}/data/\n  batch_size=2, decode_threads=")
    assert re.search(r"^  rate      \S+ batches/s, \S+ samples/s, \S+ \S+/s received$", text, re.MULTILINE)


def test_loader_of_an_ended_training_is_an_error(training, penstock):
    training.kill()
    training.wait()
    done = penstock("top", str(training.pid), **os.environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"penstock: there is no process {training.pid}\n"


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("target", "code", "text"),
    [
        ("", 1, "no loader of this user has delivered a batch"),
        ("1", 1, "process 1 "),
        ("train.py", 2, "cannot watch 'train.py': write a process's number, or http://HOST:9464/metrics"),
        ("-5", 2, "No such option"),
        ("http://127.0.0.1:1/metrics", 4, "cannot read metrics: "),
    ],
)
def test_wrong_target_is_named(penstock, target, code, text):
    done = penstock("top", *filter(None, [target]), **os.environ)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


def test_without_a_directory_loaders_cannot_be_seen(penstock):
    done = penstock("top", PENSTOCK_NODE="off")
    assert (done.returncode, done.stderr) == (
        2,
        "penstock: cannot watch loaders: PENSTOCK_NODE=off disables their status files\n",
    )


def values(**changes):
    context = {"url": "s3://b/t/", "batch_size": 8, "num_workers": 0, "decode_threads": 4, "prefetch": 2}
    host = {"host": "s3", "received_bytes": 1 << 20, "first_byte_s": {"p50": 0.01, "p99": 0.08}}
    counts = {"batches": 10, "samples": 80, "requests": 80, "retries": 0, "errors": 0, "cached": 0}
    times = {"waiting_s": 1.0, "computing_s": 9.0, "causes": {"first byte": 1.0}, "cause": "first byte"}
    return {
        "context": context,
        "rank": 1,
        "world": 2,
        "hosts": [host],
        "recommendation": "Raise prefetch.",
        **counts,
        **times,
    } | changes


def test_rates_are_those_between_two_descriptions():
    before = Description(7, 1, 100.0, values())
    host = {**values()["hosts"][0], "received_bytes": 3 << 20}
    later = values(batches=20, samples=160, requests=90, retries=5, waiting_s=2.0, computing_s=10.0, hosts=[host])
    row = loader_record("", before, Description(7, 1, 102.0, later | {"causes": {"first byte": 1.5, "decode": 0.5}}))
    assert (row["batches_per_s"], row["samples_per_s"], row["waiting"]) == (5.0, 40.0, 0.5)
    assert row["causes"] == {"first byte": 0.25, "decode": 0.25}
    assert (row["requests_per_s"], row["retries_per_s"], row["bytes_per_s"]) == (5.0, 2.5, 1 << 20)
    lines = [*loader_lines(row)]
    assert lines[0] == "process 7, rank 1 of 2: s3://b/t/"
    assert "  requests  5/s, 2.5 again" in lines
    assert "    s3: first byte p50 10 ms, p99 80 ms" in lines
    assert lines[-1] == "  Raise prefetch."


def test_loop_without_a_new_description_is_shown_as_silent(monkeypatch):
    monkeypatch.setattr(top, "time", lambda: 160.0)
    same = Description(7, 1, 100.0, values())
    row = loader_record("", same, same)
    assert (row["batches_per_s"], row["silent_s"]) == (1.0, 60.0)
    assert "  no batch for 60 s: what follows is older" in [*loader_lines(row)]


def test_loop_that_has_not_described_itself_is_shown_as_waiting(monkeypatch):
    monkeypatch.setattr(top, "time", lambda: 130.0)
    row = loader_record("", None, Description(7, 1, 100.0, {}))
    assert [*loader_lines(row)] == ["process 7: a loader without a batch for 30 s, or longer"]


PAGE = """# HELP penstock_requests_total Attempts of requests that ended.
penstock_requests_total{host="s3.example"} REQUESTS
penstock_requests_created{host="s3.example"} 1.7e9
penstock_received_bytes_total{host="s3.example"} 1.048576e6
penstock_first_byte_seconds_bucket{host="s3.example",le="0.016"} REQUESTS
penstock_first_byte_seconds_bucket{host="s3.example",le="0.032"} 100.0
penstock_first_byte_seconds_bucket{host="s3.example",le="+Inf"} 100.0
penstock_cache_hits_total{cache="/nvme \\"x\\""} 5.0
python_info{version="3"} 1.0
"""


def test_metrics_are_read_by_host_and_cache(monkeypatch):
    monkeypatch.setattr(top, "time", lambda: 10.0)
    before = metrics(PAGE.replace("REQUESTS", "50.0"))
    monkeypatch.setattr(top, "time", lambda: 12.0)
    now = metrics(PAGE.replace("REQUESTS", "90.0"))
    assert [*now] == ["s3.example", '/nvme \\"x\\"']
    row = metrics_record("s3.example", before["s3.example"], now["s3.example"])
    assert (row["host"], row["requests_per_s"], row["received_bytes_per_s"]) == ("s3.example", 20.0, 0.0)
    assert row["first_byte_p50_s"] == 0.016
    assert [*metrics_lines(row)] == [
        "s3.example",
        "  requests  20/s",
        "  bytes     0 bytes/s received, 0 bytes/s sent",
        "  first byte  p50 at most 16 ms, p99 at most 16 ms",
    ]
    (name,) = set(now) - {"s3.example"}
    assert metrics_record(name, None, now[name])["cache_hits_per_s"] == 0.0
    assert next(metrics_lines(metrics_record(name, None, now[name]))) == f"cache {name}"


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        page = PAGE.replace("REQUESTS", "50.0") if self.path == "/metrics" else "python_info 1.0\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *words): ...


def test_metrics_of_a_process_are_shown_by_their_address(penstock):
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        shown = penstock("top", "-i", "0.1", f"{url}/metrics", "--json")
        other = penstock("top", f"{url}/other")
        server.shutdown()
    assert shown.returncode == 0
    assert json.loads(shown.stdout.splitlines()[0])["host"] == "s3.example"
    assert (other.returncode, other.stdout) == (1, "")
    assert "found no metrics of Penstock" in other.stderr


@pytest.mark.parametrize(
    "damage",
    [
        'penstock_requests_total{host="s3.example"} NaN',
        'penstock_requests_total{host="s3.example"} +Inf',
        'penstock_requests_total{host="s3.example"} -5',
        'penstock_requests_total{host="s3.example"} many',
        'penstock_first_byte_seconds_bucket{host="s3.example",le="NaN"} 1',
        'penstock_first_byte_seconds_bucket{host="s3.example",le="soon"} 1',
        'penstock_first_byte_seconds_bucket{host="s3.example",le="+Inf"} 5000',
    ],
)
def test_damaged_metrics_are_left_out_and_json_stays_json(damage):
    now = metrics(f"{PAGE.replace('REQUESTS', '50')}{damage}\n")
    for name in now:
        row = metrics_record(name, None, now[name])
        json.loads(json_line(row), parse_constant=pytest.fail)
        assert [*metrics_lines(row)]


def test_a_server_that_sends_a_byte_now_and_then_is_left(monkeypatch):
    monkeypatch.setattr(top, "_PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b"p")

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(Unreachable, match="no complete answer within"):
            top._page(f"http://127.0.0.1:{server.getsockname()[1]}/metrics")
        ended.set()


def test_a_damaged_description_of_a_loader_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(live, "ask", lambda: tmp_path)
    for odd in (values(waiting_s=float("nan")), values(hosts=[{}]), values(rank="1"), {"batches": 1}):
        monkeypatch.setattr(live, "running", lambda _, odd=odd: [Description(7, 1, 100.0, odd)])
        with pytest.raises(Damaged, match="cannot read the description of loader 7-1: "):
            top._loaders(0)


def test_a_training_that_hardly_waits_has_no_cause_and_is_shown(tmp_path, monkeypatch):
    (tmp_path / "0").write_bytes(b"x")
    loader = ps.DataLoader(ps.MapDataset.from_prefix(f"{tmp_path}/"), 1)
    values = json.loads(json.dumps(changed(loader.report(), cause=None).values()))
    monkeypatch.setattr(live, "running", lambda _: [Description(1, 1, time(), values)])
    (found,) = top._loaders(0).values()
    assert loader_record("", None, found)["cause"] is None
