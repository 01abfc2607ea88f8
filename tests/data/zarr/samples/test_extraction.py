"""The parts of a sample, put in their places, are what NumPy takes of the array."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.zarr.samples.extraction import Cut, Extraction
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
