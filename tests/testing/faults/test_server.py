"""A fault server is held the same way in a process of its own and in ours, plays its script, and tells what it saw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.errors import Forbidden, NotFound
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.values import Span
from tests.testing.faults.raw import opened


@pytest.fixture(params=["start", "within"])
def held(request):
    with getattr(FaultServer, request.param)(Settings(region="eu-test-1")) as server:
        yield server


def test_a_script_is_played_in_order_and_recorded(held):
    held.put("bucket", "k", b"bytes")
    held.fail(FAULTS["reset"], FAULTS["503"], when=Match(verb="get", key="k"))
    with ps.open("s3://bucket/k", store=held.store) as file:
        assert file.read() == b"bytes"
    assert [(seen.verb, seen.fault, seen.status) for seen in held.seen()] == [
        ("head", "", 200),
        ("get", "reset", 0),
        ("get", "503", 503),
        ("get", "", 200),
    ]
    assert [seen.number for seen in held.seen("get", "bucket", "k")] == [2, 3, 4]
    assert held.seen("get", "bucket", "other") == []
    assert held.opened() == len({seen.connection for seen in held.seen()}) == 2


def test_rules_count_what_they_are_about(held):
    for key in ("a", "b"):
        held.put("bucket", key, b"bytes")
    source, _ = open_source("s3://bucket/", held.store)
    held.fail(FAULTS["denied"], when=Match(verb="head", key="a", nth=2, times=2))
    told = []
    for key in "abababab":
        try:
            source.head(key)
            told.append(key)
        except Forbidden:
            told.append("-")
    assert "".join(told) == "ab-b-bab"


def test_a_rate_is_drawn_from_its_seed(held):
    held.put("bucket", "a", b"bytes")
    source, _ = open_source("s3://bucket/", held.store)

    def play(seed):
        held.heal()
        held.fail(FAULTS["503"], when=Match(times=None, rate=0.3, seed=seed))
        before = len(held.seen())
        for _ in range(20):
            source.head("a")
        return [bool(seen.fault) for seen in held.seen()[before:]][:20]

    first = play(1)
    assert play(1) == first
    assert play(2) != first
    assert 0 < sum(first) < 15


def test_what_was_planted_can_be_healed(held):
    held.put("bucket", "k", b"bytes")
    held.fail(FAULTS["denied"], when=Match(times=None))
    held.heal()
    assert open_source("s3://bucket/", held.store)[0].read(Span("k")) == b"bytes"


def test_the_environment_reaches_it(held, monkeypatch):
    for name, value in held.environment.items():
        monkeypatch.setenv(name, value)
    held.make("bucket")
    with ps.open("s3://bucket/k", "wb") as file:
        file.write(b"bytes")
    assert held.objects("bucket") == {"k": b"bytes"}
    assert held.uploads("bucket") == []
    with pytest.raises(NotFound):
        ps.stat("s3://nowhere/k")
    with pytest.raises(KeyError):
        held.objects("nowhere")


def test_latency_comes_before_the_first_byte():
    with FaultServer.within(Settings(latency_ms=50)) as server:
        server.put("bucket", "k", b"bytes")
        source, _ = open_source("s3://bucket/", server.store)
        source.head("k")
        began = time.monotonic()
        source.head("k")
        assert time.monotonic() - began >= 0.05


_OWNER = """
import time
from penstock.testing.faults import FaultServer
with FaultServer.start() as server:
    print(server.endpoint, flush=True)
    time.sleep(600)
"""


def test_it_does_not_outlive_a_killed_owner():
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        where = SimpleNamespace(endpoint=owner.stdout.readline().strip())
        assert answers(where)
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while answers(where):
        assert time.monotonic() < deadline, "the server survived its owner"


def answers(where):
    try:
        with opened(where):
            return True
    except OSError:
        return False


def test_on_a_port_it_fails_at_the_rate_it_was_told():
    command = [sys.executable, "-m", "penstock.testing.faults", "--rate", "0.5", "--faults", "503,reset", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        words = [child.stdout.readline() for _ in range(3)]
        told = dict(pair.split("=", 1) for line in words[:2] for pair in line.split()[1:])
        with pytest.MonkeyPatch.context() as patch:
            for name, value in told.items():
                patch.setenv(name, value)
            for number in range(20):
                with ps.open(f"s3://bucket/{number}", "wb") as file:
                    file.write(b"bytes")
            assert len(list(ps.list("s3://bucket/"))) == 20
        child.send_signal(signal.SIGINT)
        log = child.stdout.read()
        assert child.wait(60) == 0
    assert log.count(" 503 ") > 3
    assert log.count(" reset ") > 3


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        (["--list"], 0, "half-way through the body"),
        (["--faults", "gremlins"], 2, "no such fault: gremlins; known: reset"),
        (["--rate", "7"], 2, "between 0 and 1"),
        (["--port", "1"], 1, "cannot listen on 127.0.0.1:1"),
    ],
    ids=["list", "fault", "rate", "port"],
)
def test_the_command_says_what_it_knows_and_what_is_wrong(flags, status, words):
    if "--port" in flags and os.geteuid() == 0:
        with FaultServer.within() as server:
            return check(["--port", server.endpoint.rpartition(":")[2]], status, "cannot listen on 127.0.0.1:")
    return check(flags, status, words)


def check(flags, status, words):
    command = [sys.executable, "-m", "penstock.testing.faults", *flags]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == status
    assert words in run.stdout + run.stderr
