"""The same names at another place: of a catalog that is opened there, and of its entries."""

from __future__ import annotations

import pytest

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.rows import Entry
from penstock.data.catalog.saved import rename_entries
from penstock.errors import ManifestError
from penstock.stores.urls import parse

ENTRIES = [
    Entry("train/a", 3, {"class": 1}, "etag"),
    Entry("train/b/c", 7, None, "", 0),
    Entry("train/b/c", 2, "text", "", 7),
    Entry("train/é😀"),
]


@pytest.mark.parametrize("labelled", [True, False])
def test_names_sizes_and_ranges_stay_at_another_place_and_versions_do_not(labelled):
    moved = list(rename_entries(ENTRIES, "train/", parse("s3://copy/of"), labelled=labelled))
    assert [entry.key for entry in moved] == ["of/a", "of/b/c", "of/b/c", "of/é😀"]
    assert [(entry.size, entry.offset) for entry in moved] == [(entry.size, entry.offset) for entry in ENTRIES]
    assert [entry.label for entry in moved] == [entry.label if labelled else None for entry in ENTRIES]
    assert not any(entry.etag for entry in moved)


def test_a_name_leads_out_of_no_local_directory(tmp_path):
    entries = [Entry("train/a"), Entry("train/../../etc/passwd")]
    with pytest.raises(ManifestError, match="is outside of its directory"):
        list(rename_entries(entries, "train/", parse(tmp_path), labelled=True))
    assert len(list(rename_entries(entries, "train/", parse("s3://copy/"), labelled=True))) == 2, (
        "characters, in a bucket"
    )


def test_digest_of_a_relocated_catalog_is_that_of_its_contents():
    Catalog.build("s3://bucket/", "train/", ENTRIES).save("memory://relocation/a.catalog")
    moved = Catalog.open("memory://relocation/a.catalog", root="s3://copy/of/")
    assert moved.digest == Catalog.build("s3://copy/", "of/", list(moved)).digest


def test_url_for_each_field_is_refused_without_fields():
    Catalog.build("s3://bucket/", "train/", ENTRIES).save("memory://relocation/b.catalog")
    for root in ({}, {"jpg": "s3://copy/"}):
        with pytest.raises(ManifestError, match="for each field: it has no fields"):
            Catalog.open("memory://relocation/b.catalog", root=root)
