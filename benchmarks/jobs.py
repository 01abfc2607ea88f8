"""``python -m benchmarks.jobs``: jobs in parts on a Ray cluster of two nodes, beside as many processes of this machine.

The server is the load server (nginx). Both sides do the same parts of the same plan, after their processes have
started; CPU seconds are those of all their processes: for Ray the raylets and the driver, too. Then 10,000 parts that
do nothing: what the driver takes for each, and how long a driver that goes on with the last thousand takes to begin;
and the driver's memory for few keys and for many.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import penstock as ps
from benchmarks.server import FILES, install, serve
from tests.servers.made_up import listing
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

_OBJECT_BYTES = 100 << 10
_PER_FOLDER = 500
_NODES = 2
KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}
# Copies a tree, or a share of its parts; prints the seconds and CPU seconds of the call, without imports.
_COPY = """
import json, os, sys, time
import penstock as ps
endpoint, address, share, source, dest, job, part_objects = sys.argv[1:]
on = None
if address:
    import ray
    from benchmarks.jobs import warm
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    ray.get([ray.remote(warm).options(scheduling_strategy="SPREAD").remote() for _ in range(8)])
    on = ps.Ray(address=address)
print("ready", flush=True)
sys.stdin.readline()
began, cpu_s = time.perf_counter(), time.process_time()
how = {"part_objects": int(part_objects), "store": ps.S3Options(endpoint=endpoint)}
done = ps.copy_tree(source, dest, job=job, part=share or None, on=on, **how)
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu_s]), flush=True)
# Ray's workers end with their driver, and are looked at before.
sys.stdin.readline()
"""
# Parts that do nothing, and then the last ones again: prints seconds to the first part, both times, and CPU seconds.
_NOTHING = """
import json, sys, time
from pathlib import Path
import penstock as ps
from penstock.jobs.parts.run import Job, JobOptions
from tests.jobs.parts.nothing import Nothing
address, folder, parts = sys.argv[1:]
import ray
def worked():
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    began, cpu_s = time.perf_counter(), time.process_time()
    job = Job(Nothing(int(parts)), folder, JobOptions(on=ps.Ray(address=address)))
    carried, first_s = job._carrier.carried, []
    def noted(*given):
        for ended in carried(*given):
            first_s.append(time.perf_counter() - began)
            yield ended
    job._carrier.carried = noted
    job.work()
    # The next one has new workers, as another driver has.
    ray.shutdown()
    return first_s[0], time.process_time() - cpu_s
first_s, cpu_s = worked()
for path in sorted(Path(folder, "done").rglob("*.json"))[-max(1, int(parts) // 10):]:
    path.unlink()
print(json.dumps([first_s, worked()[0], cpu_s]))
"""
# Two trees of made-up objects are compared, whose keys only the listings have; prints their number and the MiB it took.
_MEMORY = """
import resource, sys
import penstock as ps
address, endpoint, job = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint, anonymous=True, region="us-east-1")
found = ps.verify("s3://bucket/one/", "s3://bucket/two/", store=store, job=job, on=ps.Ray(address))
print(found.objects, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def warm() -> None:
    """Import what a part imports, and take a moment, so that each worker does."""
    import penstock.jobs.syncing.job  # noqa: F401

    time.sleep(0.3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables and which bars are met."""
    parser = argparse.ArgumentParser("python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="of 100 KiB (default %(default)s)")
    parser.add_argument("--part-objects", type=int, default=500, help="of a part (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of both sides in turn (default %(default)s)")
    parser.add_argument("--parts", type=int, default=10_000, help="that do nothing (default %(default)s)")
    parser.add_argument("--keys", type=int, nargs=2, default=(10_000, 1_000_000), help="for the driver's memory")
    options = parser.parse_args(arguments)
    install()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        with serve(folder) as server, RayCluster.start(_NODES, KEYS) as cluster:
            measure(cluster, server.plain, folder, options)


def measure(cluster: RayCluster, endpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Measure on a cluster with the keys in its environment; ``folder`` is that of the server at ``endpoint``."""
    found: dict[str, list[tuple[float, float]]] = {}
    fill(folder / "from", options.objects)
    for number in range(options.rounds):
        for side in ("local", "ray"):
            words = [endpoint, cluster.address if side == "ray" else ""]
            found.setdefault(side, []).append(_copied(cluster, folder, words, options.part_objects))
            print(f"{number + 1}  {side:<8}{found[side][-1][0]:7.2f} s", flush=True)
    first_s, again_s, cpu_s = json.loads(_run(cluster, _NOTHING, f"{folder}/nothing", str(options.parts)))
    memory = [driver_mib(cluster, folder, number) for number in options.keys]
    print(f"\n{options.objects:,} objects of 100 KiB, two processes | seconds | CPU seconds | MB/s")
    for side, times in found.items():
        wall_s, spent_s = (median(each) for each in zip(*times, strict=True))
        rate = options.objects * _OBJECT_BYTES / wall_s / 1e6
        print(f"{side:<42} | {wall_s:7.2f} | {spent_s:11.2f} | {rate:7,.0f}")
    ratios = [median(a[at] / b[at] for a, b in zip(found["ray"], found["local"], strict=True)) for at in (0, 1)]
    _bar("wall seconds, Ray beside local", ratios[0], 1.15)
    _bar("CPU seconds, Ray beside local", ratios[1], 1.15)
    print(f"{options.parts:,} parts that do nothing: {first_s:.2f} s to the first")
    _bar("milliseconds of the driver's CPU for each part", 1000 * cpu_s / options.parts, 5.0)
    _bar("seconds to the first new part of a driver that goes on", again_s, 5.0)
    print(f"MiB of the driver at {options.keys[0]:,} keys {memory[0]}, at {options.keys[1]:,} {memory[1]}")
    _bar("MiB more for more keys", memory[1] - memory[0], 50.0)


def driver_mib(cluster: RayCluster, folder: Path, keys: int) -> int:
    """Return the memory of a driver that compares trees of so many keys."""
    with listing(keys) as endpoint:
        objects, mib = map(int, _run(cluster, _MEMORY, endpoint, f"{folder}/memory-{keys}").split())
    if objects != keys:
        raise SystemExit(f"{objects} of {keys} objects were compared")
    return mib


def _bar(name: str, value: float, most: float) -> None:
    print(f"{name}: {value:.2f} (bar {most:g}, {'met' if value <= most else 'missed'})")


def fill(tree: Path, count: int) -> None:
    """Write objects of 100 KiB, some hundred in a folder, of yesterday."""
    draw, old = random.Random(0), time.time() - 86_400
    for number in range(count):
        path = tree / f"{number // _PER_FOLDER:03}" / f"{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(_OBJECT_BYTES))
        os.utime(path, (old, old))


def _copied(cluster: RayCluster, folder: Path, words: Sequence[str], part_objects: int) -> tuple[float, float]:
    """Copy on one side; return the seconds of the slowest process, and the CPU seconds of all."""
    endpoint, address = words
    places = f"{folder}/from", f"s3://{FILES}/to/", f"{folder}/job"
    shares = [""] if address else [f"{number + 1}/{_NODES}" for number in range(_NODES)]
    # The plan is made before, for both: a share without parts makes it.
    store = ps.S3Options(endpoint=endpoint, anonymous=True)
    ps.copy_tree(*places[:2], job=places[2], part="1000000/1000000", part_objects=part_objects, store=store)
    program = [sys.executable, "-W", "ignore", "-c", _COPY, *words]
    found = timed(cluster, [[*program, share, *places, str(part_objects)] for share in shares])
    shutil.rmtree(folder / "job")
    emptied(folder)
    return found


def timed(cluster: RayCluster, commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Run drivers that say when they are ready; return the seconds of the slowest, and the CPU seconds of all.

    Each waits for a line, prints its seconds and CPU seconds, and ends at another line.
    """
    processes = [
        subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=cluster.env)
        for each in commands
    ]
    for each in processes:
        assert each.stdout is not None
        each.stdout.readline()
    before_s = cluster.cpu_s()
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    told = [json.loads(each.stdout.readline()) for each in processes if each.stdout is not None]
    spent_s = sum(cpu_s for _, cpu_s in told)
    # Of an idle cluster, a few hundredths.
    spent_s += sum(each - before_s.get(pid, 0.0) for pid, each in cluster.cpu_s().items())
    for each in processes:
        each.communicate("\n")
    return max(wall_s for wall_s, _ in told), spent_s


def emptied(folder: Path) -> None:
    """Check that all objects have arrived, and delete them."""
    if len([*(folder / FILES / "to").rglob("*.bin")]) != len([*(folder / "from").rglob("*.bin")]):
        raise SystemExit("not all of it arrived")
    shutil.rmtree(folder / FILES / "to")


def _run(cluster: RayCluster, program: str, *words: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, cluster.address, *words]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"failed: {done.stderr[-2000:]}")
    return done.stdout.strip().rpartition("\n")[2]


if __name__ == "__main__":
    main()
