"""``cached.py TASK``: epochs of 100 KiB objects that a cache has, or that are files; prints objects/s and CPU."""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import penstock as ps
from penstock.testing.faults import FaultServer

SIZE, BATCH, EPOCHS = 100 << 10, 64, 3


def _cached(folder, objects):
    """Return a dataset of a bucket whose objects are all in the cache."""
    with FaultServer.start() as server:
        for number in range(objects):
            server.put("bucket", f"{number:05}", os.urandom(SIZE))
        cache = ps.CacheOptions(path=str(folder / "cache"), size_bytes=2 * objects * SIZE)
        names = ("endpoint", "access_key", "secret_key", "region")
        store = ps.S3Options(**{name: getattr(server.store, name) for name in names}, cache=cache)
        dataset = ps.MapDataset.from_prefix("s3://bucket/", store=store)
        if ps.warm(dataset).fetched != objects:
            raise SystemExit("not all of it was warmed")
        return dataset  # the server is gone: a request would be an error


def _files(folder, objects):
    """Return a dataset of the same files."""
    for number in range(objects):
        (folder / f"{number:05}").write_bytes(os.urandom(SIZE))
    return ps.MapDataset.from_prefix(f"{folder}/")


def _paths(folder, objects):
    """Return batches of what ``open(path).read()`` returns, one file after another."""
    dataset = _files(folder, objects)
    paths = [f"/{entry.key}" for entry in dataset.catalog]

    def read(path):
        with open(path, "rb") as file:
            return file.read()

    return lambda: (list(map(read, paths[at : at + BATCH])) for at in range(0, objects, BATCH))


def main(task):
    """Measure after an epoch that nobody measures."""
    with tempfile.TemporaryDirectory() as folder:
        made = {"cached": _cached, "files": _files, "open": _paths}[task["kind"]](Path(folder), task["objects"])
        epochs = made if callable(made) else lambda: made.batched(BATCH)
        for _ in epochs():
            pass
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found = sum(len(batch) for _ in range(EPOCHS) for batch in epochs())
        wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    if found != EPOCHS * task["objects"]:
        raise SystemExit(f"{found} samples")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"wall_s": wall_s, "objects_a_second": found / wall_s, "cpu_us": cpu_s / found * 1e6}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
