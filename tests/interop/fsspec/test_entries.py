"""Files, directories, and what a console leaves of them, as fsspec tells of them."""

from __future__ import annotations

import uuid

import pytest

from penstock.errors import NotFound
from penstock.interop.fsspec import coroutines
from penstock.source import open_source


@pytest.fixture
def source():
    found, _ = open_source(f"memory://{uuid.uuid4().hex}/")
    for key in ("a/x", "a/b/y", "ab", "c/", "c/d/", "e"):
        found.put(key, key.encode())
    return found


def _key(source):
    return lambda url: url.removeprefix(source.root)


def test_ls_returns_only_direct_children(source):
    found = {each["name"]: each["type"] for each in coroutines.ls(source, "", _key(source))}
    assert found == {"a": "directory", "ab": "file", "c": "directory", "e": "file"}
    assert [each["name"] for each in coroutines.ls(source, "a", _key(source))] == ["a/x", "a/b"]
    assert [each["name"] for each in coroutines.ls(source, "e", _key(source))] == ["e"]
    assert [each["name"] for each in coroutines.ls(source, "c", _key(source))] == ["c/d"]
    assert coroutines.ls(source, "c/d", _key(source)) == []
    with pytest.raises(NotFound):
        coroutines.ls(source, "none", _key(source))


def test_all_that_lies_below(source):
    assert sorted(coroutines.under(source, "", "", _key(source), withdirs=False)) == ["a/b/y", "a/x", "ab", "e"]
    with_dirs = coroutines.under(source, "", "", _key(source), withdirs=True)
    assert {name for name, each in with_dirs.items() if each["type"] == "directory"} == {"a", "a/b", "c", "c/d"}
    assert sorted(coroutines.under(source, "", "a", _key(source), withdirs=False)) == ["a/b/y", "a/x", "ab"]
    assert sorted(coroutines.under(source, "a", "", _key(source), withdirs=True)) == ["a/b", "a/b/y", "a/x"]
    found, prefixes = coroutines.level(source, "a", _key(source))
    assert ({each["name"] for each in found}, prefixes) == ({"a", "ab"}, ["a/"])
    assert sorted(coroutines.keys(source, "c")) == ["c/", "c/d/"]


def test_descriptions(source):
    name = _key(source)
    assert coroutines.info(source, "e", name)["size"] == 1
    assert coroutines.info(source, "a", name)["type"] == "directory"
    assert coroutines.info(source, "", name)["type"] == "directory"
    with pytest.raises(NotFound, match="none"):
        coroutines.info(source, "none", name)
    file = coroutines.info(source, "a/b/y", name)
    assert coroutines.latest(source, "a/b/y", file) == coroutines.latest(source, "a/b", {"type": "directory"})
