"""The contract notices writes that join, that heed no condition, and a deletion that fails for what is not there."""

from dataclasses import replace

import pytest

from penstock.engine.contracts.driver import Payload
from penstock.stores.direct import direct
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import Writing
from tests.testing.broken_drivers import NOTICED, trial_of


class Joining(MemoryDriver):
    """Writes over the beginning of what is there."""

    def put(self, key, body, attributes):
        there = self._objects[key].data if key in self._objects else b""
        return super().put(key, Payload(bytes(body.data) + there[len(body.data) :]), attributes)


class Overwriting(MemoryDriver):
    def put(self, key, body, attributes):
        return super().put(key, body, replace(attributes, create_only=False))


class Unconditional(MemoryDriver):
    def complete(self, key, upload, etags, **condition):  # noqa: ARG002  the fault
        return super().complete(key, upload, etags)


class Deaf(MemoryDriver):
    """Says that it deleted, and keeps everything."""

    def delete(self, key):  # noqa: ARG002  the fault
        return direct(lambda: None)


@pytest.mark.parametrize(
    ("kind", "promise", "arguments"),
    [
        (Joining, "test_a_put_replaces_whole", ()),
        (Overwriting, "test_only_a_new_object_is_made", ("put",)),
        (Unconditional, "test_only_a_new_object_is_made", ("complete",)),
        (Unconditional, "test_only_the_version_that_is_named_is_replaced", ("complete",)),
        (Deaf, "test_deleting_a_missing_object_is_no_error", ()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_write_that_breaks_a_promise_is_noticed(kind, promise, arguments):
    getattr(Writing(), promise)(trial_of(), *arguments)
    with pytest.raises(NOTICED):
        getattr(Writing(), promise)(trial_of(kind), *arguments)
