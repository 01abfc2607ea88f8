"""Entries: rows of a table as named tuples, and the same names at another place."""

from __future__ import annotations

import pytest

from penstock.data.catalog.rows import Entry, entry_of, relocated
from penstock.data.catalog.table import TableBuilder
from penstock.errors import ManifestError
from penstock.stores.urls import parse

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


@pytest.mark.parametrize("labelled", [True, False])
def test_names_sizes_and_ranges_stay_at_another_place_and_versions_do_not(labelled):
    moved = list(relocated(ENTRIES, "train/", parse("s3://copy/of"), labelled=labelled))
    assert [entry.key for entry in moved] == ["of/a", "of/b/c", "of/b/c", "of/é😀"]
    assert [(entry.size, entry.offset) for entry in moved] == [(entry.size, entry.offset) for entry in ENTRIES]
    assert [entry.label for entry in moved] == [entry.label if labelled else None for entry in ENTRIES]
    assert not any(entry.etag for entry in moved)


def test_a_name_leads_out_of_no_local_directory(tmp_path):
    entries = [Entry("train/a"), Entry("train/../../etc/passwd")]
    with pytest.raises(ManifestError, match="leads out of its directory"):
        list(relocated(entries, "train/", parse(tmp_path), labelled=True))
    assert len(list(relocated(entries, "train/", parse("s3://copy/"), labelled=True))) == 2, "characters, in a bucket"
