"""Drivers that break one promise each, for the tests of the contract: what it does not notice, it does not hold."""

from __future__ import annotations

import uuid

import pytest

from penstock.engine.contracts.exchange import Exchange
from penstock.engine.transport.work import Threads
from penstock.stores.memory import MemoryDriver
from penstock.testing.drivers import Trial

NOTICED = (AssertionError, pytest.fail.Exception)  # pytest's own: an error that should have been raised was not


def trial_of(kind=MemoryDriver):
    """Return a trial of an empty store of this kind of driver."""
    return Trial(kind(uuid.uuid4().hex), Threads(2))


def altered(exchange, change):
    """Return an exchange whose result is changed on its way to the caller."""
    return Exchange(exchange.request, lambda response: change(exchange.parse(response)))
