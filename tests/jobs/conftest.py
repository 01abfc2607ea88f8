"""What is deleted and written by mistake is tried through the commands, which run as in ``tests/cli``."""

import os

import pytest

from penstock.jobs import tasks
from tests.cli.conftest import _ordered, penstock  # noqa: F401  fixtures
from tests.trees import tree  # noqa: F401  a fixture


@pytest.fixture
def forks(monkeypatch):
    """Keep the number of each process that is forked."""
    pids, fork = [], os.fork

    def counted():
        pid = fork()
        pids.append(pid)
        return pid

    monkeypatch.setattr(tasks.os, "fork", counted)
    return pids
