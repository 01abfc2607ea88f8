"""The contract notices a driver whose copies are other bytes, or of another version than was named."""

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import Copying
from tests.testing.broken_drivers import NOTICED, trial_of


class Unpinned(MemoryDriver):
    def copy(self, source, key, etag=""):  # noqa: ARG002  the fault
        return super().copy(source, key)


class Emptying(MemoryDriver):
    def copy(self, source, key, etag=""):  # noqa: ARG002  the fault
        return self.put(key, Payload(b""), Attributes())


def test_a_copy_of_other_bytes_is_noticed():
    Copying().test_a_copy_has_the_same_bytes(trial_of())
    with pytest.raises(NOTICED):
        Copying().test_a_copy_has_the_same_bytes(trial_of(Emptying))


def test_a_copy_of_another_version_is_noticed():
    Copying().test_a_copy_is_held_to_a_version(trial_of())
    with pytest.raises(NOTICED, match=r"DID NOT RAISE .*Changed"):
        Copying().test_a_copy_is_held_to_a_version(trial_of(Unpinned))
