"""``python -m benchmarks.kills``: syncs on a Ray cluster whose workers, machines and drivers are killed: what is lost.

Beside ours, the Ray sync of Multi-Storage Client, by the same random kills, in a bucket of the fault server. A call
that has ended well while objects are missing has lost them without a word. One that has failed, or has not ended, or
whose driver was killed, is made again once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.environments import python
from penstock.testing.faults import FaultServer, Settings
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KINDS", "STEERING", "THEIRS", "main", "measure", "ours", "profile"]

KINDS = ("worker", "machine", "driver")
_KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
THEIRS = "ray==2.60.0 multi-storage-client[boto3]==1.3.1"
# As many processes as the cluster has processors, of which each of their threads takes one.
STEERING = {"MSC_NUM_PROCESSES": "2", "MSC_NUM_THREADS_PER_PROCESS": "1"}
_LATE_MS = 20
# As many objects as a batch of the other has.
_OURS_PROGRAM = """
import sys
import penstock as ps
address, endpoint, dest = sys.argv[1:]
how = {"job": f"s3://bucket/jobs/{dest}/", "part_objects": 32, "on": ps.Ray(address=address)}
ps.sync("s3://bucket/from/", f"s3://bucket/{dest}/", store=ps.S3Options(endpoint=endpoint), **how)
"""
_THEIR_PROGRAM = """
import sys
import ray
address, endpoint, dest = sys.argv[1:]
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
import multistorageclient as msc
from multistorageclient.types import ExecutionMode
msc.sync("msc://bucket/from/", f"msc://bucket/{dest}/", execution_mode=ExecutionMode.RAY)
"""


class Side(NamedTuple):
    """A sync that is killed: name, cluster and its interpreter, program, and what processes of its tasks are called."""

    name: str
    cluster: RayCluster
    interpreter: str
    program: str
    task: str


class _Ended(NamedTuple):
    """How a call ended, and how many objects are missing then."""

    how: str
    missing: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Kill, and print what was lost."""
    parser = argparse.ArgumentParser("python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--objects", type=int, default=960, help="of some 200 bytes (default %(default)s)")
    parser.add_argument("--histories", type=int, default=10, help="of each kind of kill (default %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what is killed, and when")
    parser.add_argument("--longest", type=int, default=60, help="seconds, after which a call has not ended")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of what is killed (default: all)")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    with FaultServer.start(Settings(latency_ms=_LATE_MS)) as server, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "msc.json")
        settings.write_text(profile(server.store.endpoint or "", "bucket"))
        with RayCluster.start(2, _KEYS) as cluster:
            measure(ours(cluster), server, options)
        interpreter = python(THEIRS)
        with RayCluster.start(2, {**_KEYS, **STEERING, "MSC_CONFIG": str(settings)}, interpreter) as cluster:
            side = Side("multi-storage-client", cluster, interpreter, _THEIR_PROGRAM, "sync_worker_process")
            measure(side, server, options)


def ours(cluster: RayCluster) -> Side:
    """Return our side, on a cluster with the server's keys."""
    return Side("penstock", cluster, sys.executable, _OURS_PROGRAM, "penstock.sync")


def profile(endpoint: str, bucket: str) -> str:
    """Return a configuration of Multi-Storage Client that names a bucket of a server ``bucket``."""
    options = {"base_path": bucket, "endpoint_url": endpoint, "region_name": _KEYS["AWS_REGION"]}
    return json.dumps({"profiles": {"bucket": {"storage_provider": {"type": "s3", "options": options}}}})


def measure(side: Side, server: FaultServer, options: argparse.Namespace) -> None:
    """Run the histories of one side, and print what became of them."""
    for number in range(options.objects):
        server.put("bucket", f"from/{number % 7}/{number:05}", b"%d" % number * 40)
    print(f"{side.name}, {options.objects:,} objects | killed | ended well, but for missing objects | failed ", end="")
    print("| did not end | missing in the end")
    for kind in options.kinds:
        draw = random.Random(f"{options.seed} {kind}")
        names = (f"{side.name}-{kind}-{number}" for number in range(options.histories))
        found = [calls for dest in names if (calls := _history(side, server, dest, draw, options))]
        # The call of a driver that is killed cannot end well.
        calls = [each for history in found for each in history[kind == "driver" :]]
        hows = Counter(each.how for each in calls)
        silent = [each.missing for each in calls if each.how == "well" and each.missing]
        last = [history[-1].missing for history in found if history[-1].missing]
        cells = len(found), f"{len(silent)} {silent}", hows["failed"], hows["hung"], f"{len(last)} {last}"
        print(f"{kind:<8}", *cells, sep=" | ", flush=True)


def _history(
    side: Side, server: FaultServer, dest: str, draw: random.Random, options: argparse.Namespace
) -> list[_Ended]:
    """Sync, kill, and sync again if that is asked for; return the calls, none if it had ended before the kill."""
    kind, wanted = dest.split("-")[-2], draw.randrange(options.objects // 10, options.objects * 8 // 10)
    process = _driver(side, server, dest)
    while _made(server, dest) < wanted and process.poll() is None:
        time.sleep(0.02)
    if not _killed(side, kind, process, draw):
        process.kill()
        process.communicate()
        return []
    calls = [_Ended(_how(process, options.longest), options.objects - _made(server, dest))]
    if calls[0].how != "well":
        again = _how(_driver(side, server, dest), options.longest)
        calls.append(_Ended(again, options.objects - _made(server, dest)))
    return calls


def _driver(side: Side, server: FaultServer, dest: str) -> subprocess.Popen[bytes]:
    words = [
        side.interpreter,
        "-W",
        "ignore",
        "-c",
        side.program,
        side.cluster.address,
        server.store.endpoint or "",
        dest,
    ]
    return subprocess.Popen(words, env=side.cluster.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _how(process: subprocess.Popen[bytes], longest_s: int) -> str:
    try:
        return "well" if process.wait(longest_s) == 0 else "failed"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "hung"


def _made(server: FaultServer, dest: str) -> int:
    """Return how many objects are at the destination as they are at the source."""
    found = server.objects("bucket")
    return sum(found.get(f"{dest}/{key[5:]}") == data for key, data in found.items() if key.startswith("from/"))


def _killed(side: Side, kind: str, process: subprocess.Popen[bytes], draw: random.Random) -> bool:
    """Kill a worker at its task, a raylet, which is replaced, or the driver; return whether there was one."""
    if process.poll() is not None:
        return False
    if kind == "driver":
        process.kill()
        return True
    while not (pids := side.cluster.workers(side.task) if kind == "worker" else side.cluster.raylets()[1:]):
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.kill(draw.choice(pids), signal.SIGKILL)
    if kind == "machine":
        side.cluster.add_node()
    return True


if __name__ == "__main__":
    main()
