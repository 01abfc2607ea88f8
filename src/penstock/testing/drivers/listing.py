"""Listing: all keys with a prefix, once, in UTF-8 byte order, in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.testing.drivers.setting import Setting
from penstock.testing.drivers.trial import octets
from penstock.values import UNKNOWN_SIZE

if TYPE_CHECKING:
    from penstock.testing.drivers.trial import Trial

__all__ = ["Listing"]


class Listing(Setting):
    """Listing: all keys with a prefix, once, in UTF-8 byte order, in pages."""

    def test_a_listing_names_the_version_and_size_of_each_object(self, trial: Trial) -> None:
        """The same as every other verb names, or none."""
        for size in (0, 1, 4097):
            etag = trial.put("key", octets(size))
            listed = next(trial.pages("key")).entries[0]
            assert (listed.key, listed.size, listed.etag) == ("key", size, etag) or not self.lists_versions
            assert (listed.size in (size, UNKNOWN_SIZE), listed.etag in (etag, "")) == (True, True)

    def test_a_listing_is_in_byte_order(self, trial: Trial) -> None:
        """Of UTF-8, which is neither a locale's nor UTF-16's, and in which ``a/x`` stands after ``a.x``."""
        names = ["a.x", "a/x", "a0", "ab", "B", "Z", "é", "\uffee", "🐶", "a/b/c", "a/b.c"]
        trial.put_all(names)
        assert trial.keys() == sorted(names, key=str.encode)

    def test_a_prefix_is_a_string(self, trial: Trial) -> None:
        """Not a directory: ``train`` finds ``train2/x`` too."""
        trial.put_all(["train/1", "train2/x", "trai", "other"])
        assert trial.keys("train") == ["train/1", "train2/x"]
        assert trial.keys("train/") == ["train/1"]
        assert trial.keys("nothing") == []

    def test_start_after_is_exclusive(self, trial: Trial) -> None:
        """It need not be a key itself."""
        trial.put_all(["a", "b", "b.c", "d/e"])
        assert trial.keys(start_after="b") == ["b.c", "d/e"]
        assert trial.keys(start_after="aa") == ["b", "b.c", "d/e"]
        assert trial.keys(start_after="z") == []

    def test_a_long_listing_comes_in_pages(self, trial: Trial) -> None:
        """Of at most as many keys as a page has; together they are everything, once."""
        names = [f"many/{number:05}" for number in range(min(self.page_keys, 1_000) + 3)]
        trial.put_all(names)
        pages = list(trial.pages("many/"))
        first = min(self.page_keys, len(names))
        assert [len(page.entries) for page in pages] == [*filter(None, (first, len(names) - first))]
        assert [entry.key for page in pages for entry in page.entries] == names
        middle = len(names) // 2
        assert trial.keys("many/", start_after=names[middle]) == names[middle + 1 :]

    def test_a_delimiter_groups(self, trial: Trial) -> None:
        """What is below is named once, with the delimiter at its end."""
        trial.put_all(["a/1", "a/2", "a.txt", "b/c/d", "e"])
        page = next(trial.pages(delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == (["a.txt", "e"], ["a/", "b/"])
        page = next(trial.pages("b/", delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == ([], ["b/c/"])

    def test_groups_come_in_pages_too(self, trial: Trial) -> None:
        """A group is told once, also where a page ends in it."""
        full = min(self.page_keys, 1_000)
        groups = [f"{number:04}/" for number in range(full + 2)]
        trial.put_all([*(f"{group}a" for group in groups), *(f"{group}b" for group in groups[full - 2 :])])
        pages = list(trial.pages(delimiter="/"))
        assert [group for page in pages for group in page.prefixes] == groups
        assert not any(page.entries for page in pages)
