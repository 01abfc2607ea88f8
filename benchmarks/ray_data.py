"""``python -m benchmarks.ray_data``: Ray Data over Penstock beside Ray's own readers and checkpoints, at 30 ms.

The server is the fault server, which answers after 30 ms; the cluster has two nodes with a processor each. Both sides
of a comparison take turns in one driver, and all processes keep compiled modules, as those of installed packages do.
The state is that of half an epoch: a loader's beside the IDs of all rows that Ray Data's checkpoints hold. Last, a
checkpoint goes to the load server by ``ps.save``, and by the file systems that Ray Train's ``storage_filesystem=``
takes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

import penstock as ps
from benchmarks.objects import BUCKET
from benchmarks.server import install, serve
from penstock.interop import arrow
from penstock.testing.faults import FaultServer, Settings
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

# Those of the fault server.
KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
_LATE_MS = 30
# Of Ray's download().
_CLIENT = "obstore" if find_spec("obstore") else "threads, for obstore is not installed"
_OBJECT_BYTES = 50_000
_CHUNK_BYTES = 64 << 20  # Ray Train's
_ROWS = 100_000  # of a Parquet file, with four columns of doubles
# Ray reads one object after another, so it gets a tenth of them.
_SHARE = 10
_PROGRAM = """
import json, os, sys, time
from pathlib import Path
import pyarrow.fs
import ray
from ray.data.expressions import download
import penstock as ps
import penstock.ray
from penstock.interop import arrow
from tests.servers.ray_cluster import RayCluster
address, endpoint, folder, rounds, rows, objects = sys.argv[1:]
cluster = RayCluster(None, address, os.environ)
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
store = ps.S3Options(endpoint=endpoint)
theirs = pyarrow.fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1")
found = {}
def took(name, work):
    before_s, began, cpu_s = cluster.cpu_s(), time.perf_counter(), time.process_time()
    result = work()
    wall_s, spent_s = time.perf_counter() - began, time.process_time() - cpu_s
    spent_s += sum(each - before_s.get(pid, 0) for pid, each in cluster.cpu_s().items())
    found.setdefault(name, []).append([wall_s, spent_s])
    return result
def counted(rows):
    size = lambda batch: {"rows": [batch.num_rows]}
    # Not Ray's sum: its aggregators are actors, for which each run would wait some 5 s.
    return sum(each["rows"] for each in rows.map_batches(size, batch_format="pyarrow", batch_size=None).take_all())
def samples():
    return counted(penstock.ray.read("s3://bucket/all.catalog", store=store, override_num_blocks=4))
def downloads():
    uris = [{"uri": f"s3://bucket/objects/{number:06}"} for number in range(int(objects))]
    rows = ray.data.from_items(uris, override_num_blocks=4)
    return counted(rows.with_column("bytes", download("uri", filesystem=theirs)))
def binary():
    return counted(ray.data.read_binary_files("bucket/few/", filesystem=theirs, override_num_blocks=4))
def ours_parquet():
    return counted(ray.data.read_parquet("bucket/parquet", filesystem=arrow.filesystem("s3", store=store)))
def theirs_parquet():
    return counted(ray.data.read_parquet("bucket/parquet", filesystem=theirs))
counts = {}
# What workers import once.
samples(), downloads()
works = [samples, downloads, binary, ours_parquet, theirs_parquet]
for _ in range(int(rounds)):
    for each in works:
        counts[each.__name__] = took(each.__name__, each)
    # Ray starts new workers for some, and those that follow find them warm.
    works.reverse()
assert counts["ours_parquet"] == counts["theirs_parquet"]
assert counts["samples"] == counts["downloads"]
# Half of an epoch, and the rest of it.
from ray.data.checkpoint import CheckpointConfig
kept = Path(folder, "checkpoint")
context.checkpoint_config = CheckpointConfig("id", str(kept), delete_checkpoint_on_success=False)
def written():
    ray.data.range(int(rows) // 2, override_num_blocks=4).write_parquet(f"{folder}/out", mode="append")
took("saving", written)
size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
took("restoring", written)
# Not printed: Ray prints, too.
Path(folder, "found.json").write_text(json.dumps([counts, found, size]))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what is compared, and which bars are met."""
    parser = argparse.ArgumentParser("python -m benchmarks.ray_data", description=__doc__)
    parser.add_argument("--objects", type=int, default=3000, help="of 50 kB (default %(default)s)")
    parser.add_argument("--files", type=int, default=24, help="of Parquet (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all sides in turn (default %(default)s)")
    parser.add_argument("--mib", type=int, default=512, help="of a checkpoint (default %(default)s)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of an epoch (default %(default)s)")
    options = parser.parse_args(arguments)
    install()
    # Ray starts new workers all the time, and each would compile Penstock for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with RayCluster.start(2, KEYS) as cluster:
        measure(cluster, options)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "data").mkdir()
        with serve(Path(folder)) as server:
            measure_saving(server.plain, Path(folder), options)


def measure(cluster: RayCluster, options: argparse.Namespace) -> None:
    """Measure on a cluster with the keys in its environment."""
    with FaultServer.start(Settings(latency_ms=_LATE_MS)) as server, tempfile.TemporaryDirectory() as folder:
        _fill(server, options.objects, options.files)
        words = [cluster.address, server.store.endpoint or "", folder, str(options.rounds), str(options.rows)]
        words.append(str(options.objects))
        command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, *words]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"failed: {done.stderr[-2000:]}")
        counts, times, theirs_bytes = json.loads(Path(folder, "found.json").read_text())
    seconds = {name: median(wall_s for wall_s, _ in each) for name, each in times.items()}
    rates = {name: counts[name] / seconds[name] for name in ("samples", "downloads", "binary")}
    print(f"{_LATE_MS} ms, two workers: penstock.ray.read {rates['samples']:,.0f} objects/s, ", end="")
    print(f"download() with {_CLIENT} {rates['downloads']:,.0f}/s, read_binary_files {rates['binary']:,.0f}/s")
    _bar("objects/s beside read_binary_files", rates["samples"] / rates["binary"], 5.0, least=True)
    wall, cpu = (_ratio(times["samples"], times["downloads"], at) for at in (0, 1))
    _bar("objects/s beside download()", 1 / wall, 1.0, least=True)
    _bar("CPU seconds beside download()", cpu, 0.6)
    parquet_s = _ratio(times["ours_parquet"], times["theirs_parquet"], 0)
    _bar("seconds of read_parquet beside pyarrow's S3", parquet_s, 1.0)
    ours_bytes, ours_s = _state(options.rows)
    print(f"half of {options.rows:,} rows | bytes | seconds to restore")
    print(f"loader's state | {ours_bytes:,} | {ours_s:.4f}")
    print(f"Ray Data's checkpoint | {theirs_bytes:,} | {seconds['restoring']:.2f}, a run with nothing left to do")
    _bar("bytes of the loader's state", ours_bytes, 1024)


def measure_saving(endpoint: str, folder: Path, options: argparse.Namespace) -> None:
    """Save a checkpoint by ``ps.save``, and its file as Ray Train does; ``folder`` is that of the load server."""
    state = {"weights": torch.randint(1 << 62, (options.mib << 17,))}
    torch.save(state, folder / "state.pt")
    store = ps.S3Options(endpoint=endpoint, access_key="any", secret_key="any", region="us-east-1")
    theirs = S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", access_key="any", secret_key="any"
    )
    to, local = f"{BUCKET}/written", LocalFileSystem()
    # Ray's own copy leaves out threads with pyarrow's S3, for pyarrow blocks with them.
    ways = {
        "ps.save": lambda name: ps.save(state, f"s3://{to}/{name}", store=store),
        "storage_filesystem, ours": lambda name: copy_files(
            f"{folder}/state.pt", f"{to}/{name}", local, arrow.filesystem("s3", store=store), chunk_size=_CHUNK_BYTES
        ),
        "storage_filesystem, pyarrow's S3": lambda name: copy_files(
            f"{folder}/state.pt", f"{to}/{name}", local, theirs, chunk_size=_CHUNK_BYTES, use_threads=False
        ),
    }
    times: dict[str, list[list[float]]] = {}
    for number in range(options.rounds):
        for way, save in ways.items():
            began, cpu_s = time.perf_counter(), time.process_time()
            save(f"{number}{len(way)}")
            times.setdefault(way, []).append([time.perf_counter() - began, time.process_time() - cpu_s])
            for each in (folder / "put").iterdir():
                shutil.rmtree(each)
    print(f"checkpoint of {options.mib} MiB | MiB/s | CPU seconds")
    for way, each in times.items():
        wall_s, spent_s = (median(numbers) for numbers in zip(*each, strict=True))
        print(f"{way:<32} | {options.mib / wall_s:6,.0f} | {spent_s:.2f}")
    ours = times["storage_filesystem, ours"]
    _bar("rate of storage_filesystem beside ps.save", 1 / _ratio(ours, times["ps.save"], 0), 0.8, least=True)
    beside = times["storage_filesystem, pyarrow's S3"]
    print(f"seconds of storage_filesystem beside pyarrow's S3: {_ratio(ours, beside, 0):.2f}")


def _ratio(ours: list[list[float]], theirs: list[list[float]], at: int) -> float:
    """Return the median of one number of each round, ours beside theirs."""
    return median(mine[at] / their[at] for mine, their in zip(ours, theirs, strict=True))


def _fill(server: FaultServer, objects: int, files: int) -> None:
    server.make("bucket")
    body = bytes(_OBJECT_BYTES)
    for number in range(objects):
        server.put("bucket", f"objects/{number:06}", body)
        if not number % _SHARE:
            server.put("bucket", f"few/{number:06}", body)
    for number in range(files):
        values = np.random.default_rng(number).random((4, _ROWS))
        file = io.BytesIO()
        parquet.write_table(pa.table(dict(zip("abcd", values, strict=True))), file, row_group_size=_ROWS // 4)
        server.put("bucket", f"parquet/{number:03}.parquet", file.getvalue())
    ps.Catalog.scan("s3://bucket/objects/", store=server.store).save("s3://bucket/all.catalog", store=server.store)


def _state(rows: int) -> tuple[int, float]:
    """Return the bytes of a position in the middle of an epoch, and the seconds from there to the next batch."""

    def sampler() -> ps.BatchSampler:
        return ps.BatchSampler(range(rows), batch_size=100, shuffle=True)

    state = json.dumps(sampler().state_at(rows // 200, epoch=0))
    began, again = time.perf_counter(), sampler()
    again.load_state_dict(json.loads(state))
    next(iter(again))
    return len(state), time.perf_counter() - began


def _bar(name: str, value: float, bound: float, *, least: bool = False) -> None:
    met = value >= bound if least else value <= bound
    print(f"{name}: {value:,.2f} (bar {bound:g}, {'met' if met else 'missed'})")


if __name__ == "__main__":
    main()
