"""Indices along a dimension, cut at the borders of chunks, are all there, in order, in few slices."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.format.layout import Runs
from penstock.data.zarr.samples.extraction import Axis, Cut, Segment, segments

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
        axis = Axis.of("x", range(len(indices)), indices, runs)
        assert len(axis.starts) == len(chunks)
