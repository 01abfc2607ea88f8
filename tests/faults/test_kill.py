"""kill -9 of a writer at any moment: the old object stands, or the new one, whole."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import deque

import pytest

from penstock.testing.faults import FaultServer, Settings
from tests.faults.cases import PART_BYTES
from tests.faults.writer import NEW

OLD = b"old!" * 25_000
KILLS = {"s3": 100, "azure": 40, "gcs": 20, "oss": 20}  # of each kind
LATENCY_MS = 2  # so that a writer waits for the store about as much as it works, as writers do


@pytest.fixture(scope="module", params=KILLS)
def server(request):
    settings = Settings(dialect=request.param, latency_ms=LATENCY_MS, least_part_bytes=PART_BYTES)
    with FaultServer.start(settings) as server:
        server.make("bucket")
        yield server


@pytest.fixture(scope="module")
def write(server):
    """Return a function that has an object written, kills the writer after some seconds, and returns how it ended."""
    command = [sys.executable, "-c", "from tests.faults.writer import serve; serve()"]
    environment = os.environ | server.environment | {"BUCKET_URL": f"{server.scheme}://bucket/"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as parent:

        def write(how, key, seconds=0.0):
            parent.stdin.write(f"{how} {key} {seconds}\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        yield write
        parent.stdin.close()


@pytest.mark.parametrize("how", ["put", "multipart"])
def test_a_killed_writer_leaves_the_old_object_or_the_new_one(how, server, write, seed):
    draw, kills = random.Random(seed), KILLS[server.settings.dialect]
    seconds = deque(maxlen=5)  # the latest: the machine may become quicker while this runs
    for number in range(5):
        began = time.monotonic()
        assert write(how, f"{how}-whole-{number}") == 0
        seconds.append(time.monotonic() - began)
    endings = []
    for number in range(10 * kills):
        if number >= kills and (how == "put" or server.uploads("bucket")):
            break  # else the moments have missed uploads so far: by chance, where they are few
        server.put("bucket", f"{how}-{number}", OLD)
        moment = draw.uniform(0.001, 1.2 * statistics.median(seconds))
        began = time.monotonic()
        endings.append(write(how, f"{how}-{number}", moment))
        if endings[-1] == 0:
            seconds.append(time.monotonic() - began)
    found = server.objects("bucket")
    stands = [found[f"{how}-{number}"] for number in range(len(endings))]
    assert set(endings) <= {0, -signal.SIGKILL}
    assert set(stands) <= {OLD, NEW[how]}
    assert endings.count(-signal.SIGKILL) > len(endings) // 4, "hardly a writer was killed while it wrote"
    assert OLD in stands
    assert all(key.startswith(("put-", "multipart-")) for key in found)
    if how == "multipart":
        assert server.uploads("bucket"), "no writer was killed in the middle of an upload"
