"""Azure's dialect keeps every promise on a server that checks signatures, and believes none that is odd."""

import uuid
from base64 import b64encode

import pytest

from penstock.drivers.azure import Azure, Container
from penstock.drivers.azure.signing import AccountKey
from penstock.drivers.refreshing import RefreshingCredentials
from penstock.options import TransportOptions
from penstock.protocols.credentials import BearerToken
from penstock.testing.drivers import KEYS, DriverContract
from penstock.testing.faults import FaultServer, Settings
from penstock.transport.loop import connect
from tests.servers import Account


class Given:
    """A source of credentials that are there."""

    def __init__(self, credentials):
        self.credentials = credentials

    def load(self):
        return self.credentials


def driver_of(account, name, credentials=None):
    place = Container(name, account.name, account.endpoint, f"az://{name}/")
    driver = Azure(place, RefreshingCredentials(Given(credentials or AccountKey(account.key))))
    driver.page_keys = 50  # a thousand objects take Azurite eight seconds
    return driver


def account_of(server):
    options = server.store
    key = b64encode(server.settings.secret_key.encode()).decode()
    return Account(options.endpoint, options.account, key)


# Azure makes '/' of '\' and leaves out dots at the ends of parts (``providers.azure`` refuses both).
NAMES = [key for key in KEYS if "\\" not in key and not any(part.endswith(".") for part in key.split("/"))]


class TestAzurite(DriverContract):
    keys = NAMES
    page_keys = 50
    part_bytes = 100_000
    copies_parts = False  # 501

    @pytest.fixture
    def store(self, azurite):
        name = f"test-{uuid.uuid4().hex}"
        azurite.client().create_container(name)
        return driver_of(azurite, name), connect(TransportOptions(connections=16))


@pytest.fixture(scope="module")
def fault_server():
    with FaultServer.start(Settings(dialect="azure", tokens=("good",))) as server:
        yield server


class TestFaultServer(DriverContract):
    keys = NAMES
    page_keys = 50
    part_bytes = 100_000

    @pytest.fixture(params=["key", "token"])
    def store(self, fault_server, request):
        name = f"test-{uuid.uuid4().hex}"
        fault_server.make(name)
        credentials = BearerToken("good") if request.param == "token" else None
        return driver_of(account_of(fault_server), name, credentials), connect(TransportOptions())
