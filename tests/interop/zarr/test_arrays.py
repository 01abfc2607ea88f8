"""zarr over a Store: formats, shards, groups, consolidated metadata, and what each costs in requests."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import zarr
import zarr.api.asynchronous as zarr_async
from fsspec.registry import _registry
from zarr.errors import GroupNotFoundError

from penstock.interop.fsspec import register
from penstock.interop.zarr import Store

VALUES = np.arange(48 * 40, dtype="f4").reshape(48, 40)


@pytest.fixture
def store(server, bucket):
    return Store(f"s3://{bucket}/data.zarr", store=server.store)


LAYOUTS = {
    "v2": {"zarr_format": 2, "chunks": (8, 10)},
    "v2, nested": {"zarr_format": 2, "chunks": (8, 10), "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3": {"zarr_format": 3, "chunks": (8, 10)},
    "v3, dots": {"zarr_format": 3, "chunks": (8, 10), "chunk_key_encoding": {"name": "default", "separator": "."}},
    "plain": {"zarr_format": 3, "chunks": (8, 10), "compressors": None},
    "sharded": {"zarr_format": 3, "chunks": (4, 5), "shards": (16, 20)},
    "sharded, index first": {
        "zarr_format": 3,
        "chunks": (4, 5),
        "shards": {"shape": (16, 20), "index_location": "start"},
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_reads_back_completely_and_in_slices(store, layout):
    array = zarr.create_array(store, name="g/a", shape=VALUES.shape, dtype="f4", fill_value=-1, **LAYOUTS[layout])
    array[:40] = VALUES[:40]
    again = zarr.open_array(Store(store.url, store=store._given, read_only=True), path="g/a")
    assert np.array_equal(again[:], np.concatenate([VALUES[:40], np.full((8, 40), -1, "f4")]))
    assert np.array_equal(again[3:21, 7:33], VALUES[3:21, 7:33])
    assert np.array_equal(again.oindex[[1, 30, 5], [0, 39]], VALUES[np.ix_([1, 30, 5], [0, 39])])
    array[5:7, 5:7] = 0  # part of a chunk: read, changed, written
    assert np.array_equal(again[4:8, 4:8], np.pad(np.zeros((2, 2), "f4"), 1, constant_values=1) * VALUES[4:8, 4:8])
    array.resize((24, 40))
    assert np.array_equal(zarr.open_array(store, path="g/a", mode="r")[20:], VALUES[20:24])
    assert array.nbytes_stored() > 0


def test_reading_one_chunk_of_a_shard_sends_two_requests(server, bucket, store):
    array = zarr.create_array(store, name="a", shape=VALUES.shape, dtype="f4", **LAYOUTS["sharded"])
    array[:] = VALUES
    before = len(server.seen("", bucket))
    assert np.array_equal(array[17:19, 1:3], VALUES[17:19, 1:3])
    assert [each.verb for each in server.seen("", bucket)[before:]] == ["get", "get"]  # its index, and the chunk


def test_groups_are_listed_walked_and_removed(store):
    root = zarr.open_group(store, mode="w")
    for path in ("b", "a/c", "a/d"):
        root.create_group(path).create_array("x", shape=(2,), dtype="i4")[:] = 7
    assert sorted(root.group_keys()) == ["a", "b"]
    assert [name for name, _ in sorted(root["a"].members(max_depth=None))] == ["c", "c/x", "d", "d/x"]
    del root["a"]
    assert sorted(name for name, _ in root.members(max_depth=None)) == ["b", "b/x"]
    zarr.open_group(store, mode="w")
    assert list(zarr.open_group(store, mode="r").members()) == []


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part in the Zarr format 3")
def test_consolidated_metadata_is_read_once(server, bucket, store, zarr_format):
    root = zarr.open_group(store, mode="w", zarr_format=zarr_format)
    for number in range(12):
        root.create_array(f"a{number}", shape=(2,), dtype="i4")[:] = number
    zarr.consolidate_metadata(store, zarr_format=zarr_format)
    before = len(server.seen("", bucket))
    found = zarr.open_consolidated(store, mode="r", zarr_format=zarr_format)
    assert [int(array[0]) for _, array in sorted(found.arrays(), key=lambda each: int(each[0][1:]))] == [*range(12)]
    asked = [each for each in server.seen("", bucket)[before:] if "/a" not in each.key]
    assert 1 <= len(asked) <= 4  # v2 has three documents
    assert {each.verb for each in server.seen("", bucket)[before:]} == {"get"}


def test_opening_a_missing_array_reports_its_location(store):
    for opened in (zarr.open, zarr.open_array, zarr.open_group):
        with pytest.raises((FileNotFoundError, GroupNotFoundError), match=r"data\.zarr"):
            opened(store, mode="r")
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(store.with_read_only(read_only=True), mode="w")


async def test_zarr_reads_from_several_tasks_of_one_loop(store):
    array = zarr.create_array(store, name="a", shape=VALUES.shape, dtype="f4", **LAYOUTS["v3"])
    await asyncio.to_thread(array.__setitem__, slice(None), VALUES)
    found = await zarr_async.open_array(store=store, path="a", mode="r")
    parts = await asyncio.gather(*(found.getitem(slice(row, row + 8)) for row in range(0, 48, 8)))
    assert np.array_equal(np.concatenate(parts), VALUES)


def test_urls_open_by_profile_and_by_a_scheme_that_was_taken_over(server, bucket, tmp_path, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "penstock.toml").write_text(f'[profiles.climate]\nurl = "s3://{bucket}/data"\n')
    options = f"{{base_path: {bucket}/data, endpoint_url: '{server.endpoint}', region_name: us-east-1}}"
    (tmp_path / "msc.yaml").write_text(
        f"profiles: {{climate: {{storage_provider: {{type: s3, options: {options}}}}}}}\n"
    )
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.toml"))
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.yaml"))
    monkeypatch.setitem(_registry, "s3", None)  # what it was before is put back afterwards
    register("s3")
    zarr.create_array(Store(f"s3://{bucket}/data/a.zarr"), shape=VALUES.shape, dtype="f4", chunks=(8, 10))[:] = VALUES
    for root in ("penstock://climate", "msc://climate", f"s3://{bucket}/data"):
        assert np.array_equal(zarr.open(f"{root}/a.zarr", mode="r")[:], VALUES)
        zarr.open(f"{root}/b.zarr", mode="w", shape=(4,), dtype="i4")[:] = 3
        assert zarr.open_array(Store(f"{root}/b.zarr"), mode="r")[:].tolist() == [3] * 4
        with pytest.raises(FileNotFoundError):
            zarr.open(f"{root}/none.zarr", mode="r")
