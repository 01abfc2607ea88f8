"""The contract notices reads of other bytes, fewer bytes or another version, and errors that do not name the object."""

from dataclasses import replace

import pytest

from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import ReadingTests
from tests.testing.broken_drivers import NOTICED, altered, trial_of


class Unpinned(MemoryDriver):
    def read(self, span, target):
        return super().read(span._replace(etag=""), target)


class Late(MemoryDriver):
    """Begins a range one byte late."""

    def read(self, span, target):
        return super().read(span._replace(start=span.start + (not span.whole and span.start > 0)), target)


class Short(MemoryDriver):
    """Gives what is there of a range, and says nothing of the rest."""

    def read(self, span, target):
        there = max(0, len(self._find(span.key).data) - span.start)
        return super().read(span, target.slice(0, min(target.size, there)))


class Unbounded(MemoryDriver):
    def get(self, key, etag, most_bytes=0, buffer=None):  # noqa: ARG002  the fault
        return super().get(key, etag)


class Nameless(MemoryDriver):
    def url(self, key):  # noqa: ARG002  the fault
        return "memory://somewhere"


class Forgetful(MemoryDriver):
    def head(self, key):
        return altered(super().head(key), lambda meta: replace(meta, metadata={}))


@pytest.mark.parametrize(
    ("kind", "promise", "arguments"),
    [
        (Unpinned, "test_another_version_is_changed", ()),
        (Late, "test_a_range_is_exactly_that_range", (10, 1)),
        (Short, "test_past_the_end_is_truncated", (5, 11)),
        (Unbounded, "test_of_an_object_of_unknown_size_no_more_is_read_than_stated", ()),
        (Nameless, "test_a_missing_object_is_not_found", ()),
        (Forgetful, "test_metadata_comes_back", ()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_read_that_breaks_a_promise_is_noticed(kind, promise, arguments):
    getattr(ReadingTests(), promise)(trial_of(), *arguments)
    with pytest.raises(NOTICED):
        getattr(ReadingTests(), promise)(trial_of(kind), *arguments)
