"""Pieces of chunks make exactly the selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format.layout import Layout
from penstock.errors import Unusable
from tests.data.zarr.samples.grid import Piece, pieces


def layout(shape, chunks, shards=None):
    return Layout("", "", shape, np.dtype("i8"), chunks, shards, 0, (None,) * len(shape), {}, {})


@st.composite
def selections(draw):
    shape = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))
    chunks = tuple(draw(st.integers(1, 11)) for _ in shape)
    ends = [sorted(draw(st.lists(st.integers(0, size), min_size=2, max_size=2))) for size in shape]
    return shape, chunks, [start for start, _ in ends], [stop for _, stop in ends]


@given(selections())
def test_pieces_are_the_selection_each_value_once(drawn):
    shape, chunks, start, stop = drawn
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    padded = np.pad(array, [(0, -size % chunk) for size, chunk in zip(shape, chunks, strict=True)], constant_values=-1)
    wanted = array[tuple(map(slice, start, stop))]
    result, filled = np.full(wanted.shape, -2), np.zeros(wanted.shape, int)
    seen = []
    for chunk, within, at in pieces(layout(shape, chunks), start, stop):
        block = padded[tuple(slice(c * n, (c + 1) * n) for c, n in zip(chunk, chunks, strict=True))]
        result[at] = block[within]
        filled[at] += 1
        seen.append(chunk)
    assert (result == wanted).all()
    assert (filled == 1).all()
    assert seen == sorted(set(seen))


def test_a_selection_within_a_chunk_is_one_piece():
    found = list(pieces(layout((10, 10), (4, 5)), (4, 1), (6, 4)))
    assert found == [Piece((1, 0), (slice(0, 2), slice(1, 4)), (slice(0, 2), slice(0, 3)))]


def test_a_scalar_is_one_piece():
    assert list(pieces(layout((), ()), (), ())) == [Piece((), (), ())]


@pytest.mark.parametrize(
    ("start", "stop"), [((-1,), (2,)), ((0,), (11,)), ((3,), (2,)), ((), ()), ((0, 0), (1, 1)), ((0,), ())]
)
def test_a_selection_out_of_bounds_is_refused_before_the_first_piece(start, stop):
    with pytest.raises(Unusable, match="selection"):
        pieces(layout((10,), (4,)), start, stop)
