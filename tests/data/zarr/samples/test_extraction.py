"""Samples are numbered once, block by block; indices are cut at borders of chunks, and parts are what NumPy takes."""

import hashlib
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.format.layout import Runs
from penstock.data.zarr.samples.extraction import Axis, Cut, Extraction, IndexSpace, Segment, segments
from penstock.errors import Unusable
from tests.amounts import examples

WINDOWS = st.sampled_from([0, 1, range(2), (1, 0), (0, 2), range(3)])


@settings(max_examples=examples(60))
@given(st.data())
def test_assembled_parts_equal_the_numpy_selection(data):
    count = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 9)) for _ in range(count)]
    chunks = [data.draw(st.integers(1, 5)) for _ in range(count)]
    array = np.arange(np.prod(shape)).reshape(shape)
    cuts, moving = [], []
    for size, chunk in zip(shape, chunks, strict=True):
        chosen = data.draw(st.one_of(st.just(range(size)), st.lists(st.integers(0, size - 1), min_size=1, max_size=5)))
        window = data.draw(WINDOWS)
        last = window if isinstance(window, int) else max(window)
        if len(chosen) <= last:
            window, last = range(len(chosen)), len(chosen) - 1
        moves = data.draw(st.booleans())
        cuts.append(Cut(chunk, chosen, window, len(moving) if moves else None))
        moving += [len(chosen) - last] if moves else []
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    extraction = Extraction(cuts, grid, first=100)
    positions = np.array([[data.draw(st.integers(0, most - 1)) for most in moving] for _ in range(4)], dtype=np.int64)
    rows = extraction.chunks(positions.reshape(4, len(moving)))
    found = extraction.located(positions.reshape(4, len(moving)))
    alone = [extraction.parts(position) for position in positions.tolist()]
    if found is None:
        assert any(len(parts) > 1 for parts in alone) or any(not isinstance(cut.window, int) for cut in cuts)
    else:
        assert [[each] for each in zip(*found, strict=True)] == [[part[:2] for part in parts] for parts in alone]
    for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
        parts, out = extraction.parts(position), np.full(extraction.shape, -1)
        for part in parts:
            place = np.unravel_index(part.chunk - 100, grid)
            chunk = array[tuple(slice(at * each, (at + 1) * each) for at, each in zip(place, chunks, strict=True))]
            out[part.place] = chunk[part.inside]
        wanted = array
        for number, cut in reversed([*enumerate(cuts)]):
            at = 0 if cut.axis is None else position[cut.axis]
            window = cut.window if isinstance(cut.window, int) else np.array(cut.window)
            wanted = wanted.take(np.asarray(cut.chosen)[at + window], axis=number)
        assert out.tolist() == wanted.tolist()
        assert sorted(each for each in row if each >= 0) == sorted({part.chunk for part in parts})


INDICES = st.one_of(
    st.lists(st.integers(0, 40), max_size=12),
    st.builds(range, st.integers(0, 20), st.integers(0, 40), st.integers(1, 7)),
)


def taken(found, chunk):
    return [number * chunk + at for number, inside, _ in found for at in range(*inside.indices(chunk))]


@given(INDICES, st.integers(1, 9))
def test_segments_hold_the_indices_in_order(indices, chunk):
    found = segments(indices, chunk)
    assert taken(found, chunk) == list(indices)
    places = [at for _, _, place in found for at in range(place.start, place.stop)]
    assert places == list(range(len(indices)))


def test_neighbours_and_equal_steps_are_one_segment():
    assert segments(range(2, 9), 5) == (
        Segment(0, slice(2, 5, 1), slice(0, 3)),
        Segment(1, slice(0, 4, 1), slice(3, 7)),
    )
    assert segments([0, 3, 6, 9], 12) == (Segment(0, slice(0, 10, 3), slice(0, 4)),)
    assert len(segments([0, 1, 3, 2], 12)) == 3


@given(st.data(), st.integers(1, 6))
def test_a_cut_moves_with_its_position(data, chunk):
    chosen = data.draw(st.one_of(st.builds(range, st.integers(0, 5), st.just(40), st.integers(1, 3)), INDICES))
    chosen = chosen if len(chosen) > 3 else range(10)
    window = data.draw(st.sampled_from([0, 1, range(2), (0, 2), (2, 0), range(1, 3)]))
    cut = Cut(chunk, chosen, window, 0)
    relative = [window] if isinstance(window, int) else list(window)
    positions = np.array(data.draw(st.lists(st.integers(0, len(chosen) - 3), min_size=1, max_size=8)))
    for position, row in zip(positions.tolist(), cut.chunks(positions).tolist(), strict=True):
        wanted = [chosen[position + each] for each in relative]
        found = cut.at(position)
        if isinstance(window, int):
            assert [(each.chunk * chunk + each.inside, each.place) for each in found] == [(wanted[0], None)]
        else:
            assert taken(found, chunk) == wanted
        named = [each for each in row if each >= 0]
        assert sorted(named) == sorted({each.chunk for each in found})
        assert len(named) <= cut.most_chunks
    assert cut.length == (None if isinstance(window, int) else len(relative))
    assert pickle.loads(pickle.dumps(cut)) == cut


RUNS = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 6)), min_size=1, max_size=5).map(
    lambda some: Runs(*zip(*some, (41, 5), strict=True))
)


@given(st.data(), RUNS)
def test_chunks_of_several_lengths_hold_the_indices_in_order(data, runs):
    indices = data.draw(INDICES)
    found = segments(indices, runs)
    starts = [runs.bounds(number)[0] for number, _, _ in found]
    taken = [start + at for start, (_, inside, _) in zip(starts, found, strict=True) for at in range(41)[inside]]
    assert taken == list(indices)
    assert all(number == index // runs for number, _, place in found for index in indices[place])
    if isinstance(indices, range) and len(indices):
        chunks = [number for number, _, _ in found]
        # One slice for each chunk.
        assert len({*chunks}) == len(chunks)
        assert all(len(chunks) <= Cut(runs, indices, range(len(indices)), axis).most_chunks for axis in (None, 0))
        assert Axis.of("x", range(len(indices)), indices, runs).blocks.count == len(chunks)


def starts(axis):
    return axis.blocks.starts(np.arange(axis.blocks.count)).tolist()


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
    assert space.blocks == len(space.sizes)
    assert space.most >= space.sizes.max(initial=0)
    sizes = space.sizes.tolist()
    assert space.even == (sizes[0] if sizes and {*sizes[:-1]} <= {sizes[0]} and sizes[-1] <= sizes[0] else 0)


@settings(max_examples=examples(50))
@given(st.lists(AXES, min_size=1, max_size=3))
def test_samples_of_a_block_are_neighbours(axes):
    space = IndexSpace(axes)
    found = space.positions(np.arange(space.samples)).tolist()
    ends = np.cumsum(space.sizes).tolist()
    assert len(ends) == np.prod([axis.blocks.count for axis in axes])
    for start, end in zip([0, *ends], ends, strict=False):
        for axis, column in zip(axes, zip(*found[start:end], strict=True), strict=True):
            numbers = [axis.positions.index(each) for each in column]
            assert len({np.searchsorted(starts(axis), each, "right") for each in numbers}) == 1


def test_single_dimension_is_numbered_in_storage_order():
    space = IndexSpace([Axis.of("t", range(2, 11), range(20), 4)])
    assert space.positions(np.arange(9)).reshape(-1).tolist() == list(range(2, 11))
    assert space.sizes.tolist() == [2, 4, 3]


def test_axis_blocks_follow_the_chosen_elements():
    chosen = [0, 1, 8, 9, 2, 3]
    assert starts(Axis.of("t", range(6), chosen, 4)) == [0, 2, 4]


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
    assert starts(Axis.of("t", positions, chosen, block)) == starts(listed)


def test_digest_differs_between_numberings():
    def digest(positions, block, valid=None):
        return IndexSpace([Axis.of("t", positions, range(20), block)], valid).digest

    assert digest(range(9), 4) == digest(range(9), 4)
    valid = np.arange(9) != 3
    assert len({digest(range(9), 4), digest(range(9), 3), digest(range(8), 4), digest(range(9), 4, valid)}) == 4


def test_digest_of_regular_blocks_hashes_as_many_bytes_for_a_million_as_for_a_hundred(monkeypatch):
    hashed = []
    made = hashlib.sha256

    class Counted:
        def __init__(self, data=b""):
            self.inner = made(data)
            hashed.append(len(data))

        def update(self, data):
            hashed.append(memoryview(data).nbytes)
            self.inner.update(data)

        def hexdigest(self):
            return self.inner.hexdigest()

    monkeypatch.setattr("penstock.data.zarr.samples.extraction.hashlib.sha256", Counted)
    found = {}
    for step, block in ((1, 1), (1, 4), (-1, 4), (3, 4), (2, 1), (1, Runs((30, 10**6), (4, 3)))):
        for count in (10**2, 10**4, 10**6):
            hashed.clear()
            chosen = range(count)[::step]
            found[step, block, count] = IndexSpace([Axis.of("t", range(len(chosen)), chosen, block)]).digest
            assert sum(hashed) < 200
    assert len({*found.values()}) == len(found)


def test_index_space_with_too_many_positions_is_refused():
    with pytest.raises(Unusable, match="too many to be numbered"):
        IndexSpace([Axis.of("t", range(1 << 25), range(1 << 25), 1)] * 2)


def test_too_many_blocks_of_different_sizes_are_not_listed():
    space = IndexSpace([Axis.of("t", range(1 << 30), range(1 << 30), 10), Axis.of("x", range(9), range(9), 2)])
    assert space.even == 0
    with pytest.raises(Unusable, match="blocks of different numbers of samples, more than"):
        assert space.sizes


def test_samples_of_regular_chunks_take_no_memory_each():
    stores = Runs((4000, 8000, 1 << 44), (4, 8, 16))
    for block, step, patches in ((4, 1, 12), (1, 1, 12), (7, 3, 12), (stores, 1, 12), (stores, 5, 9)):
        for count in (10**6, 10**9, 10**12):
            tracemalloc.start()
            space = IndexSpace(
                [
                    Axis.of("t", range(count // step), range(count)[::step], block),
                    Axis.of("x", range(patches), range(12), 4),
                ]
            )
            numbers = np.linspace(0, space.samples - 1, 1000).astype(np.int64)
            positions, digest = space.positions(numbers), space.digest if block is not stores else ""
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert (positions >= 0).all()
            assert (positions < [count // step, patches]).all()
            assert len({*map(tuple, positions.tolist())}) == len(numbers)
            assert peak < 400_000, (block, count, digest)
