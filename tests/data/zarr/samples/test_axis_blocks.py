"""Blocks along an axis are the same whether they are computed or listed; the computed ones take no memory each."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.format.layout import Runs
from penstock.data.zarr.samples import extraction as module
from penstock.data.zarr.samples.extraction import AxisBlocks, integers_of, most_touched
from tests.amounts import examples

# Of several stores; the last one has room for all elements.
RUNS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda some: Runs(*zip(*some, (2000, 7), strict=True))
)
LENGTHS = st.one_of(st.integers(1, 25), RUNS)
ELEMENTS = st.builds(
    lambda first, count, step: range(first, first + count * step, step)[:: 1 if step % 2 else -1],
    st.integers(0, 60),
    st.integers(1, 300),
    st.integers(1, 6),
)
REACHES = st.tuples(st.integers(-4, 1), st.integers(0, 6)).map(lambda some: (some[0], sum(some)))


def table(blocks):
    return blocks.starts(np.arange(blocks.count + 1)).tolist()


@settings(max_examples=examples(200))
@given(ELEMENTS, LENGTHS)
def test_computed_blocks_are_the_listed_ones(elements, length):
    computed, listed = AxisBlocks(elements, length), AxisBlocks(list(elements), length)
    assert computed.period
    assert not listed.period
    assert table(computed) == table(listed)
    sizes = np.diff(table(listed))
    alike = (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]
    for each in (computed, listed):
        assert each.even == (sizes[0] if alike else 0)
        assert each.equal == (alike and sizes[-1] == sizes[0])
        assert each.most >= sizes.max()
        numbers = np.repeat(np.arange(each.count), sizes)
        assert each.of(np.arange(each.length)).tolist() == numbers.tolist()


def count_touched(elements, block, others, chunk, reach):
    """Return what ``most_touched`` counts, from all blocks."""
    blocks, chunks = (np.array([*some]) // length for some, length in ((elements, block), (others, chunk)))
    changes = np.append(0, np.cumsum(np.diff(chunks) != 0))
    most, last = 0, len(blocks) - 1
    for places in np.split(np.arange(len(blocks)), np.flatnonzero(np.diff(blocks)) + 1):
        first, final = (min(max(at, 0), last) for at in (places[0] + reach[0], places[-1] + reach[1]))
        most = max(most, int(changes[final] - changes[first]) + 1)
    return most


@settings(max_examples=examples(200))
@given(ELEMENTS, st.sampled_from([1, 2, 3, -1]), LENGTHS, LENGTHS, REACHES)
def test_most_chunks_that_a_block_touches_are_those_of_all_blocks(elements, step, block, chunk, reach):
    others = range(3, 3 + len(elements) * abs(step), abs(step))[:: 1 if step > 0 else -1]
    wanted = count_touched(elements, block, others, chunk, reach)
    assert most_touched(AxisBlocks(elements, block), AxisBlocks(others, chunk), reach) == wanted
    listed = AxisBlocks(list(elements), block), AxisBlocks(list(others), chunk)
    assert most_touched(*listed, reach) == wanted


YEARS = Runs((3650, 3660, 3650, 10**12), (10, 12, 10, 8))


@pytest.mark.parametrize("length", [4, 1, 10, YEARS, 5 * YEARS], ids=["four", "single", "ten", "years", "of five"])
@pytest.mark.parametrize("step", [1, 3, -7])
def test_computed_blocks_take_as_much_memory_for_a_trillion_elements_as_for_a_million(length, step, monkeypatch):
    looked = []
    find = module.AxisBlocks.of
    monkeypatch.setattr(module.AxisBlocks, "of", lambda self, some: looked.append(len(some)) or find(self, some))
    for count in (10**6, 10**9, 10**12):
        looked.clear()
        tracemalloc.start()
        blocks = AxisBlocks(range(count)[::step], length)
        found = blocks.of(blocks.starts(np.arange(0, blocks.count, blocks.count // 10)))
        touched = most_touched(blocks, AxisBlocks(range(count)[::step], 4), (0, 3))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.tolist() == [*range(0, blocks.count, blocks.count // 10)]
        assert touched <= 24
        assert peak < 400_000
        assert sum(looked) < 10_000


@pytest.mark.parametrize("numbers", [range(3, 9, 2), range(9, 3, -2), range(0), (4, 1), np.array([2, 5])])
def test_integers_of_numbers_are_int64(numbers):
    found = integers_of(numbers)
    assert found.dtype == np.int64
    assert found.tolist() == [*numbers]
