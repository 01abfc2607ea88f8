"""Strings in few bytes come back as they were, travel, and are refused where their offsets contradict each other."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.columns import compact as columns
from penstock.data.catalog.columns.column import Strings, pack
from penstock.data.catalog.columns.compact import Chosen, Even, Stepped, compact
from tests.refusals import refused

_values = st.lists(st.binary(max_size=5), max_size=70) | st.lists(st.binary(min_size=3, max_size=3), max_size=70)


def _compact(values):
    ends = np.cumsum([0, *map(len, values)], dtype=np.uint64)
    return compact(Strings(memoryview(b"".join(values)), memoryview(ends)))


def _read(strings):
    return [strings[row] for row in range(len(strings))]


@pytest.fixture(params=[32, 1 << 14], autouse=True)
def _slices(request, monkeypatch):
    monkeypatch.setattr(columns, "_ROWS", request.param)


@given(_values, _values, st.slices(70))
def test_strings_come_back_whole_in_parts_and_after_travelling(values, more, part):
    strings = _compact(values)
    strings.check()
    assert _read(strings) == values
    assert [strings.text(row) for row in range(len(values))] == [
        each.decode("utf-8", "surrogateescape") for each in values
    ]
    assert _read(pickle.loads(pickle.dumps(strings))) == values
    rows = range(len(values))[part]
    for chosen in (rows, np.array(rows, np.int32), np.array(rows, np.uint32)):
        assert _read(compact(Chosen((strings, chosen)))) == values[part]
        others = _compact(more)
        both = compact(Chosen((strings, chosen), (others, range(len(more))), (strings, chosen)))
        assert _read(both) == values[part] + more + values[part]


@pytest.mark.parametrize(("length", "dtype"), [(7, "|u1"), (1000, "<u2"), (70_000, "<u4")])
def test_offsets_are_as_wide_as_a_block_needs(length, dtype):
    values = [b"x" * (length + row % 2) for row in range(65)]
    strings = _compact(values)
    assert strings.parts["ends"].values.dtype.str == dtype
    assert len(strings.parts["bases"]) == 3
    assert _read(strings) == values


def test_strings_of_one_length_take_no_offsets():
    assert {len(_compact([b"ab"] * count).parts) for count in (1, 32, 33)} == {1}
    assert _compact([b""] * 40).parts == _compact([]).parts == {}
    refused(ValueError, "of one length", Even, pack([np.zeros(5, np.uint8)])[0], 2)


@pytest.mark.parametrize(
    ("part", "at", "value"),
    [
        ("bases", 0, 1),
        ("bases", 1, 0),
        ("bases", 1, (1 << 64) - 1),
        ("bases", 1, 1 << 40),
        ("ends", 0, 1),
        ("ends", 5, 200),
        ("ends", 5, 0),
        ("ends", 32, 255),
        ("ends", -1, 0),
        ("ends", -1, 255),
    ],
)
def test_offsets_that_contradict_each_other_are_refused(part, at, value):
    parts = {
        name: each.values.copy() for name, each in _compact([b"x" * (row % 3) for row in range(1, 41)]).parts.items()
    }
    parts[part][at] = value
    refused(ValueError, "outside", Stepped(*pack([*parts.values()])).check)


@pytest.mark.parametrize(
    ("bases", "ends"),
    [
        ([0], []),
        ([], []),
        ([0, 0], [0, 2]),
        ([0], [0] * 34),
        ([0, 0], [0] * 33),
        ([0], [0]),
    ],
)
def test_offsets_of_another_number_are_refused(bases, ends):
    arrays = [np.array(bases, np.uint64), np.array(ends, np.uint8), np.zeros(2, np.uint8)]
    refused(ValueError, "offsets", Stepped(*pack(arrays)).check)


@pytest.mark.parametrize("types", [("<i8", "|u1"), ("<u8", "|i1"), ("<u4", "|u1"), ("<u8", "<f4"), ("<u8", "|b1")])
def test_offsets_of_another_type_are_refused(types):
    arrays = [np.zeros(1, types[0]), np.zeros(2, types[1]), np.zeros(0, np.uint8)]
    refused(ValueError, "fit together", Stepped(*pack(arrays)).check)
