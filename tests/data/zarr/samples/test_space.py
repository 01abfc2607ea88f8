"""Samples are numbered block by block, each once, and a mask leaves out what it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.samples.extraction import Axis, IndexSpace
from penstock.errors import Unusable
from tests.amounts import examples

AXES = st.builds(
    lambda positions, block: Axis.of("t", positions, range(40), block),
    st.builds(range, st.integers(0, 5), st.integers(6, 20), st.integers(1, 3)),
    st.integers(1, 25),
)


@settings(max_examples=examples(50))
@given(st.lists(AXES, min_size=1, max_size=3), st.integers(0, 2**32 - 1), st.booleans())
def test_each_position_has_one_number(axes, seed, masked):
    grid = [len(axis.positions) for axis in axes]
    valid = np.random.default_rng(seed).random(grid) < 0.6 if masked else np.ones(grid, bool)
    space = IndexSpace(axes, valid if masked else None)
    found = [tuple(each) for each in space.positions(np.arange(space.samples)).tolist()]
    wanted = [tuple(axis.positions[at] for axis, at in zip(axes, cell, strict=True)) for cell in np.argwhere(valid)]
    assert sorted(found) == sorted(wanted)
    assert space.sizes.sum() == len(found)
    assert (space.sizes > 0).all()


@settings(max_examples=examples(50))
@given(st.lists(AXES, min_size=1, max_size=3))
def test_samples_of_a_block_are_neighbours(axes):
    space = IndexSpace(axes)
    found = space.positions(np.arange(space.samples)).tolist()
    ends = np.cumsum(space.sizes).tolist()
    blocks = [1 if len(axis.starts) < 2 else axis.starts[1] for axis in axes]
    assert len(ends) == np.prod([len(axis.starts) for axis in axes])
    for start, end in zip([0, *ends], ends, strict=False):
        for axis, column in zip(axes, zip(*found[start:end], strict=True), strict=True):
            numbers = [axis.positions.index(each) for each in column]
            assert len({np.searchsorted(axis.starts, each, "right") for each in numbers}) == 1
    assert blocks


def test_single_dimension_is_numbered_in_storage_order():
    space = IndexSpace([Axis.of("t", range(2, 11), range(20), 4)])
    assert space.positions(np.arange(9)).reshape(-1).tolist() == list(range(2, 11))
    assert space.sizes.tolist() == [2, 4, 3]


def test_axis_blocks_follow_the_chosen_elements():
    chosen = [0, 1, 8, 9, 2, 3]
    assert Axis.of("t", range(6), chosen, 4).starts.tolist() == [0, 2, 4]


@settings(max_examples=examples(200))
@given(
    st.builds(range, st.integers(0, 60), st.integers(0, 60), st.integers(-7, 7).filter(bool)).filter(len),
    st.integers(1, 25),
    st.data(),
)
def test_blocks_of_a_range_are_those_of_its_numbers(chosen, block, data):
    start, stop, step = (data.draw(st.integers(0, len(chosen))) for _ in range(3))
    positions = range(start, stop, step + 1)
    listed = Axis.of("t", positions, list(chosen), block)
    assert Axis.of("t", positions, chosen, block).starts.tolist() == listed.starts.tolist()


def test_digest_differs_between_numberings():
    def digest(positions, block, valid=None):
        return IndexSpace([Axis.of("t", positions, range(20), block)], valid).digest

    assert digest(range(9), 4) == digest(range(9), 4)
    valid = np.arange(9) != 3
    assert len({digest(range(9), 4), digest(range(9), 3), digest(range(8), 4), digest(range(9), 4, valid)}) == 4


def test_index_space_with_too_many_positions_is_refused():
    with pytest.raises(Unusable, match="too many to be numbered"):
        IndexSpace([Axis.of("t", range(10_000), range(10_000), 1)] * 2)
    with pytest.raises(Unusable, match="too many to be numbered"):
        Axis.of("t", range(1 << 27), range(1 << 27), 1)
