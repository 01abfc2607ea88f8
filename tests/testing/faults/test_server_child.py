"""The fault server's process serves its owner and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

from tests.testing.faults.raw import opened


def answers(where):
    try:
        with opened(where):
            return True
    except OSError:
        return False


_OWNER = """
import time
from penstock.testing.faults import FaultServer
with FaultServer.start() as server:
    print(server.endpoint, flush=True)
    time.sleep(600)
"""


def test_server_exits_when_its_owner_is_killed():
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        where = SimpleNamespace(endpoint=owner.stdout.readline().strip())
        assert answers(where)
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while answers(where):
        assert time.monotonic() < deadline, "the server survived its owner"
