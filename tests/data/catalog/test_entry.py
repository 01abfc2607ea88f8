"""Entries: rows of a table as named tuples."""

from __future__ import annotations

from penstock.data.catalog.columns.table import TableBuilder
from penstock.data.catalog.rows import Entry, entry_of

ENTRIES = [
    Entry("train/a", 3, {"class": 1}, "etag"),
    Entry("train/b/c", 7, None, "", 0),
    Entry("train/b/c", 2, "text", "", 7),
    Entry("train/é😀"),
]


def test_a_row_is_the_entry_it_was_made_of():
    growing = TableBuilder()
    for key, size, label, etag, offset in ENTRIES:
        growing.add(key.encode(), size, etag, label, offset)
    table = growing.freeze()
    assert [entry_of(table, row) for row in range(table.rows)] == ENTRIES
