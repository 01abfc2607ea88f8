"""What tests of the environment share."""

from __future__ import annotations

import pwd

import pytest


@pytest.fixture
def homeless(monkeypatch):
    """Be a user without a home directory: a container with a user id that /etc/passwd does not have."""

    def unknown(number):
        raise KeyError(number)

    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
