"""Stores to examine: S3 servers that heed all, ignore conditions, or go wrong."""

import pytest

from penstock.testing.faults import FaultServer, Settings


@pytest.fixture
def strict():
    with FaultServer.within(Settings()) as server:
        server.make("bucket")
        yield server


@pytest.fixture
def careless():
    """Serve as a store does that ignores conditions on writes."""
    with FaultServer.within(Settings(conditions="ignored")) as server:
        server.make("bucket")
        yield server
