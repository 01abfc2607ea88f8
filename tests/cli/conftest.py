"""The command as a user runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


def environment(bucket) -> dict[str, str]:
    store = bucket.store
    keys = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
    return os.environ | keys | {"AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": store.region}


@pytest.fixture
def penstock():
    """Run a command line to its end; with a bucket's environment, or with none."""

    def run(*words: str, bucket=None, **variables: str) -> subprocess.CompletedProcess[str]:
        env = (environment(bucket) if bucket else os.environ) | variables
        return subprocess.run([*COMMAND, *words], env=env, capture_output=True, text=True, check=False, timeout=60)

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
