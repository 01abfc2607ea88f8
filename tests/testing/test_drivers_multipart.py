"""The contract notices uploads that show early, are joined in the wrong order, outlive an abort, or mix versions."""

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import Uploading
from tests.testing.broken_drivers import NOTICED, altered, trial_of


class Early(MemoryDriver):
    """Publishes each part as it comes."""

    def part(self, key, upload, part, body):
        return altered(super().part(key, upload, part, body), lambda etag: self._shown(key, body, etag))

    def _shown(self, key, body, etag):
        self._store(key, bytes(body.data), Attributes())
        return etag


class Arrived(MemoryDriver):
    """Joins the parts in the order of their arrival."""

    def __init__(self, name):
        super().__init__(name)
        self._order = []

    def part(self, key, upload, part, body):
        self._order.append(bytes(body.data))
        return super().part(key, upload, part, body)

    def complete(self, key, upload, etags, **condition):  # noqa: ARG002  the fault
        return self.put(key, Payload(b"".join(self._order)), Attributes())


class Undead(MemoryDriver):
    def abort(self, key, upload):  # noqa: ARG002  the fault
        return self.delete("no/such")


class Unpinned(MemoryDriver):
    def copy_part(self, key, upload, part, span):
        return super().copy_part(key, upload, part, span._replace(etag=""))


class Small(Uploading):
    part_bytes = 1000


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Early, "test_parts_become_one_object_at_once"),
        (Arrived, "test_parts_become_one_object_at_once"),
        (Undead, "test_an_aborted_upload_leaves_nothing"),
        (Unpinned, "test_a_copied_part_is_held_to_a_version"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_upload_that_breaks_a_promise_is_noticed(kind, promise):
    getattr(Small(), promise)(trial_of())
    with pytest.raises(NOTICED):
        getattr(Small(), promise)(trial_of(kind))
