"""A bucket of Google's dialect that the environment names, with objects in it."""

from __future__ import annotations

import random
import uuid
from typing import NamedTuple

import pytest

from penstock.testing.faults import FaultServer, Settings

OBJECTS = {f"train/{number}": random.Random(number).randbytes(100 + number) for number in range(7)}
OTHERS = {"train/folder/": b"", "dataflux-composed-objects/x": b"composed", "other": b"other"}
TOKEN = "a-token-of-a-client"


class Bucket(NamedTuple):
    server: FaultServer
    name: str

    @property
    def objects(self) -> dict[str, bytes]:
        return self.server.objects(self.name)

    def put(self, key: str, data: bytes) -> None:
        self.server.put(self.name, key, data)


@pytest.fixture(scope="package")
def gcs_server():
    with FaultServer.start(Settings(dialect="gcs", tokens=(TOKEN,))) as server:
        yield server


@pytest.fixture
def gcs(gcs_server, monkeypatch):
    for name, value in gcs_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(gcs_server, f"test-{uuid.uuid4().hex}")
    gcs_server.make(bucket.name)
    return bucket


@pytest.fixture
def filled(gcs):
    for key, data in (OBJECTS | OTHERS).items():
        gcs.put(key, data)
    return gcs


@pytest.fixture
def client(gcs_server, monkeypatch):
    """Return a client of Google's own that has a token, for a server that nothing else names."""
    from google.cloud import storage
    from google.oauth2.credentials import Credentials

    for name in gcs_server.environment:
        monkeypatch.delenv(name, raising=False)
    options = {"api_endpoint": gcs_server.endpoint}
    return storage.Client("project", Credentials(TOKEN), client_options=options)
