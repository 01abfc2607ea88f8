"""A fault server is held the same way in a process of its own and in ours, plays its script, and tells what it saw."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import NotFound


def test_the_environment_reaches_it(held, monkeypatch):
    for name, value in held.environment.items():
        monkeypatch.setenv(name, value)
    held.make("bucket")
    with ps.open("s3://bucket/k", "wb") as file:
        file.write(b"bytes")
    assert held.objects("bucket") == {"k": b"bytes"}
    assert held.uploads("bucket") == []
    with pytest.raises(NotFound):
        ps.stat("s3://nowhere/k")
    with pytest.raises(KeyError):
        held.objects("nowhere")
