"""A user's program on the system of ``sitecustomize``: files, a web server, workers, the cache, a checkpoint, commands.

    python training.py FOLDER URL

``URL`` is a bucket of a server that needs the environment's credentials.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import torch

import penstock as ps
from penstock.engine.node.member import processors

COUNT = 24


def batches(dataset, workers: int) -> list[list[str]]:
    loader = ps.DataLoader(dataset, batch_size=4, shuffle=True, seed=3, num_workers=workers)
    found = [[sample.key for sample in batch] for batch in loader]
    # The counters of spawned workers lie in memory that they share.
    assert loader.stats().total.requests == COUNT, loader.stats()
    assert loader.report().requests == COUNT
    return found


def main(folder: str, url: str) -> None:
    assert sys.platform == "darwin"
    assert not hasattr(os, "memfd_create")
    assert multiprocessing.get_start_method() == "spawn"
    assert processors() == os.cpu_count()
    assert ps.cache.open_cache(ps.CacheOptions(path=f"{folder}/cache")).usage().stored_bytes == 0

    for root in (f"{folder}/data/", f"{url}data/"):
        for number in range(COUNT):
            with ps.open(f"{root}{number:03}", "wb") as file:
                file.write(bytes([number]) * 100)
    threads = batches(ps.MapDataset.from_prefix(f"{folder}/data/"), 0)
    spawned = batches(ps.MapDataset.from_prefix(f"{url}data/"), 2)
    assert [[key.rpartition("/")[2] for key in batch] for batch in threads] == [
        [key.rpartition("/")[2] for key in batch] for batch in spawned
    ]
    for _ in range(2):
        cached = ps.S3Options(cache=ps.CacheOptions(path=f"{folder}/cache"))
        samples = ps.MapDataset.from_prefix(f"{url}data/", store=cached).__getitems__(range(COUNT))
        assert [sample.data[0] for sample in samples] == [*range(COUNT)]
    assert ps.cache.open_cache(ps.CacheOptions(path=f"{folder}/cache")).usage().stored_bytes > 0

    ps.save({"weight": torch.arange(1000)}, f"{url}state.pt")
    assert torch.equal(ps.load(f"{url}state.pt")["weight"], torch.arange(1000))
    command = [sys.executable, "-m", "penstock"]
    subprocess.run([*command, "cp", "-r", f"{url}data/", f"{folder}/copy/"], check=True, capture_output=True)
    assert len([*Path(folder, "copy").iterdir()]) == COUNT


if __name__ == "__main__":
    main(*sys.argv[1:])
