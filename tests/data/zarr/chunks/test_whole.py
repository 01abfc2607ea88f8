"""An array is read whole: chunks, shards, and the fill value of what was never written."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.data.zarr.chunks.contents import Chunks, whole_arrays
from penstock.errors import Unusable
from tests.data.zarr.stores import LAYOUTS, arrays_at, numbered, write


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_values_of_an_array_are_read(tmp_path, layout):
    values = numbered((11, 6, 8))
    written = write(tmp_path / "a", values, ("t", "y", "x"), **LAYOUTS[layout])
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    [found] = whole_arrays(Chunks([array], "fill"), [0], array.source)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(found, written[...])


def test_a_chunk_that_was_never_written_is_full_of_the_fill_value(tmp_path):
    written = write(tmp_path / "a", numbered((4,)), ("t",), chunks=(2,), fill_value=7)
    next((tmp_path / "a").glob("c/1")).unlink()
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    [found] = whole_arrays(Chunks([array], "fill"), [0], array.source)
    assert found.tolist() == written[...].tolist() == [0, 1, 7, 7]


def test_array_of_too_many_chunks_is_refused_before_they_are_listed(tmp_path):
    write(tmp_path / "a", numbered((4,)), ("t",), chunks=(2,))
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    many = array._replace(layout=replace(array.layout, shape=(1 << 40,)))
    with pytest.raises(Unusable, match="read as a whole, and has 549,755,813,888 chunks"):
        whole_arrays(Chunks([many], "fill"), [0], many.source)
