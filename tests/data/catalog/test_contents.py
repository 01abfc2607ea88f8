"""A catalog's contents are plain values: entry by entry, and as arrays."""

import pytest

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.contents import Contents
from penstock.data.catalog.rows import Entry
from penstock.errors import Unusable
from penstock.values import Span

ENTRIES = [Entry("a/1", 5, None, "x"), Entry("a/2", -1), Entry("a/1", 2, None, "x", 1)]


@pytest.fixture
def contents():
    built = Catalog.build("s3://bucket/", "a/", ENTRIES)
    return Contents(built.root, built.base, built._table)


def test_entries_and_arrays_are_the_same(contents):
    assert list(contents) == ENTRIES
    assert contents.sizes.tolist() == [5, -1, 2]
    assert contents.total_bytes == -1
    assert [contents.span(at) for at in range(3)] == [
        Span("a/1", 0, 5, "x", whole=True),
        Span("a/2", 0, None, "", whole=True),
        Span("a/1", 1, 3, "x"),
    ]
    assert contents.classes == ()
    with pytest.raises(Unusable, match="no classes"):
        _ = contents.labels


def test_a_part_shows_its_rows_alone(contents):
    part = Contents(contents.root, contents.base, contents._table, range(1, 3))
    assert list(part) == ENTRIES[1:]
    assert len(part) == 2
    assert part.digest != contents.digest
