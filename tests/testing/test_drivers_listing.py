"""The contract notices listings out of order, with keys beyond the bounds that were set, or with a group told twice."""

from dataclasses import replace

import pytest

from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import ListingTests
from tests.testing.broken_drivers import NOTICED, altered, trial_of


class Reversed(MemoryDriver):
    def list(self, prefix, **more):
        return altered(super().list(prefix, **more), lambda page: replace(page, entries=page.entries[::-1]))


class Folders(MemoryDriver):
    """Takes a prefix for a folder."""

    def list(self, prefix, **more):
        return super().list(prefix.rstrip("/") + "/" if prefix else "", **more)


class Inclusive(MemoryDriver):
    def list(self, prefix, *, start_after="", **more):
        before = start_after[:-1] + chr(ord(start_after[-1]) - 1) if start_after else ""
        return super().list(prefix, start_after=before, **more)


class Restarting(MemoryDriver):
    """Begins each page anew after the last key of the page before, in the middle of a group."""

    def list(self, prefix, *, token="", **more):
        return altered(
            super().list(prefix, token=token, **more),
            lambda page: replace(page, prefixes=(token, *page.prefixes)) if token.endswith("/") else page,
        )


class Unversioned(MemoryDriver):
    def list(self, prefix, **more):
        return altered(
            super().list(prefix, **more),
            lambda page: replace(page, entries=tuple(replace(each, etag="another") for each in page.entries)),
        )


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Reversed, "test_a_listing_is_in_byte_order"),
        (Folders, "test_a_prefix_is_a_string"),
        (Inclusive, "test_start_after_is_exclusive"),
        (Restarting, "test_groups_come_in_pages_too"),
        (Unversioned, "test_a_listing_names_the_version_and_size_of_each_object"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_listing_that_breaks_a_promise_is_noticed(kind, promise):
    getattr(ListingTests(), promise)(trial_of())
    with pytest.raises(NOTICED):
        getattr(ListingTests(), promise)(trial_of(kind))
