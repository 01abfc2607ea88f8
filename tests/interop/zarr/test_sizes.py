"""Which array a chunk is of, by its key, and what its next chunk is expected to take."""

from __future__ import annotations

import pytest
import zarr
from zarr.storage import MemoryStore

from penstock.engine.contracts.driver import UNKNOWN_BYTES
from penstock.interop.zarr.store import ChunkSizes, array_of


@pytest.mark.parametrize(
    ("key", "array"),
    [
        ("tas/c/0/1/2", "tas"),
        ("a/b/c/0", "a/b"),
        ("c/0/0", ""),
        ("tas/c.0.1", "tas"),
        ("tas/0.1.2", "tas"),
        ("tas/0/1/2", "tas"),
        ("0.0", ""),
        ("7", ""),
        ("scalar/c", "scalar"),
        ("tas/zarr.json", None),
        ("tas/.zarray", None),
        (".zmetadata", None),
        ("c/zarr.json", None),
        ("2m_temperature/zarr.json", None),
        ("tas/c/0/x", None),
    ],
)
def test_chunk_key_is_recognized_by_its_indices(key, array):
    assert array_of(key) == array


@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 3},
        {"zarr_format": 2},
        {"zarr_format": 3, "chunk_key_encoding": {"name": "default", "separator": "."}},
        {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
        {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"zarr_format": 3, "shards": (4, 4)},
    ],
    ids=str,
)
def test_chunk_keys_written_by_zarr_are_recognized(options):
    kept = {}
    zarr.create_array(MemoryStore(kept), name="g/tas", shape=(8, 8), chunks=(2, 2), dtype="i4", **options)[:] = 1
    chunks = [key for key in kept if "." not in key.rpartition("/")[2] or key[-1].isdigit()]
    assert len(chunks) in (4, 16)
    assert {key: array_of(key) for key in kept} == {key: "g/tas" if key in chunks else None for key in kept}


def test_the_next_chunk_is_expected_to_be_little_larger_than_those_before():
    sizes = ChunkSizes()
    assert sizes.bound("a") == sizes.bound(None) == UNKNOWN_BYTES
    sizes.add("a", 1600)
    sizes.add("b", 10)
    sizes.add(None, 99)
    sizes.add("c", 0)
    assert (sizes.bound("a"), sizes.bound("b"), sizes.bound("c"), sizes.bound(None)) == (
        1700,
        10,
        UNKNOWN_BYTES,
        UNKNOWN_BYTES,
    )
    sizes.add("a", 800)
    assert sizes.bound("a") == 1700
    sizes.add("a", 3200)
    assert sizes.bound("a") == 3400
