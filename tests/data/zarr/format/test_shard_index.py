"""Indexes of shards that zarr wrote, at either end, in either byte order, lead to the inner chunks."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec
from zarr.storage import MemoryStore

from penstock.data.zarr.format.layout import ABSENT, chunk_span, index_span, layout_of, read_index
from penstock.errors import ChecksumMismatch, Damaged


def written(shape, chunks, shards, location="end", endian="little", *, crc=True):
    """Return the layout of an array whose first half only is written, its values and its objects."""
    codec = ShardingCodec(
        chunk_shape=chunks,
        codecs=[BytesCodec()],
        index_codecs=[BytesCodec(endian=endian), *([Crc32cCodec()] * crc)],
        index_location=location,
    )
    store = MemoryStore()
    array = zarr.create(shape, store=store, chunks=shards, codecs=[codec], dtype="i4", fill_value=-1, zarr_format=3)
    values = np.full(shape, -1, "i4")
    values[: shape[0] // 2] = np.arange(values[: shape[0] // 2].size).reshape(values[: shape[0] // 2].shape)
    array[:] = values
    objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
    return layout_of(json.loads(objects.pop("zarr.json"))), values, objects


def cut(objects, span):
    return objects[span.key][span.start : span.stop]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize(
    ("shape", "chunks", "shards"), [((12, 6), (2, 3), (4, 6)), ((12, 5), (2, 2), (8, 6)), ((9,), (1,), (9,))]
)
def test_inner_chunks_are_located_by_the_shard_index(location, endian, crc, shape, chunks, shards):
    layout, values, objects = written(shape, chunks, shards, location, endian, crc=crc)
    padded = np.pad(values, [(0, -size % chunk) for size, chunk in zip(shape, chunks, strict=True)], constant_values=-1)
    absent = 0
    for chunk in product(*map(range, layout.grid)):
        block = padded[tuple(slice(at * size, (at + 1) * size) for at, size in zip(chunk, chunks, strict=True))]
        key = layout.object_key(chunk)
        if key not in objects:
            assert (block == -1).all()
            continue
        index = read_index(layout, cut(objects, index_span(layout, key)))
        assert index.shape == (len(index), 2)
        assert index.dtype == np.uint64
        span = chunk_span(layout, chunk, index)
        if span is None:
            absent += 1
            assert (block == -1).all()
        else:
            assert (np.frombuffer(cut(objects, span), "<i4").reshape(chunks) == block).all()
    assert absent > 0


def test_a_damaged_index_is_found_by_its_checksum():
    layout, _, objects = written((12, 6), (2, 3), (4, 6))
    key = layout.object_key((0, 0))
    index = bytearray(cut(objects, index_span(layout, key)))
    for at in range(len(index)):
        index[at] ^= 1
        with pytest.raises(ChecksumMismatch, match=r"shard's index.*s3://b/c/0/0"):
            read_index(layout, index, "s3://b/c/0/0")
        index[at] ^= 1


@pytest.mark.parametrize("change", [b"", b"x", slice(1, None), slice(0, -1), slice(0, 16)])
def test_an_index_of_another_size_is_damaged(change):
    layout, _, objects = written((12, 6), (2, 3), (4, 6), crc=False)
    index = cut(objects, index_span(layout, layout.object_key((0, 0))))
    with pytest.raises(Damaged, match=r"64 of 4 chunks.*s3://b/s"):
        read_index(layout, index[change] if isinstance(change, slice) else change, "s3://b/s")


@pytest.mark.parametrize("entry", [(ABSENT, 5), (5, ABSENT), (ABSENT - 1, 24), (1 << 62, 24), (0, 1 << 40)])
def test_an_entry_that_cannot_be_is_damaged(entry):
    layout, *_ = written((12, 6), (2, 3), (4, 6), crc=False)
    index = np.full((4, 2), ABSENT, "<u8")
    assert (read_index(layout, index.tobytes()) == ABSENT).all()
    index[2] = entry
    with pytest.raises(Damaged, match="its chunk 2 has"):
        read_index(layout, index.tobytes())
