"""Roots, the directories one stands in, and what links lead to are neither deleted nor written by mistake."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.errors import Unusable
from penstock.jobs.trees.guard import LinkCheck, check_names, clear, in_the_way, link_on_the_way
from penstock.source import open_source
from tests.cli.conftest import COMMAND

FILES = ["elsewhere/kept", "here/below/file", "here/file"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Return a directory with some files, a link to one of its directories, and the working directory in it."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"bytes")
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def left(tree):
    found = (Path(at, name) for at, _, names in os.walk(tree) for name in names)
    return sorted(str(path.relative_to(tree)) for path in found)


ROOTS = [
    *["", ".", "./", "..", "../", "./.", "below/..", "/", "//", "file:///", "/.", "/..", "~", "**"],
    *["{tree}/here", "{tree}", "{tree}/here/**", "{tree}/link/../here", "{tree}/to-here/"],
    *["{home}", "{home}/", "{home}/..", "{home}/**", "{home}/**/*"],
]


@pytest.mark.parametrize("url", ROOTS)
def test_roots_home_and_the_working_directory_are_not_deleted(penstock, tree, url):
    (tree / "to-here").symlink_to("here")
    (tree / "home" / "below").mkdir(parents=True)
    (tree / "home" / "file").touch()
    before, home = left(tree), str(tree / "home")
    word = url.format(tree=tree, home=home)
    for command in (["rm", "-r", "-y", "--whole-bucket", word], ["mv", "-r", word, "memory://moved/"]):
        done = penstock(*command, HOME=home)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (command, done.stderr)
    assert left(tree) == before


def test_rm_deletes_a_directory_below_the_working_directory(penstock, tree):
    assert penstock("rm", "-r", "below").returncode == 0
    assert left(tree) == ["elsewhere/kept", "here/file"]


def test_a_bucket_is_not_moved_as_a_whole(penstock):
    for url in (
        "memory://bucket/",
        "memory://bucket",
        "memory://bucket/**",
        "memory://bucket/**/*",
        "memory://bucket/*",
    ):
        done = penstock("mv", *([] if url.endswith("/*") else ["-r"]), url, "moved/")
        assert (done.returncode, "whole bucket" in done.stderr) == (2, True)


@pytest.mark.parametrize(("word", "rest"), [("*", ["here/below/file"]), ("**/f*", [])])
def test_a_glob_that_is_not_everything_is_moved_from_the_working_directory(penstock, tree, word, rest):
    done = penstock("mv", word, "../moved/")
    assert done.returncode == 0, done.stderr
    assert [name for name in left(tree) if name.startswith("here/")] == rest


def test_rm_deletes_a_symlink_but_not_its_target(penstock, tree):
    (tree / "dangling").symlink_to("nowhere")
    (tree / "to-file").symlink_to("elsewhere/kept")
    done = penstock("rm", "-r", "../link", "../dangling", "../to-file")
    assert (done.returncode, done.stderr.startswith("deleted 3 objects")) == (0, True)
    assert left(tree) == FILES
    assert not (tree / "link").is_symlink()


def test_recursive_rm_deletes_the_files_of_a_tree_but_not_symlink_targets(penstock, tree):
    (tree / "here" / "below" / "out").symlink_to("../../elsewhere")
    (tree / "here" / "below" / "file2").symlink_to("../../elsewhere/kept")
    assert penstock("rm", "-r", "below").returncode == 0
    assert left(tree) == ["elsewhere/kept", "here/file"]


@pytest.mark.parametrize("word", ["../link/", "../link/."])
def test_a_link_that_may_mean_either_is_not_deleted(penstock, tree, word):
    done = penstock("rm", "-r", word)
    assert done.returncode == 2
    assert left(tree) == FILES


def test_a_link_to_a_directory_is_not_moved(penstock, tree):
    done = penstock("mv", "-r", "../link", "moved")
    assert done.returncode == 2
    assert f"name {tree}/elsewhere/" in done.stderr
    assert left(tree) == FILES


def test_a_tree_is_not_written_through_links_below_its_destination(penstock, tree):
    (tree / "here" / "out" / "ok").mkdir(parents=True)
    (tree / "here" / "out" / "below").symlink_to("../../elsewhere")
    for resume in ((), ("--resume",), ("--dry-run",)):
        done = penstock("cp", "-r", *resume, ".", "../here2/")
        assert done.returncode in (0, 2)
        done = penstock("cp", "-r", *resume, f"{tree}/here/below", "out/")
        assert done.returncode == 2
        assert f"through this link to a directory: remove it, or pass its target [{tree}/here/out/below]" in done.stderr
    assert [path.name for path in (tree / "elsewhere").iterdir()] == ["kept"]


def test_a_link_that_is_the_destination_is_written_through(penstock, tree):
    assert penstock("cp", "-r", "below", "../link").returncode == 0
    assert penstock("cp", "file", "../link/").returncode == 0
    assert left(tree / "elsewhere") == ["file", "kept"]


@pytest.mark.parametrize(
    ("base", "key", "found"),
    [
        ("a/", "a/link/x", "a/link"),
        ("a/link/", "a/link/x", ""),
        ("a/link", "a/link/x", ""),
        ("a/file", "a/file", ""),
        ("", "a/link/x", "a/link"),
        ("a/link", "a/link/deeper/x", "a/link/deeper"),
        ("a/", "a/b/c", ""),
    ],
)
def test_links_on_the_way(tmp_path, base, key, found):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "link").symlink_to("../b")
    (tmp_path / "b" / "deeper").symlink_to("../a")
    root = f"{tmp_path}/"[1:]
    assert link_on_the_way(root + base, root + key) == (found and f"/{root}{found}")


def test_file_names_with_invalid_utf_8_are_printed_unchanged(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).touch()
    done = subprocess.run([*COMMAND, "ls", f"{tmp_path}/"], capture_output=True, check=True)
    assert done.stdout == f"file://{tmp_path}/".encode() + b"caf\xe9\n"


def test_overlapping_paths_of_one_store_under_two_names_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text("[profiles.names]\nurl = 'memory://two-names/base/'\n")
    direct, other = open_source("memory://two-names/")[0], open_source("memory://third-name/")[0]
    profile = open_source("penstock://names/")[0]
    for source, prefix, target, key in (
        (direct, "base/x", profile, "x"),
        (profile, "x/", direct, "base/"),
        (direct, "", profile, "y"),
    ):
        with pytest.raises(Unusable, match="are in one store: write both in the same form"):
            check_names([(source, prefix)], target, key)
    for source, prefix, target, key in (
        (direct, "beside/", profile, "x"),
        (other, "base/x", profile, "x"),
        (profile, "x/", profile, "x/y"),  # one name: object by object
    ):
        check_names([(source, prefix)], target, key)


def test_path_that_blocks_writing_a_file_is_reported(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "to-folder").symlink_to(tmp_path / "folder")
    base = f"{tmp_path}/"[1:]
    for key, found in (
        ("file", ""),
        ("new/x", ""),
        ("folder/new", ""),
        ("folder", "folder"),
        ("folder/below", "folder/below"),
        ("file/x", "file"),
        ("file/x/y", "file"),
        ("link/x", "link"),
        ("to-folder", "to-folder"),
    ):
        assert in_the_way(base, base + key) == (f"{tmp_path}/{found}" if found else ""), key


def test_only_directories_without_files_are_removed(tmp_path):
    for path in ("a/empty/too", "a/kept", "b/c"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "a" / "kept" / "file").touch()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a")
    clear(f"{tmp_path}/b/link")
    assert (tmp_path / "a" / "empty" / "too").is_dir(), "nothing is removed through a link"
    for path in ("a", "b", "none"):
        clear(f"{tmp_path}/{path}")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["a", "a/kept", "a/kept/file", "b", "b/link"]


def test_a_folder_is_looked_at_again_when_another_comes_or_a_second_has_passed(tmp_path):
    now = [0.0]
    check = LinkCheck(f"{tmp_path}/"[1:], lambda: now[0])
    (tmp_path / "a").mkdir()
    a, b = (f"{tmp_path}/{name}/file"[1:] for name in "ab")
    assert check(a) == ""
    (tmp_path / "a").rmdir()
    (tmp_path / "a").symlink_to("elsewhere")
    assert check(a) == ""
    assert check(b) == ""
    assert check(a) == f"{tmp_path}/a"
    (tmp_path / "a").unlink()
    now[0] += 1.0
    assert check(a) == ""
