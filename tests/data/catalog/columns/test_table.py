"""Tables: rows taken and joined are the rows that were there, ranges included, and a damaged table is refused."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.column import Column, pack
from penstock.data.catalog.columns.compact import Even
from penstock.data.catalog.columns.table import Ranges, TableBuilder, described, pad_vectors, vectors_of
from penstock.errors import Unusable
from tests.refusals import refused


class Row(NamedTuple):
    key: bytes
    size: int
    etag: str
    label: bool | None
    offset: int


ROWS = st.lists(
    st.builds(
        Row,
        key=st.binary(max_size=3),
        size=st.integers(0, 99),
        etag=st.text("ab", max_size=2),
        label=st.none() | st.booleans(),
        offset=st.integers(-1, 3),
    ),
    max_size=8,
)


def _table(rows):
    growing = TableBuilder()
    for row in rows:
        growing.add(*row)
    return growing.freeze()


def _rows(table):
    label = {b"": None, b"true": True, b"false": False}
    offsets = [-1] * table.rows if table.ranges is None else table.ranges.offsets.values.tolist()
    return [
        Row(
            table.keys[table.object(row)],
            table.sizes.view[row],
            table.etags.text(table.object(row)),
            label[table.labels[row]],
            offsets[row],
        )
        for row in range(table.rows)
    ]


@given(ROWS, st.data())
def test_rows_that_are_taken_are_those_of_the_table_in_the_order_asked_for(rows, data):
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows)))) if rows else st.just([]))
    table = _table(rows)
    table.check()
    taken = table.take(np.array(chosen, np.int64))
    taken.check()
    assert _rows(taken) == [rows[each] for each in chosen]
    assert table.take(range(len(rows))) is table, "all of them are no copy"


@given(ROWS, ROWS)
def test_tables_join_in_order(first, second):
    joined = _table(first).plus(_table(second))
    joined.check()
    assert _rows(joined) == first + second


def test_only_tables_with_the_same_columns_and_classes_join():
    plain = _table([Row(b"a", 1, "", None, -1)])
    numbered = plain.having(classes=Column.of(np.zeros(1, np.int64), ["cat"]))
    weighted = plain.having(columns={"weight": Column.of(np.zeros(1, np.int64), ["heavy"])})
    assert numbered.plus(numbered).rows == 2
    for other, why in ((numbered, "classes"), (weighted, "the columns weight")):
        refused(Unusable, why, plain.plus, other)


def test_contradictions_are_found():
    plain, ranged = _table([Row(b"a", 1, "", None, -1)] * 2), _table([Row(b"a", 5, "", None, 3)])

    def numbers(*values, dtype=np.int64):
        return pack([np.array(values, dtype)])[0]

    def even(count):
        return Even(numbers(dtype=np.uint8), count)

    for table, why in (
        (plain.having(sizes=numbers(-2, 1)), "sizes"),
        (plain.having(sizes=numbers(2, 1, dtype=np.uint64)), "sizes"),
        (plain.having(sizes=numbers(2, 1, dtype=np.float64)), "sizes"),
        (plain.having(etags=even(1)), "without an ETag"),
        (plain.having(labels=even(3)), "without a label"),
        (plain.having(keys=even(1), etags=even(1)), "without ranges"),
        (ranged.having(ranges=Ranges(numbers(0), ranged.ranges.offsets)), "another type"),
        (ranged.having(ranges=Ranges(numbers(0, dtype=np.uint8), numbers(0.5, dtype=np.float32))), "another type"),
        (ranged.having(ranges=Ranges(numbers(1, dtype=np.uint8), ranged.ranges.offsets)), "unknown objects"),
        (ranged.having(ranges=Ranges(ranged.ranges.objects, numbers((1 << 63) - 2))), "outside"),
        (ranged.having(ranges=Ranges(ranged.ranges.objects, numbers(-2))), "outside"),
    ):
        refused(ValueError, why, table.check)


# -- vectors of a file


def test_vectors_lie_at_their_declared_aligned_offsets():
    growing = TableBuilder()
    for number in range(40):
        growing.add(b"k" * number, number, "e", number)
    vectors, values = vectors_of(growing.freeze())
    assert described([each._asdict() for each in vectors]) == vectors
    whole = b"".join(map(bytes, pad_vectors(vectors, values)))
    assert len(whole) == vectors[-1].stop
    for each, numbers in zip(vectors, values, strict=True):
        assert each.offset % 64 == 0
        assert whole[each.offset : each.stop] == numbers.values.tobytes()


def _catalog(count, name):
    growing = TableBuilder()
    for number in range(count):
        growing.add(f"{name}{number:07}{'x' * (number % 3)}".encode(), number, f"{number:032x}", number)
    return make_catalog("s3://bucket/", "", growing.freeze())


def _pieces():
    """Count the pieces of shared memory that this process holds; mmap has a descriptor of its own for each."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists them
            if "memfd:penstock" in str(each.readlink()):
                found.add(each.stat().st_ino)
    return len(found)


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc says is open")
def test_large_catalog_or_sum_occupies_a_single_memory_block():
    before = _pieces()
    first = _catalog(20_000, "a")
    assert _pieces() == before + 1
    second = _catalog(20_000, "b")
    both = first + second
    assert _pieces() == before + 3
    kept = [first[0], second[19_999]]
    assert [both[0], both[39_999]] == kept
    del first, second
    assert _pieces() == before + 1
    assert [both[0], both[39_999]] == kept
