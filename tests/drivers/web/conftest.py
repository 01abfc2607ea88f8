"""Servers that the tests of this folder read from."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import REQUIRE_SERVERS
from tests.servers.nginx import missing, nginx


@pytest.fixture(scope="session")
def nginx_server(tmp_path_factory):
    """Nginx; skipped where it is not installed, unless PENSTOCK_REQUIRE_SERVERS=1."""
    if absent := missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(absent)
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture
def served(nginx_server):
    """Return the server with an empty folder."""
    for each in nginx_server.folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return nginx_server
