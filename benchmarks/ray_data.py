"""``python -m benchmarks.ray_data``: Ray Data over Penstock beside Ray's own readers and checkpoints, at 30 ms.

The server is the fault server, which answers after 30 ms; the cluster has two nodes with a processor each. Both sides
of a comparison take turns in one driver. The state is that of half an epoch: a loader's beside the IDs of all rows that
Ray Data's checkpoints hold.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import penstock as ps
from penstock.testing.faults import FaultServer, Settings
from tests.servers.ray_cluster import RayCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

# Those of the fault server.
KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
_LATE_MS = 30
_OBJECT_BYTES = 50_000
_ROWS = 100_000  # of a Parquet file, with four columns of doubles
# Ray reads one object after another, so it gets a tenth of them.
_SHARE = 10
_PROGRAM = """
import json, pickle, shutil, sys, time
from pathlib import Path
import pyarrow.fs
import ray
import penstock as ps
import penstock.ray
from penstock.interop import arrow
address, endpoint, folder, rounds, rows = sys.argv[1:]
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
store = ps.S3Options(endpoint=endpoint)
theirs = pyarrow.fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1")
found = {}
def took(name, work):
    began = time.perf_counter()
    result = work()
    found.setdefault(name, []).append(time.perf_counter() - began)
    return result
def counted(rows):
    size = lambda batch: {"rows": [batch.num_rows]}
    return rows.map_batches(size, batch_format="pyarrow", batch_size=None).sum("rows")
def samples():
    return counted(penstock.ray.read("s3://bucket/all.catalog", store=store, override_num_blocks=4))
def binary():
    return counted(ray.data.read_binary_files("bucket/few/", filesystem=theirs, override_num_blocks=4))
def ours_parquet():
    return counted(ray.data.read_parquet("bucket/parquet", filesystem=arrow.filesystem("s3", store=store)))
def theirs_parquet():
    return counted(ray.data.read_parquet("bucket/parquet", filesystem=theirs))
counts = {}
for _ in range(int(rounds)):
    for each in (samples, binary, ours_parquet, theirs_parquet):
        counts[each.__name__] = took(each.__name__, each)
assert counts["ours_parquet"] == counts["theirs_parquet"]
# Half of an epoch, and the rest of it.
from ray.data.checkpoint import CheckpointConfig
kept = Path(folder, "checkpoint")
context.checkpoint_config = CheckpointConfig("id", str(kept), delete_checkpoint_on_success=False)
def written():
    ray.data.range(int(rows) // 2, override_num_blocks=4).write_parquet(f"{folder}/out", mode="append")
took("saving", written)
size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
took("restoring", written)
print(json.dumps([counts, found, size]))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what is compared, and which bars are met."""
    parser = argparse.ArgumentParser("python -m benchmarks.ray_data", description=__doc__)
    parser.add_argument("--objects", type=int, default=3000, help="of 50 kB (default %(default)s)")
    parser.add_argument("--files", type=int, default=24, help="of Parquet (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of all sides in turn (default %(default)s)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of an epoch (default %(default)s)")
    options = parser.parse_args(arguments)
    with RayCluster.start(2, KEYS) as cluster:
        measure(cluster, options)


def measure(cluster: RayCluster, options: argparse.Namespace) -> None:
    """Measure on a cluster with the keys in its environment."""
    with FaultServer.start(Settings(latency_ms=_LATE_MS)) as server, tempfile.TemporaryDirectory() as folder:
        _fill(server, options.objects, options.files)
        words = [cluster.address, server.store.endpoint or "", folder, str(options.rounds), str(options.rows)]
        command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, *words]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"failed: {done.stderr[-2000:]}")
    counts, times, theirs_bytes = json.loads(done.stdout.strip().rpartition("\n")[2])
    seconds = {name: median(each) for name, each in times.items()}
    rates = {name: counts[name] / seconds[name] for name in ("samples", "binary")}
    print(f"{_LATE_MS} ms, two workers: penstock.ray.read {rates['samples']:,.0f} objects/s, ", end="")
    print(f"read_binary_files {rates['binary']:,.0f}/s")
    _bar("objects/s beside read_binary_files", rates["samples"] / rates["binary"], 5.0, least=True)
    pairs = zip(times["ours_parquet"], times["theirs_parquet"], strict=True)
    _bar("seconds of read_parquet beside pyarrow's S3", median(ours / theirs for ours, theirs in pairs), 1.0)
    ours_bytes, ours_s = _state(options.rows)
    print(f"half of {options.rows:,} rows | bytes | seconds to restore")
    print(f"loader's state | {ours_bytes:,} | {ours_s:.4f}")
    print(f"Ray Data's checkpoint | {theirs_bytes:,} | {seconds['restoring']:.2f}, a run with nothing left to do")
    _bar("bytes of the loader's state", ours_bytes, 1024)


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
