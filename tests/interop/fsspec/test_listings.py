"""Listings are kept for those who ask for it, and forgotten when the same file system writes."""

from __future__ import annotations

import penstock as ps
from penstock.interop.fsspec import PenstockFileSystem, coroutines


def _elsewhere(url, data=b"1"):
    with ps.open(url, "wb") as file:
        file.write(data)


def test_nothing_is_kept_by_default(root):
    fs = PenstockFileSystem()
    fs.pipe_file(f"{root}/a/x", b"1")
    looks = [
        lambda: fs.ls(f"{root}/a", detail=False),
        lambda: fs.find(root),
        lambda: fs.glob(f"{root}/a/*"),
        lambda: fs.du(root),
        lambda: fs.info(f"{root}/a/x")["size"],
        lambda: fs.ukey(f"{root}/a/x"),
        lambda: fs.isdir(f"{root}/c"),
        lambda: fs.cat_file(f"{root}/a/x"),
    ]
    before = [each() for each in looks]
    _elsewhere(f"{root}/a/x", b"longer")
    _elsewhere(f"{root}/a/y")
    _elsewhere(f"{root}/c/z")
    after = [each() for each in looks]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] * len(looks)
    ps.delete(f"{root}/a/x")
    assert (fs.exists(f"{root}/a/x"), fs.isfile(f"{root}/a/x")) == (False, False)


def test_kept_listings_are_forgotten_by_writes_of_the_same_file_system(root):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    assert len(fs.ls(f"{root}/a")) == 1
    _elsewhere(f"{root}/a/y")
    assert len(fs.ls(f"{root}/a")) == 1
    fs.ls(f"{root}/a")[0]["size"] = 99
    _elsewhere(f"{root}/a/x", b"longer")
    assert (fs.info(f"{root}/a/x")["size"], fs.info(f"{root}/a/x", refresh=True)["size"]) == (1, 6)
    assert len(fs.ls(f"{root}/a", refresh=True)) == 2
    assert len(fs.ls(f"{root}/a")) == 2
    assert [names for *_, names in fs.walk(f"{root}/a", refresh=True)] == [["x", "y"]]
    _elsewhere(f"{root}/a/x")
    assert fs.info(f"{root}/a/x")["size"] == 6
    fs.ls(f"{root}/a", refresh=True)
    assert fs.info(f"{root}/a/x")["size"] == 1
    fs.invalidate_cache(f"{root}/a")
    assert len(fs.ls(f"{root}/a")) == 2
    for number, write in enumerate(
        [
            lambda: fs.pipe_file(f"{root}/a/z0", b""),
            lambda: fs.open(f"{root}/a/z1", "wb").close(),
            lambda: fs.cp_file(f"{root}/a/x", f"{root}/a/z2"),
            lambda: fs.touch(f"{root}/a/z3"),
        ]
    ):
        write()
        assert len(fs.ls(f"{root}/a")) == 3 + number
    fs.rm(f"{root}/a", recursive=True)
    assert fs.find(root) == []
    assert not fs.exists(f"{root}/a")


def test_a_listing_while_a_file_is_written_is_not_kept(root):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    with fs.open(f"{root}/a/y", "wb") as file:
        assert len(fs.ls(f"{root}/a")) == 1
        file.write(b"1")
    assert len(fs.ls(f"{root}/a")) == 2
    with fs.transaction:
        fs.pipe_file(f"{root}/a/z", b"1")
        assert len(fs.ls(f"{root}/a")) == 2
    assert len(fs.ls(f"{root}/a")) == 3
    fs.open(f"{root}/a/dropped", "wb").abort()
    assert len(fs.ls(f"{root}/a")) == 3
    _elsewhere(f"{root}/a/w")
    assert len(fs.ls(f"{root}/a")) == 3, "listings are kept again"


def test_a_listing_that_a_write_came_into_is_not_kept(root, monkeypatch):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    listed = coroutines.ls

    def check(before, write):
        def overtaken(*words):
            found = listed(*words)
            write()
            return found

        monkeypatch.setattr(coroutines, "ls", overtaken)
        assert len(fs.ls(f"{root}/a")) == before
        monkeypatch.undo()
        assert len(fs.ls(f"{root}/a")) == 3 - before
        fs.invalidate_cache()

    check(1, lambda: fs.pipe_file(f"{root}/a/y", b"1"))
    check(2, lambda: fs.rm_file(f"{root}/a/y"))
    check(1, lambda: fs.open(f"{root}/a/z", "wb").close())
