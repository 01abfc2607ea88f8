"""Every store keeps every promise of a driver: the contract as a class for each row of the table of emulators."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from penstock.engine.transport.work import Threads
from penstock.options import TransportOptions
from penstock.source import open_source
from penstock.stores.local.driver import LocalDriver
from penstock.testing.drivers import DriverContract
from tests.emulators import EMULATORS


def _of(row):
    """Return a fixture of the contract: the driver that a user of the row's URL gets, and its transport."""

    @pytest.fixture
    def store(self, request):
        del self
        if row.name == "local":  # a user's keys begin at the root
            yield LocalDriver(str(request.getfixturevalue("tmp_path"))), Threads()
            return
        place = row.open(row, request)
        options = place.store  # moto drops connections beyond its short backlog
        options = options and replace(options, transport=TransportOptions(connections=16))
        with open_source(place.url, options)[0] as source:
            fetcher = source._fetcher()
            driver = fetcher.driver
            driver.abilities = replace(driver.abilities, form=row.form)
            if "page_keys" in row.promises:
                driver.page_keys = row.promises["page_keys"]
            yield driver, fetcher._transport

    return store


def _bucket_of(row, *, versions=False):
    """Return a fixture of the contract: a driver of a bucket that was never made, or keeps versions; else None."""
    if row.name not in (("moto", "ceph") if versions else ("moto", "ceph", "azurite", "s3")):
        return None

    @pytest.fixture
    def opened(self, request):
        del self
        place = row.open(row, request)
        url = place.url
        if versions:
            client = request.getfixturevalue(f"{row.name}_server").client()
            client.put_bucket_versioning(Bucket=url.split("/")[2], VersioningConfiguration={"Status": "Enabled"})
        else:
            url = f"{url[:-1]}-{uuid.uuid4().hex[:8]}/"
        with open_source(url, place.store)[0] as source:
            fetcher = source._fetcher()
            fetcher.driver.abilities = replace(fetcher.driver.abilities, form=row.form)
            yield fetcher.driver, fetcher._transport

    return opened


CONTRACTS = {row: f"Test{row.name.title().replace('-', '')}" for row in EMULATORS.values() if row.provider}
for row, name in CONTRACTS.items():
    own = {"__doc__": f"On {row.about}.", "__module__": __name__, **row.promises, "store": _of(row)}
    own |= {"unmade": fixture} if (fixture := _bucket_of(row)) else {}
    own |= {"versioned": fixture} if (fixture := _bucket_of(row, versions=True)) else {}
    found = type(name, (DriverContract,), own)
    globals()[name] = pytest.mark.ceph(found) if row.name == "ceph" else found
del found
