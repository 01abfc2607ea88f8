"""A block's chunks are counted, so that what a window needs is known; also of arrays with elements of their own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format.layout import layout_of
from penstock.data.zarr.samples.arrangement import blocks_of
from penstock.data.zarr.samples.extraction import Axis, Cut

MIB = 1 << 20


def layout(length, chunk, width=1):
    document = {
        "zarr_format": 2,
        "shape": [length, width],
        "chunks": [chunk, width],
        "dtype": "<f8",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
    }
    return layout_of(document, {}, key="", name="", url="")


def moving(of, chosen, window=0):
    return of, [Cut(of.chunks[0], chosen, window, 0), Cut(of.chunks[1], range(of.shape[1]), range(of.shape[1]))]


def test_arrays_of_one_index_have_blocks_of_the_largest_chunk():
    arrays = [moving(layout(100, 4), range(100)), moving(layout(100, 8), range(100))]
    found = blocks_of(arrays, [(0, 0)], [False], MIB)
    assert (found.edges, found.references) == ([8], [None])
    assert found.block_bytes == (2 * 4 + 8) * 8
    assert found.chunk_bytes == 2 * (4 + 8) * 8  # an element may lie anywhere: counted as if it were across two


def test_nothing_to_read_is_one_block():
    found = blocks_of([], [(0, 0)], [True], MIB)
    assert (found.references, found.block_bytes, found.chunk_bytes) == ([None], 0, 0)


@given(st.data())
def test_blocks_of_aligned_arrays_touch_as_many_chunks_as_are_counted(data):
    count = data.draw(st.integers(1, 40))
    arrays, ids = [], []
    for width in (3, 1):
        elements = tuple(np.cumsum(data.draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))).tolist())
        chunk = data.draw(st.integers(1, 9))
        arrays.append(moving(layout(elements[-1] + 1, chunk, width), elements))
        ids.append(np.array(elements) // chunk)
    reach = data.draw(st.sampled_from([(0, 0), (-1, 2), (1, 1)]))
    found = blocks_of(arrays, [reach], [True], MIB)
    assert found.references == [arrays[0][1][0].chosen]
    block = np.array(found.references[0]) // found.edges[0]
    most = 0
    for each in np.unique(block):
        at = np.flatnonzero(block == each)
        touched = slice(max(0, at[0] + reach[0]), max(1, at[-1] + reach[1] + 1))
        sizes = [len(np.unique(of[touched])) * array.chunk_bytes for of, (array, _) in zip(ids, arrays, strict=True)]
        most = max(most, sum(sizes))
    bound = sum(
        array.chunk_bytes * min(array.grid[0], len(set(of.tolist())))
        for of, (array, _) in zip(ids, arrays, strict=True)
    )
    assert most <= found.block_bytes <= bound


@given(st.data())
def test_blocks_of_elements_that_are_chosen_apart_touch_no_more_chunks_than_are_counted(data):
    length, chunk = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 9))
    step = data.draw(st.sampled_from([1, 2, 7, 10, -1, -3]))
    mixed = tuple(data.draw(st.permutations(range(length))))
    chosen = data.draw(st.sampled_from([range(length)[::step], mixed]))
    first, last = reach = data.draw(st.sampled_from([(0, 0), (0, 5), (-2, 3)]))
    array = layout(length, chunk)
    found = blocks_of([moving(array, chosen)], [reach], [False], data.draw(st.sampled_from([1, MIB])))
    ids, positions = np.array(chosen) // chunk, range(max(0, -first), len(chosen) - max(0, last))
    if not positions:
        return
    touched = [{*ids[at + first : at + last + 1].tolist()} for at in positions]
    assert max(map(len, touched)) * array.chunk_bytes <= found.chunk_bytes
    axis = Axis.of("time", positions, chosen, found.edges[0])
    blocks = np.split(np.arange(len(positions)), axis.starts[1:])
    most = max(len(set().union(*(touched[at] for at in block))) for block in blocks)
    assert most * array.chunk_bytes <= found.block_bytes
