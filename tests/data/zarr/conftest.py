"""Servers and limits that tests of arrays share."""

import uuid

import pytest

from penstock.testing.faults import FaultServer


@pytest.fixture
def server():
    """Run a server with an empty bucket of the name "bucket"."""
    with FaultServer.within() as running:
        running.make("bucket")
        yield running


@pytest.fixture
def bucket():
    return f"memory://bucket-{uuid.uuid4().hex}"


@pytest.fixture
def nothing_kept(monkeypatch):
    """Read small arrays chunk by chunk, as large ones are."""
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
