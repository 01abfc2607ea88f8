"""A box of a tensor, cut into runs: as numpy's slices have it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.dcp.reader import bound_box, boxes

MIB = 1 << 20


@st.composite
def cases(draw):
    sizes = draw(st.lists(st.integers(0, 7), max_size=4))
    offsets = [draw(st.integers(0, size)) for size in sizes]
    lengths = [draw(st.integers(0, size - offset)) for size, offset in zip(sizes, offsets, strict=True)]
    return sizes, offsets, lengths, draw(st.sampled_from([1, 2, 8])), draw(st.integers(8, 300))


@given(cases())
def test_every_element_comes_once_from_where_it_lies(case):
    sizes, offsets, lengths, item_bytes, most = case
    stored = np.arange(np.prod(sizes, dtype=int) * item_bytes, dtype=np.uint8).reshape(*sizes, item_bytes)
    filled, times = np.zeros_like(stored), np.zeros(sizes, int)
    found = list(boxes(sizes, offsets, lengths, item_bytes, most))
    for box in found:
        at, run = _at(box.offsets, box.lengths), stored.reshape(-1)[box.start : box.stop]
        filled[at] = np.lib.stride_tricks.as_strided(run, (*box.lengths, item_bytes), stored.strides)
        times[at] += 1
        assert box.stop - box.start <= most
        assert box.dense == (run.tobytes() == filled[at].tobytes())
    whole = _at(offsets, lengths)
    assert filled[whole].tobytes() == stored[whole].tobytes()
    assert times.sum() == np.prod(lengths, dtype=int)
    assert times.max(initial=0) <= 1
    assert all(one.start < other.start for one, other in pairwise(found))


def _at(offsets, lengths):
    return tuple(slice(low, low + long) for low, long in zip(offsets, lengths, strict=True))


def test_rows_are_one_run_and_columns_are_cut_into_runs_that_fit():
    assert [box[2:] for box in boxes((1000, 1000), (10, 0), (20, 1000), 4, 16 * MIB)] == [(40_000, 120_000, True)]
    columns = list(boxes((10_000, 1000), (0, 500), (10_000, 500), 4, 16 * MIB))
    assert len(columns) == 3
    assert {box.lengths[1] for box in columns} == {500}
    assert columns[0].stop - columns[0].start > 15 * MIB


def test_distant_runs_are_read_in_separate_boxes():
    found = list(boxes((100, 1_000_000), (0, 7), (100, 10), 4, 16 * MIB))
    assert [(box.start, box.stop) for box in found] == [
        (row * 4_000_000 + 28, row * 4_000_000 + 68) for row in range(100)
    ]
    assert bound_box((100, 1_000_000), (0, 7), (100, 10), 4).stop == 99 * 4_000_000 + 68
