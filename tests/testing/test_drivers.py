"""The contract's tests run for the verbs that a driver has, and skip by name those that it lacks."""

import uuid

import pytest

from penstock.engine.contracts.driver import Copy, Delete, Head, List, Multipart, PartCopy, Put, Read
from penstock.engine.transport.work import Threads
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import DriverContract, Trial
from tests.readonly import ReadOnly


class TestReadOnly(DriverContract):
    """A driver that reads and lists, filled by another one."""

    @pytest.fixture
    def writer(self):
        self.name = uuid.uuid4().hex
        return MemoryDriver(self.name), Threads(2)

    @pytest.fixture
    def store(self, writer):
        return ReadOnly(writer[0], self.name), Threads(2)

    @pytest.fixture
    def trial(self, store, writer):
        return Trial(*store, writer)


class TestUnlisted(TestReadOnly):
    """A driver that reads only."""

    @pytest.fixture
    def store(self, writer):
        class Unlisted(ReadOnly):
            list = None

        return Unlisted(writer[0], self.name), Threads(2)


@pytest.mark.parametrize("verb", [List, Put, Multipart, Copy, PartCopy, Delete], ids=lambda verb: verb.__name__)
def test_a_skip_names_the_verb_that_is_missing(verb):
    class Reads(ReadOnly):
        list = None

    trial = Trial(Reads(MemoryDriver("m"), "m"), Threads(2))
    assert not trial.has(verb)
    with pytest.raises(pytest.skip.Exception, match=f"the driver has no {verb.__name__}$"):
        trial.verb(verb)
    assert trial.has(Head, Read)
