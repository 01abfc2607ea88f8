"""Tables: rows taken and joined are the rows that were there, ranges included, and a damaged table is refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.column import Column
from penstock.catalog.storage.table import column_bytes, layout, shape_of
from penstock.errors import Unusable


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
            table.sizes[row],
            table.etags[table.object(row)].decode(),
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
        with pytest.raises(Unusable, match=why):
            plain.plus(other)


def test_a_layout_names_every_byte_once():
    shape = shape_of(5, [7, 0, 3], 2)
    columns = layout(shape)
    assert [each["bytes"] for each in columns] == list(column_bytes(shape))
    assert [each["offset"] for each in columns] == [sum(column_bytes(shape)[:number]) for number in range(len(columns))]
    assert columns[-1]["offset"] + columns[-1]["bytes"] == shape.size_bytes


def test_sizes_below_nothing_are_found():
    table = _table([Row(b"a", 1, "", None, -1)])
    np.frombuffer(table.region.view, np.int64, 1)[0] = -2
    with pytest.raises(ValueError, match="sizes below nothing"):
        table.check()
