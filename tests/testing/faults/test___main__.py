"""The command serves faults on a port at the rate it was told, and refuses words that it does not know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer


def test_command_line_server_injects_faults_at_the_given_rate():
    command = [sys.executable, "-m", "penstock.testing.faults", "--rate", "0.5", "--faults", "503,reset", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        words = list(iter(child.stdout.readline, "# serving s3://bucket/ from memory until Ctrl-C\n"))
        told = dict(line.split()[1].split("=", 1) for line in words)
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
def test_command_prints_fault_list_and_reports_flag_errors(flags, status, words):
    if "--port" in flags and os.geteuid() == 0:
        with FaultServer.within() as server:
            return check(["--port", server.endpoint.rpartition(":")[2]], status, "cannot listen on 127.0.0.1:")
    return check(flags, status, words)


def check(flags, status, words):
    command = [sys.executable, "-m", "penstock.testing.faults", *flags]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == status
    assert words in run.stdout + run.stderr
