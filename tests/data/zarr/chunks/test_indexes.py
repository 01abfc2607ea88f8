"""The index of a shard is read once; a missing shard has none; anything else that goes wrong is an error."""

import uuid

import numpy as np
import pytest

import penstock as ps
from penstock.data.zarr.chunks.contents import Chunks, IndexCache, ShardIndex, ShardIndexes
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Cancelled, ChecksumMismatch
from penstock.interop.zarr import Store
from tests.data.zarr.stores import SHARDED, arrays_at, numbered, write


@pytest.fixture
def arrays(tmp_path):
    write(tmp_path / "a", numbered((21, 6, 8)), **SHARDED)
    return [arrays_at(str(tmp_path / "a"))[""]]


def key(arrays, number):
    return 0, f"{arrays[0].layout.key}c/{number}/0/0"


def test_an_index_is_read_once(arrays):
    chunks, counts = Chunks(arrays, "fill"), ReadCounts()
    indexes = ShardIndexes(chunks, arrays[0].source, counts)
    indexes.ask([(key(arrays, 0), 0), (key(arrays, 1), 0), (key(arrays, 0), 1)])
    first = indexes.get(key(arrays, 0), 0)
    assert first.entries.shape == (8, 2)
    assert indexes.get(key(arrays, 0), 0) is first
    assert indexes.get(key(arrays, 1), 0) is not None
    assert ShardIndexes(chunks, arrays[0].source, counts).get(key(arrays, 0), 0) is first
    assert counts.requests == 2


def test_a_missing_shard_has_no_index(arrays):
    indexes = ShardIndexes(Chunks(arrays, "fill"), arrays[0].source)
    assert indexes.get(key(arrays, 9), 0) is None


def test_a_damaged_index_is_an_error(arrays, tmp_path):
    path = tmp_path / "a" / "c" / "0" / "0" / "0"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    indexes = ShardIndexes(Chunks(arrays, "fill"), arrays[0].source)
    with pytest.raises(ChecksumMismatch, match="index"):
        indexes.get(key(arrays, 0), 0)


def test_the_oldest_indexes_go_first(monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.chunks.contents._MOST_BYTES", 2000)
    cache = IndexCache()
    for number in range(4):
        cache.put((0, str(number)), ShardIndex(np.zeros((50, 2), np.uint64)))
    assert [cache.get((0, str(number))) is not None for number in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("place", ["local", "memory", "cached"])
def test_chunks_of_a_shard_written_anew_are_read_where_they_lie_now(tmp_path, monkeypatch, place):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    url = f"memory://{uuid.uuid4().hex}/a" if place == "memory" else str(tmp_path / "a")
    options = ps.StoreOptions(cache=ps.CacheOptions(path=str(tmp_path / "cache"))) if place == "cached" else None
    values = numbered((16, 2)) + 1
    begun = np.where(np.arange(16)[:, None] % 2, values, 0)
    array = write(Store(url), begun, chunks=(1, 2), shards=(8, 2), compressors=None)
    dataset = ps.ZarrDataset(url, output="numpy", store=options)
    assert np.array_equal(np.stack([*dataset]), begun)
    array[...] = values
    found = np.stack([*dataset])
    assert np.array_equal(found[1::2], values[1::2])
    assert np.array_equal(np.stack([*ps.ZarrDataset(url, output="numpy", store=options)]), values)


def test_a_closed_reading_asks_for_nothing(arrays):
    indexes = ShardIndexes(Chunks(arrays, "fill"), arrays[0].source)
    indexes.close()
    with pytest.raises(Cancelled):
        indexes.get(key(arrays, 0), 0)
    assert ps.Place().world == 1
