"""kill -9 of a writer at any moment: the old object stands, or the new one, whole."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time

import pytest

from penstock.testing.faults import FaultServer, Settings
from tests.faults.cases import PART_BYTES
from tests.faults.writer import NEW

OLD = b"old!" * 25_000
KILLS = 60  # of each kind
LATENCY_MS = 2  # so that a writer waits for the store about as much as it works, as writers do


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(Settings(latency_ms=LATENCY_MS, least_part_bytes=PART_BYTES)) as server:
        server.make("bucket")
        yield server


@pytest.fixture(scope="module")
def begin(server):
    """Return a function that starts a writer and returns its process id and a function that waits for its end."""
    command = [sys.executable, "-c", "from tests.faults.writer import serve; serve()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ | server.environment) as parent:

        def begin(how, key):
            parent.stdin.write(f"{how} {key}\n")
            parent.stdin.flush()
            return int(parent.stdout.readline()), lambda: int(parent.stdout.readline())

        yield begin
        parent.stdin.close()


@pytest.mark.parametrize("how", ["put", "multipart"])
def test_a_killed_writer_leaves_the_old_object_or_the_new_one(how, server, begin, seed):
    draw = random.Random(seed)
    seconds = []
    for number in range(5):
        began = time.monotonic()
        _, end = begin(how, f"{how}-whole-{number}")
        assert end() == 0
        seconds.append(time.monotonic() - began)
    killed = 0
    for number in range(KILLS):
        server.put("bucket", f"{how}-{number}", OLD)
        pid, end = begin(how, f"{how}-{number}")
        time.sleep(draw.uniform(0, 1.2 * statistics.median(seconds)))  # the moment itself: nothing waits for it
        os.kill(pid, signal.SIGKILL)  # it is nobody else's: only its parent's wait frees the number, and a zombie keeps it
        killed += end() == -signal.SIGKILL
    found = server.objects("bucket")
    stands = [found[f"{how}-{number}"] for number in range(KILLS)]
    assert set(stands) <= {OLD, NEW[how]}
    assert killed > KILLS // 4, "hardly a writer was killed while it wrote: the test shows nothing"
    assert OLD in stands
    assert all(key.startswith(("put-", "multipart-")) for key in found)
    if how == "multipart":
        assert server.uploads("bucket"), "no writer was killed in the middle of an upload"
