"""Tests that run on every store: their buckets come from ``tests.emulators``."""

import pwd
from contextlib import ExitStack

import pytest

from tests.cli.conftest import _ordered, penstock  # noqa: F401  fixtures


@pytest.fixture
def stack():
    """Return a function that enters what is left again when the test ends."""
    with ExitStack() as entered:
        yield entered.enter_context


@pytest.fixture
def homeless(monkeypatch):
    """Be a user without a home directory: a container with a user id that /etc/passwd does not have."""

    def unknown(number):
        raise KeyError(number)

    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
