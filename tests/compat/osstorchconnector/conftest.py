"""An emulator of OSS that checks signatures, with the files that a program of the connector's has."""

from __future__ import annotations

import json
from functools import partial

import pytest

from penstock.compat.osstorchconnector.datasets import Access
from penstock.testing.faults import FaultServer, Settings

REGION = "cn-beijing"


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(Settings(dialect="oss", region=REGION)) as server:
        for number in range(4):
            server.put("bucket", f"pre/{number}.txt", f"line {number}\nmore\n".encode())
        server.put("bucket", "m/manifest", b"0.txt\tzero\n3.txt\tthree\n")
        yield server


@pytest.fixture(scope="module")
def arguments(server, tmp_path_factory):
    """Return the arguments that the connector's classes share, with files of credentials and settings."""
    folder = tmp_path_factory.mktemp("connector")
    keys = {"AccessKeyId": server.store.access_key, "AccessKeySecret": server.store.secret_key}
    (folder / "credentials").write_text(json.dumps(keys), "utf-8")
    (folder / "config.json").write_text("{}", "utf-8")
    return {
        "endpoint": server.endpoint,
        "cred_path": str(folder / "credentials"),
        "config_path": str(folder / "config.json"),
        "region": REGION,
    }


@pytest.fixture(scope="module")
def access(arguments):
    return partial(Access, **arguments)()
