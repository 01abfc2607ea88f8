"""ETags of any form come back as they were: sums in 16 bytes, with or without what follows them, and other texts."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.columns import compact
from penstock.data.catalog.columns.column import Column, Strings, encode, pack
from penstock.data.catalog.columns.compact import Digests, compact_etags, plus, take
from tests.refusals import refused

_hex = st.text("0123456789abcdef", min_size=32, max_size=32)
_sum = _hex | _hex.map(str.upper)
_any = _sum | st.tuples(_sum, st.sampled_from(["-1", "-10000", "", "=", "=x", "-é", "0"])).map("".join)
_any |= st.text(max_size=40) | st.text("0123456789abcdefA-=", min_size=30, max_size=35)
_etags = st.lists(_sum, max_size=9) | st.lists(_hex | _any, max_size=9) | st.lists(_any, max_size=9)


def _column(texts):
    data = [encode(each) for each in texts]
    ends = np.cumsum([0, *map(len, data)], dtype=np.uint64)
    return compact_etags(Strings(memoryview(b"".join(data)), memoryview(ends)))


def _read(column):
    return [column.text(row) for row in range(len(column))]


def _sums(count, ending=""):
    return [random.Random(number).randbytes(16).hex() + ending for number in range(count)]


@pytest.mark.parametrize("block", [2, 1 << 13])
@given(_etags, _etags, st.slices(9))
def test_etags_come_back_whole_in_parts_in_sums_and_after_travelling(block, texts, more, part):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compact, "_BLOCK", block)
        column, other = _column(texts), _column(more)
    column.check()
    assert _read(column) == texts
    assert _read(pickle.loads(pickle.dumps(column))) == texts
    for rows in (range(len(texts))[part], np.array(range(len(texts))[part], np.int64)):
        assert _read(take(column, rows)) == texts[part]
    both = plus(column, other)
    both.check()
    assert _read(both) == texts + more


@pytest.mark.parametrize(
    ("texts", "bytes_of_all"),
    [
        (_sums(9), 9 * 16),
        ([each.upper() for each in _sums(9)], 9 * 16),
        (_sums(9, "-3"), 9 * 16 + 9 + 3 * 8 + 2),
        (["", *_sums(9), ""], 11 * 16 + 11 + 3 * 8 + 1),
        (["0x8DC0123456789AB"] * 9, 9 * 17),
        ([""] * 9, 0),
    ],
)
def test_they_take_few_bytes(texts, bytes_of_all):
    column = _column(texts)
    assert _read(column) == texts
    assert sum(each.values.nbytes for each in column.parts.values()) == bytes_of_all


@pytest.mark.parametrize(
    "texts",
    [["g" * 32] * 4, [*_sums(3), " " * 32], [*_sums(3), _sums(1)[0].upper()], [*_sums(3), "aB" * 16], ["7" * 32] * 4],
    ids=["no digits", "blanks", "two cases", "a mixed one", "digits of both cases"],
)
def test_texts_as_long_as_sums_come_back_as_they_were(texts):
    assert _read(_column(texts)) == texts


def test_part_of_a_digest_column_keeps_only_the_endings_of_its_rows():
    column = _column([*_sums(20), *(f"other {number}" for number in range(15))])
    assert isinstance(column, Digests)
    assert take(column, range(20)).parts.keys() == {"lower"}
    assert len(take(column, range(19, 22)).parts["ends"]) == 4


def test_texts_without_sums_are_left_at_the_first_block():
    assert not isinstance(_column([*(f"a text {number}" for number in range(9000)), *_sums(9000)]), Digests)


def test_more_endings_than_any_store_has_are_texts(monkeypatch):
    monkeypatch.setattr(compact, "_MOST", 5)
    texts = [f"{each}-{number}" for number, each in enumerate(_sums(9))]
    assert not isinstance(_column(texts), Digests)
    assert _read(_column(texts)) == texts


def test_sums_and_codes_that_fit_nothing_are_refused():
    sums = pack([np.zeros(17, np.uint8)])[0]
    refused(ValueError, "part of a sum", Digests(sums, "lower", None).check)
    for codes, why in (([0], "the column must have"), ([0, 2], "a code without a text")):
        endings = Column.of(np.array(codes), ["", "-3"])
        refused(ValueError, why, Digests(pack([np.zeros(32, np.uint8)])[0], "lower", endings).check)
