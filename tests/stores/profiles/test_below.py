"""A driver below a prefix keeps every promise, sees nothing else, and has the verbs of the one it stands on."""

import inspect
import uuid
from typing import Protocol

import pytest

from penstock.engine.contracts import driver as contract
from penstock.engine.contracts.driver import Delete, Driver, Head, List, Multipart, Put, Read
from penstock.engine.support import supports
from penstock.engine.transport.work import Threads
from penstock.errors import NotFound
from penstock.stores.memory.driver import MemoryDriver
from penstock.stores.profiles.store import _VERBS, scope_driver
from penstock.testing.drivers import DriverContract, Trial
from tests.readonly import ReadOnly


class TestContractBelow(DriverContract):
    @pytest.fixture
    def store(self):
        return scope_driver(MemoryDriver(uuid.uuid4().hex), "some/base/", "penstock://below/"), Threads()


class TestContractAtTheRoot(DriverContract):
    @pytest.fixture
    def store(self):
        return scope_driver(MemoryDriver(uuid.uuid4().hex), "", "penstock://whole/"), Threads()


def test_keys_outside_the_prefix_are_hidden():
    memory, transport = MemoryDriver(uuid.uuid4().hex), Threads()
    whole, part = Trial(memory, transport), Trial(scope_driver(memory, "base/", "penstock://x/"), transport)
    for key in ("base/in", "base", "basement", "other/in"):
        whole.put(key, key.encode())
    part.put("new/one", b"new")
    assert part.keys() == ["in", "new/one"]
    assert part.get("in") == b"base/in"
    assert whole.get("base/new/one") == b"new"
    with pytest.raises(NotFound):
        part.get("basement")


def test_abilities_set_below_a_prefix_reach_the_underlying_driver():
    memory = MemoryDriver(uuid.uuid4().hex)
    part = scope_driver(memory, "base/", "penstock://x/")
    learned = contract.Abilities(tags=False)
    part.abilities = learned
    assert memory.abilities is part.abilities is learned
    assert part.url("a/b") == "penstock://x/a/b"


def test_every_verb_of_the_contract_is_known():
    verbs = {
        each
        for _, each in inspect.getmembers(contract, inspect.isclass)
        if Protocol in each.__bases__ and each not in (Driver, Head, Read, contract.Digest)
    }
    assert verbs == set(_VERBS), "stores/profiles/below.py has to translate the keys of a new verb"


def test_a_verb_that_is_missing_stays_missing():
    part = scope_driver(ReadOnly(MemoryDriver(uuid.uuid4().hex), "x"), "base/", "penstock://x/")
    assert supports(part, List)
    assert not any(supports(part, verb) for verb in (Put, Delete, Multipart))
