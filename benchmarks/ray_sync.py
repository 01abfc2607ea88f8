"""``python -m benchmarks.ray_sync``: ``ps.sync`` on a Ray cluster of two nodes beside Multi-Storage Client's Ray sync.

Both copy a directory into a bucket of the load server (nginx), each on a cluster with its own environment, in turn. The
time is that of the call: drivers are connected, and workers have imported what they need. CPU seconds are those of the
driver and of the cluster.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.environments import python
from benchmarks.jobs import KEYS, emptied, fill, timed
from benchmarks.kills import STEERING, THEIRS, profile
from benchmarks.server import FILES, install, serve
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Side", "main", "measure", "ours"]

_NODES = 2
_BAR = 3.0
_FRAME = """
import json, os, sys, time
import ray
address, endpoint, source, job, part_objects = sys.argv[1:]
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
def warm():
    import {module}
    time.sleep(0.3)
warm()
ray.get([ray.remote(warm).options(scheduling_strategy="SPREAD").remote() for _ in range(8)])
print("ready", flush=True)
sys.stdin.readline()
# For the bar of the other.
sys.stdout = open(os.devnull, "w")
began, cpu_s = time.perf_counter(), time.process_time()
{call}
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu_s]), file=sys.__stdout__, flush=True)
sys.stdin.readline()
"""
_OURS = _FRAME.format(
    module="penstock.jobs.syncing.job",
    call=f"""import penstock as ps
how = {{"job": job, "part_objects": int(part_objects), "store": ps.S3Options(endpoint=endpoint)}}
ps.sync(source, "s3://{FILES}/to/", on=ps.Ray(address), **how)""",
)
_THEIR = _FRAME.format(
    module="multistorageclient.sync.worker",
    call="""import multistorageclient as msc
from multistorageclient.types import ExecutionMode
msc.sync(source, "msc://bucket/to/", execution_mode=ExecutionMode.RAY)""",
)


class Side(NamedTuple):
    """A sync: its name, its cluster and interpreter, and its program."""

    name: str
    cluster: RayCluster
    interpreter: str
    program: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table and whether the bar is met."""
    parser = argparse.ArgumentParser("python -m benchmarks.ray_sync", description=__doc__)
    parser.add_argument("--objects", type=int, default=6000, help="of 100 KiB (default %(default)s)")
    parser.add_argument("--part-objects", type=int, default=500, help="of a part of ours (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of both sides in turn (default %(default)s)")
    options = parser.parse_args(arguments)
    install()
    interpreter = python(THEIRS)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        settings = folder / "msc.json"
        theirs = {**KEYS, **STEERING, "MSC_CONFIG": str(settings)}
        with (
            serve(folder) as server,
            RayCluster.start(_NODES, KEYS) as cluster,
            RayCluster.start(_NODES, theirs, interpreter) as other,
        ):
            settings.write_text(profile(server.plain, FILES))
            sides = ours(cluster), Side("multi-storage-client", other, interpreter, _THEIR)
            measure(sides, server.plain, folder, options)


def ours(cluster: RayCluster) -> Side:
    """Return our side, on a cluster with keys in its environment."""
    return Side("penstock", cluster, sys.executable, _OURS)


def measure(sides: Sequence[Side], endpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Measure the sides in turn, the first one beside the last; ``folder`` is that of the server at ``endpoint``."""
    found: dict[str, list[tuple[float, float]]] = {}
    fill(folder / "from", options.objects)
    for number in range(options.rounds):
        for side in sides:
            program = [side.interpreter, "-W", "ignore", "-c", side.program, side.cluster.address, endpoint]
            words = [f"{folder}/from", f"{folder}/job", str(options.part_objects)]
            found.setdefault(side.name, []).append(timed(side.cluster, [[*program, *words]]))
            shutil.rmtree(folder / "job", ignore_errors=True)
            emptied(folder)
            print(f"{number + 1}  {side.name:<22}{found[side.name][-1][0]:7.2f} s", flush=True)
    print(f"\n{options.objects:,} objects of 100 KiB, on two nodes | seconds | CPU seconds | objects/s")
    for name, times in found.items():
        wall_s, spent_s = (median(each) for each in zip(*times, strict=True))
        print(f"{name:<44} | {wall_s:7.2f} | {spent_s:11.2f} | {options.objects / wall_s:9,.0f}")
    first, last = (found[side.name] for side in (sides[0], sides[-1]))
    ratio = median(their[0] / mine[0] for mine, their in zip(first, last, strict=True))
    print(f"{sides[-1].name}'s seconds beside ours: {ratio:.2f} (bar {_BAR:g}, {'met' if ratio >= _BAR else 'missed'})")


if __name__ == "__main__":
    main()
