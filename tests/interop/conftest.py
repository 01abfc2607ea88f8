"""A fault server with a bucket, the requests that a call makes, and a bucket in memory."""

from __future__ import annotations

import uuid

import pytest

from penstock.testing.faults import FaultServer


@pytest.fixture
def server():
    with FaultServer.within() as server:
        server.make("bucket")
        yield server


@pytest.fixture
def asked(server):
    """Return what yields the methods of the requests that a call makes."""

    def asked(call):
        before = len(server.seen())
        call()
        return [seen.method for seen in server.seen()[before:]]

    return asked


@pytest.fixture
def root():
    return f"memory://{uuid.uuid4().hex}"
