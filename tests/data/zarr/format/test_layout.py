"""Layouts have the keys, chunks and shards that zarr has."""

from __future__ import annotations

import pickle
from itertools import product
from math import prod

import numpy as np
import pytest

from penstock.data.zarr.format.layout import Layout, Runs, bounds, largest

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


def test_runs_number_their_chunks_one_by_one_and_as_arrays():
    runs = Runs((5, 0, 3, 1), (2, 4, 3, 7))
    numbered = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0)]
    assert [divmod(element, runs) for element in range(9)] == numbered
    chunks, inside = divmod(np.arange(9), runs)
    assert [*zip(chunks.tolist(), inside.tolist(), strict=True)] == numbered
    assert (np.arange(9) // runs).tolist() == [chunk for chunk, _ in numbered]
    assert [bounds(runs, chunk, 9) for chunk in range(runs.firsts[-1])] == [(0, 2), (2, 4), (4, 5), (5, 8), (8, 9)]
    assert [runs.place(chunk) for chunk in range(5)] == [(0, 0), (0, 1), (0, 2), (2, 0), (3, 0)]
    assert [element // (2 * runs) for element in range(9)] == [0, 0, 0, 0, 1, 2, 2, 2, 3]
    assert largest(runs) == 7
    assert pickle.loads(pickle.dumps(runs)) == runs
    assert layout((9, 4), (7, 4), runs={0: runs}).grid == (5, 1)
    assert layout((9, 4), (7, 4), runs={0: runs}).lengths == (runs, 4)
