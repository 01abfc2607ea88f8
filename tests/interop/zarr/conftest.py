"""A fault server for a module, and a bucket of each test's own."""

from __future__ import annotations

import uuid

import pytest

from penstock.testing.faults import FaultServer


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as server:
        yield server


@pytest.fixture
def bucket(server):
    server.make(name := f"test-{uuid.uuid4().hex}")
    return name
