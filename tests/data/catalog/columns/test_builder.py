"""A table comes back out of its region as rows were added, empty columns cost nothing, and parts can be joined."""

import itertools
import pickle
import random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.columns import column
from penstock.data.catalog.columns.column import StringsBuilder, decode
from penstock.data.catalog.columns.compact import compact_etags
from penstock.data.catalog.columns.table import TableBuilder, vectors_of
from penstock.engine.listing.names import Names, PackedEntries
from penstock.errors import Unusable
from tests.refusals import refused

_rows = st.lists(
    st.tuples(
        st.binary(max_size=9), st.integers(-1, (1 << 63) - 1), st.text("abc-0", max_size=4), st.none() | st.booleans()
    )
)


def _travelled(thing):
    return pickle.loads(pickle.dumps(thing))


def _written(rows):
    growing = TableBuilder()
    for key, size, etag, label in rows:
        growing.add(key, size, etag, label)
    return growing


def _read(columns):
    label = {b"": None, b"true": True, b"false": False}
    return [
        (columns.keys[row], columns.sizes.view[row], columns.etags.text(row), label[columns.labels[row]])
        for row in range(columns.rows)
    ]


@given(_rows)
def test_table_rows_survive_freezing_and_pickling(rows):
    columns = _written(rows).freeze()
    assert _read(columns) == rows
    assert _read(_travelled(columns)) == rows


def test_a_range_of_an_object_whose_key_no_file_may_have_is_refused():
    refused(Unusable, "got 16385", TableBuilder().add, b"k" * 16_385, 5, offset=0)


@given(_rows, _rows)
def test_parts_join_in_order(first, second):
    whole = _written(first)
    whole.extend(_written(second))
    assert len(whole) == len(first) + len(second)
    assert _read(whole.freeze()) == first + second


@given(st.lists(st.lists(st.tuples(st.binary(max_size=9), st.integers(-1, 99), st.text("abé-0", max_size=4)))))
def test_pages_are_the_rows_that_they_consist_of(pages):
    ours, theirs = TableBuilder(), _written([(*row, None) for page in pages for row in page])
    for page in pages:
        keys, sizes, etags = ([row[at] for row in page] for at in range(3))
        ours.add_all(PackedEntries.of(map(decode, keys), sizes, etags))
    assert len(ours) == len(theirs)
    assert _read(ours.freeze()) == _read(theirs.freeze())


_STRINGS = st.lists(
    st.binary(max_size=3) | st.sampled_from([b"0a", b"ff", b"FF", b"x" * 400, b"a/000.jpg"]), max_size=9
)


@given(st.lists(st.tuples(_STRINGS, st.sampled_from(["add", "page", "part"]))), st.data())
def test_strings_of_a_builder_come_back_in_slices(steps, data):
    found, wanted = StringsBuilder(), []
    with patch.object(column, "_BLOCK", 4):
        for strings, how in steps:
            wanted += strings
            if how == "page":
                found.add_all(Names.of(strings))
                continue
            part = StringsBuilder() if how == "part" else found
            for each in strings:
                part.add(each)
            if how == "part":
                found.extend(part)
    assert len(found) == len(wanted)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(wanted))] * 2)))
    for rows in (range(len(wanted)), range(first, last)):
        assert [*Names(*reversed(found.joined(rows)))] == wanted[rows.start : rows.stop]


@given(
    st.lists(st.lists(st.sampled_from(["0f" * 16, "ab" * 16]), min_size=1, max_size=9)),
    st.sampled_from(["", "AB" * 16, "x"]),
)
def test_digests_of_a_builder_are_those_of_its_strings(blocks, other):
    texts = [*itertools.chain(*blocks), *filter(None, [other])]
    found = StringsBuilder()
    for strings in (*blocks, [other] if other else []):
        part = StringsBuilder()
        part.add_all(Names.of([*map(str.encode, strings)]))
        part.joined(range(1))
        found.extend(part)
    etags = compact_etags(found)
    assert [etags.text(row) for row in range(len(texts))] == texts
    etags.check()


def test_held_strings_take_few_bytes():
    """Digits take half a byte each, and keys of a listing less than a fifth of their length."""
    for strings, least in (
        ([f"{at * 7919:032x}" for at in range(4000)], 2),
        ([f"train/{at:09}.jpg" for at in range(4000)], 5),
    ):
        found = StringsBuilder()
        found.add_all(Names.of([*map(str.encode, strings)]))
        found.joined(range(1))
        (block,) = found._blocks
        assert len(block.data) * least <= sum(map(len, strings))
        assert block.lengths.strides == (0,), "one length for all"


def _bytes(columns):
    vectors, _ = vectors_of(columns)
    return sum(each.bytes for each in vectors)


def test_a_column_of_nothing_takes_no_memory():
    bare = _written([(b"key", 1, "", None)] * 1000).freeze()
    assert _bytes(bare) == 1000 + 3 * 1000, "a byte of size each, and keys of one length"


@pytest.mark.parametrize(
    ("endings", "bytes_of_a_row"), [([""], 22.4), (["", "-3", "-10000"], 23.4), ([f"-{n}" for n in range(255)], 23.5)]
)
def test_a_row_takes_23_bytes_and_its_key_or_fewer(endings, bytes_of_a_row):
    rows = [
        (
            b"%d/%d.jpg" % (n % 1000, n),
            (1 << 32) - n - 1,
            random.Random(n).randbytes(16).hex() + endings[n % len(endings)],
            None,
        )
        for n in range(30_000)
    ]
    assert _bytes(_written(rows).freeze()) - sum(len(row[0]) for row in rows) < bytes_of_a_row * len(rows)


@pytest.mark.parametrize("label", [{1, 2}, b"bytes", object()])
def test_label_not_convertible_to_json_is_refused_with_its_key(label):
    refused(Unusable, "some/key", TableBuilder().add, b"some/key", 1, "", label)


def test_a_label_that_contains_itself_is_refused():
    label = []
    label.append(label)
    refused(Unusable, "label", TableBuilder().add, b"k", 1, "", label)
