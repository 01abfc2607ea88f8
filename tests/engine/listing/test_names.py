"""Byte strings in one buffer behave as a list of them, and their order is that of bytes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.listing.listing import pack_entries
from penstock.engine.listing.names import Names, gather, windows
from penstock.values import ObjectMeta

_NAMES = st.lists(st.binary(max_size=5) | st.text("aé/\0", max_size=4).map(str.encode), max_size=12)


@given(_NAMES, st.slices(12))
def test_names_are_a_sequence_of_their_strings(names, part):
    found = Names.of(names)
    assert [*found] == names
    assert len(found) == len(names)
    assert [*found[part]] == names[part]
    assert found[part] == names[part]
    assert found[part].texts() == [each.decode("utf-8", "surrogateescape") for each in names[part]]
    assert found[part].joined.tobytes() == b"".join(names[part])
    assert found[part].lengths.tolist() == [*map(len, names[part])]
    with pytest.raises(IndexError):
        found[len(names)]


@given(_NAMES, st.slices(12), st.integers(0, 1 << 12))
def test_first_disorder_is_the_first_string_that_is_not_below_the_next(names, part, which):
    for some in (names, sorted(names), sorted({*names}), sorted({*names})[part]):
        wrong = [at for at, (one, other) in enumerate(pairwise(some)) if one >= other]
        assert Names.of(some).first_disorder() == (wrong[0] if wrong else -1)
    mask = np.array([bool(which >> at & 1) for at in range(len(names))], np.bool_)
    assert [*Names.of(names).take(mask)] == [each for at, each in enumerate(names) if mask[at]]


@given(_NAMES, st.binary(max_size=3))
def test_without_removes_a_beginning_that_all_have(names, start):
    found = Names.of(names).without(start)
    if all(each.startswith(start) for each in names):
        assert [*found] == [each[len(start) :] for each in names]
    else:
        assert found is None


@given(st.binary(max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6))
def test_gather_returns_the_pieces_in_their_order(data, places):
    places = [(min(start, len(data)), min(size, len(data) - min(start, len(data)))) for start, size in places]
    starts, sizes = (
        (np.array(each, np.int64) for each in zip(*places, strict=True)) if places else (np.zeros(0, np.int64),) * 2
    )
    found = gather(np.frombuffer(data, np.uint8), starts, sizes)
    assert found.tobytes() == b"".join(data[start : start + size] for start, size in places)


def test_windows_have_the_bytes_from_each_start():
    data = np.frombuffer(b"abcdef", np.uint8)
    assert windows(data[::-1], np.array([0, 4]), 2).tobytes() == b"feba"
    assert windows(data, np.zeros(0, np.int64), 9).shape == (0, 9)
    with pytest.raises(IndexError):
        windows(data, np.array([5]), 2)


def test_entries_are_packed_and_come_back():
    metas = [ObjectMeta("a\udcff", 3, "é"), ObjectMeta("b", -1), ObjectMeta("c", 5, "x")]
    packed = pack_entries(metas)
    assert packed.lists() == (["a\udcff", "b", "c"], [3, -1, 5], ["é", "", "x"], ["", "", ""])
    assert packed.part(slice(1, 3)).lists()[0] == ["b", "c"]
    assert packed.take(np.array([True, False, True])).lists()[1] == [3, 5]
