"""One fault server for this room, and a bucket on it for each test."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock.testing.faults import FaultServer, Settings
from tests.servers import Bucket, Server


@pytest.fixture(params=["start", "within"])
def held(request):
    """Run a server of this test's own, in a process and in this one."""
    with getattr(FaultServer, request.param)(Settings(region="eu-test-1")) as server:
        yield server


@pytest.fixture
def server(s3_process):
    yield s3_process
    s3_process.heal()


@pytest.fixture
def bucket(server):
    """Make a fresh bucket and boto3's view of it."""
    keys = server.settings
    there = Server(server.endpoint, keys.access_key, keys.secret_key, keys.region)
    client = there.client()
    name = f"test-{uuid4().hex}"
    client.create_bucket(Bucket=name)
    yield Bucket(there, name, client)
    client.close()


@pytest.fixture(scope="module")
def azure_server():
    with FaultServer.within(Settings(dialect="azure", tokens=())) as server:
        server.make("box")
        yield server


@pytest.fixture
def box(azure_server):
    """A container through Microsoft's client."""
    from tests.stores.azure.test_driver import account_of

    azure_server.heal()
    return account_of(azure_server).client().get_container_client("box")
