"""A store to measure: an S3 server in this process; and pieces small enough for it."""

import pytest

from penstock.testing.faults import FaultServer


@pytest.fixture
def server():
    with FaultServer.within() as running:
        running.make("bucket")
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Two pieces are an upload in parts, and an object that counts as large; the machine is looked at briefly."""
    monkeypatch.setattr("penstock.cli.bench.run._PIECE_BYTES", 9 << 20)
    monkeypatch.setattr("penstock.cli.bench.limits._SOCKET_S", 0.02)
    monkeypatch.setattr("penstock.cli.bench.limits._COPY_BYTES", 1 << 20)
