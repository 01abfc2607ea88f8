"""The digest says which names and sizes there are, in which order; and of ranges, where they begin."""

import pytest

from penstock.data.catalog.catalog import Catalog, Entry
from tests.data.catalog.conftest import PETS
from tests.data.catalog.test_catalog import _travelled


class TestDigest:
    def test_neither_place_nor_etag_nor_label_count(self, pets):
        moved = [Entry(entry.key.replace("pets/", "a/b/"), entry.size) for entry in PETS]
        assert Catalog.build("gs://elsewhere/", "a/b/", moved).digest == pets.digest

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ([Entry("ab", 1), Entry("c", 1)], [Entry("a", 1), Entry("bc", 1)]),
            ([Entry("a", 1), Entry("b", 2)], [Entry("a", 2), Entry("b", 1)]),
            ([Entry("a", 1), Entry("b", 1)], [Entry("b", 1), Entry("a", 1)]),
            ([Entry("a", 1)], [Entry("a", 1), Entry("a", 1)]),
            ([Entry("a", 1)], [Entry("a", -1)]),
            ([], [Entry("", 0)]),
        ],
    )
    def test_names_sizes_order_and_number_count(self, one, other):
        assert Catalog.build("s3://b/", "", one).digest != Catalog.build("s3://b/", "", other).digest

    def test_digest_value_stays_the_same_across_releases(self, pets):
        # A resume state of last year holds it: changing how it is computed refuses them all.
        assert pets.digest == "15dbd2e028e7e16ebd6a0b2ef21cccb3d662a0064283cce519399c42407bdf88"

    def test_digest_covers_entries_beyond_the_first_block(self):
        entries = [Entry(f"k{i}", i) for i in range(9000)]
        catalog = Catalog.build("s3://b/", "", entries)
        entries[8999] = Entry("k8999", 1)
        assert Catalog.build("s3://b/", "", entries).digest != catalog.digest

    def test_digest_is_computed_once_and_survives_pickling(self, pets):
        digest = pets.digest
        assert _travelled(pets).__dict__["digest"] == digest

    def test_different_ranges_of_an_object_have_different_digests(self):
        def digest(*entries):
            return Catalog.build("s3://b/", "", entries).digest

        found = [
            digest(Entry("a", 5), Entry("a", 5)),
            digest(Entry("a", 5, offset=0), Entry("a", 5)),
            digest(Entry("a", 5, offset=0), Entry("a", 5, offset=0)),
            digest(Entry("a", 5, offset=0), Entry("a", 5, offset=5)),
            digest(Entry("a", 5, offset=5), Entry("a", 5, offset=0)),
            digest(Entry("a", 5, offset=0), Entry("b", 5, offset=5)),
        ]
        assert len(set(found)) == len(found)
        assert found[3] == "544c24e775fcad6b2db2a57678fb34005e154584d4b3b6f4c79896800bb63e71", (
            "a resume state of last year holds it"
        )

    def test_a_part_without_a_range_has_the_digest_of_whole_objects(self):
        mixed = Catalog.build("s3://b/", "", [Entry("a", 5, offset=0), Entry("b", 5)])
        assert mixed[1:].digest == Catalog.build("s3://b/", "", [Entry("b", 5)]).digest
