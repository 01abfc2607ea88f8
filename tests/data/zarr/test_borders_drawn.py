"""Parts of a dimension are disjoint and apart by the gap, together leave out gaps alone, and are drawn repeatably."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.borders import apart, draw_parts
from tests.amounts import examples

COUNTS = st.lists(st.integers(1, 9), min_size=2, max_size=4)


@settings(max_examples=examples(100))
@given(COUNTS, st.integers(1, 9), st.integers(0, 12), st.integers(0, 9))
def test_elements_of_two_parts_have_the_gap_between_them(counts, block, gap, seed):
    length = block * sum(counts)
    owners = draw_parts(length, counts, block=block, seed=seed)
    assert np.array_equal(owners, draw_parts(length, counts, block=block, seed=seed))
    masks = apart(owners, gap)
    assert len(masks) == len(counts)
    assert (np.sum(masks, axis=0) <= 1).all()
    owned = np.full(length, -1)
    for part, mask in enumerate(masks):
        assert (owners[mask] == part).all()
        owned[mask] = part
    kept = np.flatnonzero(owned >= 0)
    borders = np.diff(owned[kept]) != 0
    assert (np.diff(kept)[borders] > gap).all()
    # Each element that is left out lies within a gap before another part.
    for at in np.flatnonzero(owned < 0):
        assert (owners[at + 1 : at + gap + 1] != owners[at : at + gap + 1][: len(owners[at + 1 : at + gap + 1])]).any()


def test_blocks_are_drawn_whole():
    owners = draw_parts(97, (8, 2), block=10, seed=1)
    assert all(len({*owners[at : at + 10]}) == 1 for at in range(0, 100, 10))
    assert np.bincount(draw_parts(100, (8, 2), block=10, seed=1)).tolist() == [80, 20]
    assert len(owners) == 97
    assert owners.tolist() != draw_parts(97, (8, 2), block=10, seed=2).tolist()
