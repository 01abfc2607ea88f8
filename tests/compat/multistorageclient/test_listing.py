"""What lies where: objects, directories, patterns. The answers are those of Multi-Storage Client 1.3.1."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.types import PatternType
from penstock.errors import NotFound, Unsupported

INCLUDE, EXCLUDE = PatternType.INCLUDE, PatternType.EXCLUDE
ALL = ["a.txt", "d/b.txt", "d/e/c.txt", "z.bin"]


def names(tree, found):
    return [each.removeprefix(tree).removeprefix("/") for each in found]


@pytest.mark.parametrize(
    ("below", "expected"),
    [("", ALL), ("/", ALL), ("/d", ALL[1:3]), ("/d/", ALL[1:3]), ("/a.txt", ["a.txt"]), ("/none", []), ("/a", [])],
)
def test_a_directory_is_listed_with_all_below_and_an_object_as_itself(tree, below, expected):
    assert names(tree, (each.key for each in msc.list(tree + below))) == expected
    assert names(tree, (each.key for each in msc.list_recursive(tree + below))) == expected


def test_list_with_include_directories_returns_a_single_level(tree):
    found = list(msc.list(f"{tree}/d", include_directories=True))
    assert [(each.type, each.content_length) for each in found] == [("file", 7), ("directory", 0)]
    assert names(tree, (each.key for each in found)) == ["d/b.txt", "d/e"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([(INCLUDE, "*.txt")], ALL[:3]),
        ([(EXCLUDE, "*.txt")], ALL[3:]),
        ([(INCLUDE, "*.txt"), (EXCLUDE, "*/d/e/*")], ["a.txt", "d/b.txt", "z.bin"]),
        ([(EXCLUDE, "*"), (INCLUDE, "*.bin")], ALL[3:]),
        ([(INCLUDE, "a.txt")], []),
        ([], ALL),
    ],
)
def test_patterns_choose_by_the_whole_key_and_the_last_that_matches_counts(tree, patterns, expected):
    assert names(tree, (each.key for each in msc.list(tree, patterns=patterns))) == expected


def test_keys_are_chosen_between_two(tree):
    client, path = msc.resolve_storage_client(tree)
    found = client.list(path, start_after=f"{path}/a.txt", end_at=f"{path}/d/e/c.txt")
    assert [each.key for each in found] == [f"{path}/d/b.txt", f"{path}/d/e/c.txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.txt", "d", "z.bin"]),
        ("**", ["a.txt", "d", "d/b.txt", "d/e", "d/e/c.txt", "z.bin"]),
        ("**/*.txt", ALL[:3]),
        ("d/*", ["d/b.txt", "d/e"]),
        ("*/e", ["d/e"]),
        ("d", ["d"]),
        ("[az].*", ["a.txt", "z.bin"]),
        ("a.txt", ["a.txt"]),
        ("none*", []),
        ("none", []),
    ],
)
def test_patterns_match_objects_and_directories(tree, pattern, expected):
    assert names(tree, msc.glob(f"{tree}/{pattern}")) == expected


@pytest.fixture
def hidden(tree):
    """Return the URL of a directory with hidden names, too."""
    for name in (".h", ".git/x.txt", "d/.b.txt", "d/.e/c.txt"):
        msc.write(f"{tree}/{name}", b"h")
    return tree


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.txt", "d", "z.bin"]),
        ("**", ["a.txt", "d", "d/b.txt", "d/e", "d/e/c.txt", "z.bin"]),
        ("**/*.txt", ALL[:3]),
        ("?h", []),
        ("[.]h", []),
        ("[!a]h", []),
        (".*", [".git", ".h"]),
        (".h", [".h"]),
        (".git/*", [".git/x.txt"]),
        ("*/.*", ["d/.b.txt", "d/.e"]),
        ("d/.*/c.txt", ["d/.e/c.txt"]),
        ("**/.*.txt", ["d/.b.txt"]),
        ("**/e/**", ["d/e/c.txt"]),
        ("a**", ["a.txt"]),
    ],
)
def test_wildcards_match_no_leading_dot(hidden, pattern, expected):
    assert names(hidden, msc.glob(f"{hidden}/{pattern}")) == expected


def test_hidden_names_are_listed(hidden):
    assert names(hidden, (each.key for each in msc.list(hidden)))[:3] == [".git/x.txt", ".h", "a.txt"]


def test_directory_marker_is_listed_as_a_directory_and_never_as_a_file(server, config, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(config))
    base, client = f"markers-{uuid4().hex}", server.client()
    for name in ("empty/", "full/", "full/deep/", "full/f"):
        client.put_object(Bucket="bkt", Key=f"base/{base}/{name}", Body=b"")
    tree = f"msc://bucket/{base}"
    for name in ("empty", "empty/", "full", "full/deep"):
        assert (msc.info(f"{tree}/{name}").type, msc.is_file(f"{tree}/{name}")) == ("directory", False)
        assert msc.Path(f"{tree}/{name}").is_dir()
        assert msc.Path(f"{tree}/{name}").exists()
    assert names(tree, (each.key for each in msc.list(tree))) == ["full/f"]
    found = msc.list(tree, include_directories=True)
    assert [(each.key.rpartition("/")[2], each.type) for each in found] == [
        ("empty", "directory"),
        ("full", "directory"),
    ]
    found = msc.list(f"{tree}/full", include_directories=True)
    assert [(each.key.rpartition("/")[2], each.type) for each in found] == [("deep", "directory"), ("f", "file")]
    assert (msc.is_empty(f"{tree}/empty/"), names(tree, msc.glob(f"{tree}/**"))) == (True, ["full", "full/f"])
    msc.delete(f"{tree}/full", recursive=True)
    msc.delete(f"{tree}/empty", recursive=True)
    assert client.list_objects_v2(Bucket="bkt", Prefix=f"base/{base}/")["KeyCount"] == 0


def test_objects_and_directories_are_described(tree):
    found = msc.info(f"{tree}/a.txt")
    assert (found.type, found.content_length, found.last_modified.tzinfo is not None) == ("file", 5, True)
    for name in ("d", "d/"):
        found = msc.info(f"{tree}/{name}")
        assert (found.type, found.key.endswith("/d/")) == ("directory", True)
    for name in ("none", "none/", "a.txt/"):
        with pytest.raises(NotFound):
            msc.info(f"{tree}/{name}")
    client, path = msc.resolve_storage_client(f"{tree}/d")
    with pytest.raises(NotFound):
        client.info(path, strict=False)


def test_files_and_emptiness(tree):
    assert [msc.is_file(f"{tree}/{name}") for name in ("a.txt", "d", "d/", "none")] == [True, False, False, False]
    assert [msc.is_empty(f"{tree}/{name}") for name in ("a.txt", "d", "d/", "none", "")] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_metadata_is_asked_for(base):
    kept = None if "disk" in base else {"by": "us"}  # files have none
    msc.write(f"{base}/x", b"1", attributes={"by": "us"})
    assert [each.metadata for each in msc.list(base)] == [None]
    assert [each.metadata for each in msc.list(base, show_attributes=True)] == [kept]


def test_attribute_filter_and_skipped_symlinks_raise_unsupported(tree):
    with pytest.raises(Unsupported, match="attribute_filter_expression is not a part"):
        next(msc.list(tree, attribute_filter_expression="a = 1"))
    with pytest.raises(Unsupported, match="links of local files are followed"):
        next(msc.list(tree, symlink_handling=msc.SymlinkHandling.SKIP))
    with pytest.raises(Unsupported, match="attribute_filter_expression is not a part"):
        msc.glob(f"{tree}/*", "a = 1")
