"""Each name is a set of objects of its own in this process."""

from __future__ import annotations

import uuid

import pytest

from penstock.errors import InvalidURL, NotFound
from penstock.source import open_source
from penstock.stores.urls import parse


def test_sets_of_different_names_do_not_see_one_another():
    one, other = (open_source(f"memory://{uuid.uuid4().hex}/")[0] for _ in range(2))
    one.put("key", b"bytes")
    assert one.head("key").size == 5
    with pytest.raises(NotFound):
        other.head("key")


def test_a_set_needs_a_name():
    with pytest.raises(InvalidURL, match="no bucket: write memory://bucket/key"):
        parse("memory:///key")
    assert not parse("memory://m/key").local
