"""Words on a command line: an object of just this name first, then a glob, then a tree; and the place to copy to."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import NotFound, Unusable
from penstock.jobs.trees.plan import Origin
from penstock.jobs.trees.selection import (
    check_recursive,
    destination,
    elsewhere,
    left_out,
    resolve_local_key,
    select,
    select_objects,
)
from penstock.options import StoreOptions
from penstock.source import open_source

STORE = StoreOptions()


@pytest.fixture
def place(tmp_path):
    """Return the URL of a bucket of this test's own with a few objects."""
    url = f"memory://{tmp_path.name}/"
    source, _ = open_source(url)
    for key in ("a*", "ab", "ac/x", "both", "both/x", "dir/marker/", "dir/x"):
        source.put(key, b"1")
    return url


def keys(selection):
    return [meta.key for meta in selection.entries()]


def test_a_name_with_wildcards_is_the_object_of_just_this_name_before_it_is_a_glob(place):
    assert keys(select(f"{place}a*", STORE, recursive=False)) == ["a*"]
    assert keys(select(f"{place}a[b-z]", STORE, recursive=False)) == ["ab"]
    assert keys(select_objects(f"{place}a?/x", STORE)) == ["ac/x"]


def test_recursive_flag_selects_a_tree_and_slash_resolves_ambiguity(place):
    with pytest.raises(Unusable, match="pass -r for all"):
        select(f"{place}dir", STORE, recursive=False)
    with pytest.raises(Unusable, match=r"both/ for the tree"):
        select(f"{place}both", STORE, recursive=True)
    assert keys(select(f"{place}both/", STORE, recursive=True)) == ["both/x"]
    assert select(f"{place}dir", STORE, recursive=True).origin.lead == "dir/"
    assert select(f"{place}dir/", STORE, recursive=True).origin.lead == ""


def test_recursive_glob_that_would_leave_out_trees_is_refused(place):
    for word in ("*", "d*", "a[b-z]"):
        with pytest.raises(Unusable, match=r"a glob matches objects: leave out -r, write \*\* where"):
            check_recursive(select(f"{place}{word}", STORE, recursive=True))
    for word, found in (("d**", ["dir/marker/", "dir/x"]), ("a*", ["a*"])):
        chosen = select(f"{place}{word}", STORE, recursive=True)
        check_recursive(chosen)
        assert keys(chosen) == found


@pytest.mark.parametrize("word", ["nothing", "di", "nothing/", "no*"])
def test_missing_source_raises_no_later_than_first_entry(place, word):
    with pytest.raises(NotFound, match="no object"):
        select(f"{place}{word}", STORE, recursive=True).entries()
    with pytest.raises(Unusable, match="names a bucket"):
        select_objects(place, STORE)


def test_trailing_slash_or_multiple_sources_make_the_destination_a_folder(place):
    one, glob = Origin("file:///", "a", "object"), Origin("file:///", "", "glob", glob="*")
    _, named = destination(f"{place}new", STORE, [one])
    assert (named.key, named.into) == ("new", False)
    for word, origins in (("new/", [one]), ("new", [one, one]), ("new", [glob])):
        _, folder = destination(f"{place}{word}", STORE, origins)
        assert (folder.key, folder.into) == ("new/", True)
    with pytest.raises(Unusable, match=r"is a prefix: write .*/dir/ to copy into it"):
        destination(f"{place}dir", STORE, [one])


def test_a_local_path_loses_its_dots_and_the_links_on_its_way_and_keeps_its_last_name(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    root = os.path.realpath(tmp_path)[1:]
    assert resolve_local_key(f"{root}/link/./x") == f"{root}/real/x"
    assert resolve_local_key(f"{root}/real/../link") == f"{root}/link"
    assert resolve_local_key(f"{root}/link/..") == f"{root}/"
    assert resolve_local_key("..") == ""


def test_non_object_entries_in_local_tree_are_reported_with_kind(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").touch()
    (tmp_path / "to-file").symlink_to("real/file")
    (tmp_path / "to-folder").symlink_to("real")
    (tmp_path / "to-nothing").symlink_to("absent")
    os.mkfifo(tmp_path / "pipe")
    told = dict(left_out(select(f"{tmp_path}/", STORE, recursive=True)))
    assert {Path(path).name: kind for path, kind in told.items()} == {
        "to-folder": "a link to a directory",
        "to-nothing": "a link to no file",
        "pipe": "neither a file nor a directory",
    }


def test_s3_scheme_hint_is_given_only_for_local_paths():
    assert "without s3://" in elsewhere("file:///bucket/key")
    assert elsewhere("s3://bucket/key") == ""


def test_left_out_entries_are_found_without_stat_of_regular_files(tmp_path, monkeypatch):
    for name in ("a/x", "b/c/y", "z"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"data")
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a")
    selected = select(f"{tmp_path}/", STORE, recursive=True)
    looked = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: (looked.append(path), stat(path, **how))[1])
    monkeypatch.setattr(os, "lstat", lambda path: (looked.append(path), stat(path, follow_symlinks=False))[1])
    assert list(left_out(selected)) == [(f"{tmp_path}/b/link", "a link to a directory")]
    assert {Path(path).name for path in looked} == {"link"}


def test_entry_with_unreadable_kind_is_reported_and_others_are_checked(tmp_path, monkeypatch):
    """Some network file systems tell no kind in a listing, and the look that is then made may fail."""

    class Untold:
        def __init__(self, entry):
            self.name, self.path = entry.name, entry.path

        def is_symlink(self):
            raise PermissionError(self.path)

    (tmp_path / "a").write_bytes(b"data")
    (tmp_path / "b").symlink_to(tmp_path)
    scandir = os.scandir

    @contextmanager
    def scanned(folder):
        with scandir(folder) as found:
            yield [Untold(entry) if entry.name == "a" else entry for entry in found]

    selected = select(f"{tmp_path}/", STORE, recursive=True)
    monkeypatch.setattr(os, "scandir", scanned)
    assert list(left_out(selected)) == [
        (f"{tmp_path}/a", "neither a file nor a directory"),
        (f"{tmp_path}/b", "a link to a directory"),
    ]
