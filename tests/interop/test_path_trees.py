"""What lies below a prefix is one tree of directories and files, whatever objects and markers make it."""

import errno

import pytest

from penstock.errors import InvalidURL, NotFound
from penstock.interop import path
from penstock.source import open_source

KEYS = ("a", "a/b", "a/b/c", "d/", "d/e/", "d/e/f", "g//h", "data/")


@pytest.fixture
def source(request):
    source, _ = open_source(f"memory://{request.node.originalname.replace('_', '-')[:60]}/")
    for key in KEYS:
        source.put(key, b"full" if key == "data/" else b"" if key.endswith("/") else b"1")
    return source


def test_objects_and_directories_of_one_name(source):
    assert [path.file_at(source, key) is not None for key in ("a", "a/b", "d", "d/", "data/", "")] == [
        *(True, True, False, False, True, False),
    ]
    assert [path.directory(source, key) for key in ("a", "a/b", "a/b/c", "d", "d/e", "g", "g/", "")] == [
        *(True, True, False, True, True, True, True, True),
    ]
    assert path.stat_path(source, "a")["type"] == "file"
    assert path.stat_path(source, "d")["type"] == "directory"
    with pytest.raises(NotFound):
        path.stat_path(source, "no")


def test_children_come_once_and_in_order(source):
    assert [*path.children(source, "")] == ["a", "d", "data", "g"]
    assert [*path.children(source, "a")] == ["a/b"]
    assert [*path.children(source, "d")] == ["d/e"]
    assert [*path.children(source, "g")] == ["g//"]
    assert [*path.children(source, "g//")] == ["g//h"]
    with pytest.raises(NotADirectoryError):
        [*path.children(source, "a/b/c")]


def test_matches_are_files_and_directories(source):
    assert [*path.matches(source, "", "*")] == ["a", "d", "data", "g"]
    assert [*path.matches(source, "", "**")] == ["a", "a/b", "a/b/c", "d", "d/e", "d/e/f", "data", "g", "g//", "g//h"]
    assert [*path.matches(source, "", "**/")] == ["a", "a/b", "d", "d/e", "data", "g", "g//"]
    assert [*path.matches(source, "d", "*")] == ["d/e"]
    with pytest.raises(InvalidURL):
        [*path.matches(source, "d", "/")]


def test_nonempty_tree_is_removed_only_recursively(source):
    with pytest.raises(OSError, match="not empty") as caught:
        path.remove_tree(source, "d", recursive=False)
    assert caught.value.errno == errno.ENOTEMPTY
    path.remove_tree(source, "d", recursive=True)
    assert path.objects(source, "d") == []
    source.put("empty/", b"")
    path.remove_tree(source, "empty", recursive=False)
    for key, error in (("empty", NotFound), ("a/b/c", NotADirectoryError), ("", InvalidURL)):
        with pytest.raises(error):
            path.remove_tree(source, key, recursive=True)
