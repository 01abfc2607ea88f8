"""Layouts have the keys, chunks and shards that zarr has."""

from __future__ import annotations

import pickle
from itertools import product
from math import prod

import numpy as np
import pytest

from penstock.data.zarr.format.layout import Layout

ONE = {"key": "a/", "name": "", "dtype": np.dtype("f4"), "fill": np.float32(0), "attributes": {}, "document": {}}


def layout(shape, chunks, shards=None, **more):
    return Layout(shape=shape, chunks=chunks, shards=shards, dims=(None,) * len(shape), **ONE | more)


def test_the_grid_has_the_incomplete_last_chunks():
    assert layout((10, 4, 0), (3, 4, 5)).grid == (4, 1, 0)
    assert layout((), ()).grid == ()


@pytest.mark.parametrize(
    ("lead", "separator", "key", "scalar"),
    [
        ("c", "/", "a/c/1/0/2", "a/c"),
        ("c", ".", "a/c.1.0.2", "a/c"),
        ("", ".", "a/1.0.2", "a/0"),
        ("", "/", "a/1/0/2", "a/0"),
    ],
)
def test_keys_of_chunks(lead, separator, key, scalar):
    assert layout((9, 9, 9), (3, 3, 3), lead=lead, separator=separator).object_key((1, 0, 2)) == key
    assert layout((), (), lead=lead, separator=separator).object_key(()) == scalar


def test_a_shard_holds_its_inner_chunks_in_row_major_order():
    sharded = layout((8, 9), (2, 3), (4, 9))
    assert sharded.ratios == (2, 3)
    assert sharded.grid == (4, 3)
    found = [(sharded.object_key(at), sharded.inner(at)) for at in product(range(4), range(3))]
    assert found[:6] == [("a/c/0/0", 0), ("a/c/0/0", 1), ("a/c/0/0", 2), ("a/c/0/0", 3), ("a/c/0/0", 4), ("a/c/0/0", 5)]
    assert len(set(found)) == prod(sharded.grid)
    assert found[6] == ("a/c/1/0", 0)


def test_an_encoded_chunk_may_be_larger_than_a_decoded_one():
    assert layout((8, 9), (2, 3)).chunk_bytes == 24
    assert layout((8, 9), (2, 3)).most_bytes == 24 + (64 << 10)
    assert layout((8, 9), (2, 3), (8, 9)).most_bytes == 24 + (64 << 10)


def test_a_layout_is_pickled_and_equal_though_its_fill_is_nan():
    one = layout((8, 9), (2, 3), fill=np.float32("nan"))
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert np.isnan(again.fill)
    assert again != layout((8, 8), (2, 3))
