"""Ranks share the chunks of an array: each is requested once per epoch, counted at the server, and a run goes on."""

from itertools import chain, islice

import numpy as np
import pytest
import torch.distributed as dist

import penstock as ps
from penstock.testing.faults import FaultServer
from tests.data.datasets.ranks import ranks
from tests.data.zarr.stores import numbered, upload, write

SAMPLES, PER, EVERY = 800, 4, 32
CHUNKS = SAMPLES // PER
BUCKET = "ranks-of-zarr"
URL = f"s3://{BUCKET}/a.zarr"
SHARDED = {"chunks": (PER, 3), "shards": (10 * PER, 3)}
SINGLE = {"chunks": (PER, 3)}


@pytest.fixture
def server(request, tmp_path):
    write(tmp_path / "a.zarr", numbered((SAMPLES, 3)), ("time", "x"), **getattr(request, "param", SINGLE))
    with FaultServer.within() as server:
        upload(server, BUCKET, tmp_path / "a.zarr")
        yield server


def load(store, place=None, **options) -> ps.DataLoader:
    dataset = ps.ZarrDataset(URL, shuffle=True, window_bytes=12 * PER * 12, place=place, store=store, **options)
    world = place.world if place else dist.get_world_size()
    return ps.DataLoader(dataset, EVERY // world, decode_threads=2)


def numbers(batches) -> list[list[int]]:
    """Return which samples each batch has, once sure of their values."""
    found = []
    for batch in batches:
        rows = batch.numpy()
        assert (rows == rows[:, :1] + np.arange(3)).all()
        found.append((rows[:, 0] // 3).astype(int).tolist())
    return found


def chunk_reads(server) -> int:
    """Return how many reads of chunks the server has seen: metadata and the indexes of shards aside."""
    reads = [each for each in server.seen("get", BUCKET) if "/c/" in each.key]
    return sum(not each.headers.get("range", "").startswith("bytes=-") for each in reads)


def _epoch(store, state, count):
    """Read on each rank of a group, from a state on, ``count`` batches or all."""
    loader = load(store)
    if state:
        loader.load_state_dict(state)
    batches = iter(loader)
    got = numbers(islice(batches, count))
    return got, loader.state_dict()


def merged(parts) -> list[list[int]]:
    return [list(chain(*row)) for row in zip(*parts, strict=True)]


@pytest.mark.parametrize(
    ("server", "worlds"), [(SINGLE, (1, 2, 4)), (SHARDED, (1, 2))], indirect=["server"], ids=["chunks", "shards"]
)
def test_each_chunk_is_read_once_per_epoch_over_any_number_of_ranks(server, worlds, tmp_path):
    for world in worlds:
        before = chunk_reads(server)
        if world == 1:
            parts = [numbers(load(server.store, ps.Place()))]
        else:
            parts = [got for got, _ in ranks(world, f"file://{tmp_path}/{world}", _epoch, server.store, None, None)]
        reads = chunk_reads(server) - before
        assert sorted(chain(*chain(*parts))) == list(range(SAMPLES))
        assert {len(part) for part in parts} == {SAMPLES // EVERY}
        assert CHUNKS <= reads <= 1.02 * CHUNKS, f"{reads} reads of {CHUNKS} chunks on {world} ranks"
        assert merged(parts) == numbers(load(server.store, ps.Place(), lanes=world))


def test_two_ranks_resume_the_global_batches_of_four_ranks(server, tmp_path):
    four = ranks(4, f"file://{tmp_path}/four", _epoch, server.store, None, 11)
    state = four[0][1]
    assert all(each == state for _, each in four)
    before = chunk_reads(server)
    two = ranks(2, f"file://{tmp_path}/two", _epoch, server.store, state, None)
    reads = chunk_reads(server) - before
    whole = merged([got for got, _ in four]) + merged([got for got, _ in two])
    assert whole == numbers(load(server.store, ps.Place(), lanes=4))
    left = {sample // PER for batch in merged([got for got, _ in two]) for sample in batch}
    assert reads <= len(left) + 1


def test_resuming_more_lanes_than_memory_allows_is_exact_with_a_warning(tmp_path):
    write(tmp_path / "a", numbered((96, 64, 64), "f8"), ("time", "y", "x"), chunks=(1, 64, 64))

    def loader(place, memory_bytes=1 << 30):
        dataset = ps.ZarrDataset(
            tmp_path / "a", shuffle=True, window_bytes=2 << 15, place=place, memory_bytes=memory_bytes, output="numpy"
        )
        return ps.DataLoader(dataset, 8 // place.world, decode_threads=2)

    of_eight = [loader(ps.Place(rank, 8)) for rank in range(8)]
    batches = [[int(sample[0, 0]) // 4096 for batch in each for sample in batch] for each in of_eight]
    whole = [list(row) for row in zip(*batches, strict=True)]
    begun = loader(ps.Place(0, 8))
    [*islice(begun, 3)]
    state = begun.state_dict()
    assert state["lanes"] == 8

    small = loader(ps.Place(), memory_bytes=1_750_000)  # two chunks fit, and sixteen do not
    small.load_state_dict(state)
    with pytest.warns(UserWarning, match="this epoch mixes 16 blocks of chunks on this rank.*Raise memory_bytes by"):
        rest = [[int(sample[0, 0]) // 4096 for sample in batch] for batch in small]
    assert rest == whole[3:]

    large = loader(ps.Place())
    large.load_state_dict(state)
    assert [[int(sample[0, 0]) // 4096 for sample in batch] for batch in large] == whole[3:]
