"""Chunks of several arrays are numbered through; each decodes to what zarr reads there, or to its fill value."""

import itertools

import numpy as np
import pytest

from penstock.data.zarr.chunks.contents import Chunks, ShardIndexes
from penstock.errors import Damaged, NotFound
from tests.data.zarr.stores import LAYOUTS, arrays_at, numbered, write

VALUES = numbered((21, 6, 8))


@pytest.fixture
def arrays(tmp_path):
    for name, layout in LAYOUTS.items():
        write(tmp_path / name, VALUES, **layout)
    return [arrays_at(str(tmp_path / name))[""] for name in LAYOUTS]


def read(arrays, chunks, number):
    indexes = ShardIndexes(chunks, arrays[0].source)
    span = chunks.span(number, indexes)
    if span is None:
        return chunks.decode(number, None)
    with arrays[0].source.lookahead(iter([span])) as ahead:
        return chunks.decode(number, ahead.advance())


def test_each_number_is_a_chunk_of_its_array(arrays):
    chunks = Chunks(arrays, "fill")
    for array, first in zip(arrays, chunks.bases, strict=False):
        grid, size = array.layout.grid, array.layout.chunks
        for number, place in enumerate(itertools.product(*map(range, grid))):
            box = tuple(slice(at * each, (at + 1) * each) for at, each in zip(place, size, strict=True))
            found = read(arrays, chunks, first + number)
            wanted = VALUES[box]
            np.testing.assert_array_equal(found[tuple(map(slice, wanted.shape))], wanted)
            assert chunks.size_of(first + number) == found.nbytes


def test_a_missing_chunk_is_its_fill_value_or_an_error(tmp_path):
    write(tmp_path / "a", np.full((4, 2), 7, "f4"), chunks=(2, 2), fill_value=7.5)
    (tmp_path / "a" / "c" / "1" / "0").unlink()
    arrays = [arrays_at(str(tmp_path / "a"))[""]]
    assert read(arrays, Chunks(arrays, "fill"), 1).tolist() == [[7.5, 7.5], [7.5, 7.5]]
    with pytest.raises(NotFound, match='never written; missing="fill"') as failure:
        read(arrays, Chunks(arrays, "error"), 1)
    assert failure.value.url.endswith("/a/c/1/0")


def test_a_damaged_chunk_is_an_error_with_its_url(tmp_path):
    write(tmp_path / "a", VALUES, chunks=(21, 6, 8))
    path = tmp_path / "a" / "c" / "0" / "0" / "0"
    path.write_bytes(path.read_bytes()[:-20])
    arrays = [arrays_at(str(tmp_path / "a"))[""]]
    with pytest.raises(Damaged) as failure:
        read(arrays, Chunks(arrays, "fill"), 0)
    assert failure.value.url.endswith("/a/c/0/0/0")
