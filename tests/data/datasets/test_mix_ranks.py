"""Ranks of real process groups on a mixture: killed, gone on from with others, refused where they differ."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from itertools import chain, islice, zip_longest

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from penstock.errors import StateMismatch
from tests.data.datasets.ranks import free_port, ranks
from tests.data.shards.archives import tar

SIZES = {"objects": 30, "shards": 18, "added": 8}
BATCH, SAVED_EVERY, KILLED_AT = 12, 2, 5
BEFORE = {"objects": 2, "shards": 1}
AFTER = {"objects": 1, "shards": 3, "added": 2}


@pytest.fixture
def folder(tmp_path):
    """Make objects in two folders, and shards."""
    for name in ("objects", "added"):
        (tmp_path / name).mkdir()
        for number in range(SIZES[name]):
            (tmp_path / name / f"{number:03}").write_bytes(b"x")
    (tmp_path / "shards").mkdir()
    for shard in range(2):
        members = [(f"{shard}{at:02}.bin", b"x") for at in range(SIZES["shards"] // 2)]
        (tmp_path / "shards" / f"{shard}.tar").write_bytes(tar(members))
    return tmp_path


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


def draw(sample):
    return sample.source, sample.key.rpartition("/")[2]


def source(folder, name):
    make = ps.MapDataset.from_shards if name == "shards" else ps.MapDataset.from_prefix
    return make(f"{folder}/{name}/", transform=draw)


def loader_of(folder, weights, world):
    mix = ps.Mix({name: source(folder, name) for name in weights}, weights=weights, epoch_samples=6 * BATCH)
    return ps.DataLoader(mix, BATCH // world, shuffle=True, collate_fn=list)


def train(folder, run, weights, steps, killed_at=None):
    """Train by DDP; write each batch after its step, and the state now and then. Rank 1 may kill itself."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    loader = loader_of(folder, weights, world)
    saved = folder / "state"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()), new_weights=True)
    step = 0
    with (folder / f"{run}-{rank}").open("w") as file:
        while step < steps:
            for batch in loader:
                step += 1
                # Waits for the other ranks' gradients.
                model(torch.ones(len(batch), 1)).sum().backward()
                file.write(json.dumps(batch) + "\n")
                file.flush()
                if rank == 0 and killed_at and not step % SAVED_EVERY:
                    saved.with_suffix(".new").write_text(json.dumps(loader.state_dict()))
                    saved.with_suffix(".new").rename(saved)
                if rank == 1 and step == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == steps:
                    break


def global_batches(folder, run):
    rows = [map(json.loads, path.read_text().splitlines()) for path in sorted(folder.glob(f"{run}-*"))]
    return [[tuple(each) for part in parts for each in part] for parts in zip_longest(*rows, fillvalue=[])]


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 3)])
def test_killed_run_continues_on_other_ranks_with_changed_mixture_and_no_draw_lost(folder, first, second):
    address = f"file://{folder}/store"
    died = ranks(first, address + "1", train, folder, "first", BEFORE, 12, KILLED_AT)
    assert died[1] is None
    saved = json.loads((folder / "state").read_text())
    steps = saved["position"] // BATCH
    assert (saved["epoch"], steps) == (0, KILLED_AT // SAVED_EVERY * SAVED_EVERY)
    assert ranks(second, address + "2", train, folder, "second", AFTER, 10) == [None] * second

    # Batches after the state come again: they belong to no checkpoint.
    before, after = global_batches(folder, "first")[:steps], global_batches(folder, "second")
    assert (len(before), len(after)) == (steps, 10)
    counts = Counter()
    for batch in before + after:
        counts.update(batch)
        for name, size in SIZES.items():
            drawn = [count for (own, _), count in counts.items() if own == name]
            # A prefix of the source's epochs, one after another.
            assert max(drawn, default=0) - (min(drawn) if len(drawn) == size else 0) <= 1, name
    shares = Counter(name for batch in after for name, _ in batch)
    assert shares == {name: 10 * weight * BATCH // 6 for name, weight in AFTER.items()}

    alone = loader_of(folder, BEFORE, 1)
    assert [sorted(batch) for batch in islice(alone, steps)] == [*map(sorted, before)]
    alone = loader_of(folder, AFTER, 1)
    alone.load_state_dict(saved, new_weights=True)
    rest = [*chain(alone, alone, alone)][: len(after)]
    assert [*map(sorted, rest)] == [*map(sorted, after)]


def different(folder, *weights):
    """Begin to iterate on one rank with its own weights; return what that raised."""
    loader = loader_of(folder, weights[dist.get_rank()], dist.get_world_size())
    try:
        return len(next(iter(loader)))
    except StateMismatch as error:
        return error


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"objects": 2, "shards": 2}, "weights={'objects': 0.5, 'shards': 0.5}"),
        ({"objects": 2, "added": 1}, "sources=['objects', 'added']"),
        ({"objects": 2, "shards": 1, "added": 1}, "sources=['objects', 'shards', 'added']"),
        ({"shards": 1, "objects": 2}, "sources=['shards', 'objects']"),
    ],
)
def test_ranks_whose_weights_or_sources_differ_are_refused(folder, tcp, other, words):
    first, second = ranks(2, tcp, different, folder, BEFORE, other)
    refused = [each for each in (first, second) if isinstance(each, StateMismatch)]
    assert len(refused) == 1
    assert words in str(refused[0])


def test_equal_ranks_are_not_refused(folder, tcp):
    assert ranks(2, tcp, different, folder, BEFORE, BEFORE) == [BATCH // 2] * 2
