"""Strings that lie end to end are gathered as a list would give them, in any order, a block at a time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.columns import column
from penstock.data.catalog.columns.column import Strings, blocks, decode, encode, taken
from tests.refusals import refused


def _column(values):
    ends = np.cumsum([0, *map(len, values)], dtype=np.uint64)
    return Strings(memoryview(b"".join(values)), memoryview(ends))


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@given(data=st.data())
def test_any_rows_come_end_to_end(block, data):
    values = data.draw(st.lists(st.binary(max_size=3), min_size=1, max_size=9))
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9) | st.slices(len(values)))
    chosen = range(len(values))[rows] if isinstance(rows, slice) else np.array(rows, np.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(column, "_BLOCK", block)
        ends, joined = _column(values).joined(chosen)
    assert [joined[start:stop].tobytes() for start, stop in pairwise(ends)] == [values[row] for row in chosen]


@given(st.slices(7), st.integers(1, 4))
def test_rows_of_an_array_are_taken_in_blocks_as_in_whole(part, size):
    values, rows = np.arange(7) * 10, range(7)[part]
    assert taken(values, rows).tolist() == [row * 10 for row in rows]
    assert [row for block in blocks(rows, size) for row in block] == list(rows)


def test_offsets_that_lead_outside_are_refused():
    for ends in ([1, 2], [0, 1], [0, 3, 2], [0, 9]):
        refused(ValueError, "lead outside", Strings(memoryview(b"ab"), memoryview(np.array(ends, np.uint64))).check)


def test_non_utf8_file_name_survives_decode_and_encode():
    assert encode(decode(b"caf\xe9.jpg")) == b"caf\xe9.jpg"
