"""The command as a user runs it: a process of its own, forked where it runs to its end, else an interpreter's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.testing.faults import FaultServer, Settings
from tests.cli.warm import warm

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


def environment(bucket) -> dict[str, str]:
    store = bucket.store
    keys = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
    return os.environ | keys | {"AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": store.region}


@pytest.fixture(scope="session")
def _ordered():
    """Return a function that runs a command line in a process forked from one that has the command loaded."""
    with warm() as ordered:
        yield ordered


@pytest.fixture
def penstock(_ordered):
    """Run a command line to its end; with a bucket's environment, or with none."""

    def run(*words: str, bucket=None, **variables: str) -> subprocess.CompletedProcess[str]:
        return _ordered(list(words), (environment(bucket) if bucket else dict(os.environ)) | variables)

    return run


@pytest.fixture
def start():
    """Start a command line and leave it to the test; it does not outlive it."""
    processes = []

    def run(*words: str, bucket=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE) -> subprocess.Popen[str]:
        env = (environment(bucket) if bucket else os.environ) | {"PYTHONUNBUFFERED": ""}  # some CI systems set it
        processes.append(subprocess.Popen([*COMMAND, *words], env=env, stdout=stdout, stderr=stderr, text=True))
        return processes[-1]

    yield run
    for process in processes:
        with process:
            process.kill()


@pytest.fixture
def strict():
    with FaultServer.within(Settings()) as server:
        server.make("bucket")
        yield server


@pytest.fixture
def careless():
    """Serve as a store does that ignores conditions on writes."""
    with FaultServer.within(Settings(conditions="ignored")) as server:
        server.make("bucket")
        yield server


@pytest.fixture(scope="module")
def own_server():
    """Yield a user's own server with one bucket, "mine"."""
    with FaultServer.start() as running:
        running.make("mine")
        yield running
