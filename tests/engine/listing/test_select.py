"""Globs choose by relative key, component by component, and directory markers are no samples."""

import fnmatch
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.engine.listing.select import fixed_part, globs, selector
from penstock.errors import ConfigError, NotFound


@pytest.mark.parametrize(
    ("glob", "matches", "differs"),
    [
        ("*.jpg", ["a.jpg", ".jpg", "a.b.jpg", "new\nline.jpg"], ["a/b.jpg", "a.jpg.txt", "A.JPG", "ajpg"]),
        ("**/*.jpg", ["a.jpg", "x/a.jpg", "x/y/a.jpg"], ["x/a.png"]),
        ("train/**", ["train/", "train/a", "train/a/b"], ["train", "training/a", "x/train/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("a**b", ["ab", "a/b", "a/x/y/zb"], ["ba"]),
        ("x**/y", ["x/y", "xa/b/y"], ["y"]),
        ("***", ["", "a/b"], []),
        ("?.txt", ["a.txt", "é.txt", "🐶.txt"], ["/.txt", "ab.txt", ".txt"]),
        ("[a-c]?", ["ax", "bx"], ["dx", "-x", "a/"]),
        ("[!a-c]", ["d", "!", "-"], ["a", "/"]),
        ("[]-]", ["]", "-"], ["a"]),
        ("[!]]", ["a"], ["]"]),
        ("a[", ["a["], ["a"]),
        ("[]", ["[]"], [""]),
        ("[!]", ["[!]"], ["a"]),
        ("[^a]", ["^", "a"], ["b"]),
        (r"[\d]\w", ["\\\\w", r"d\w"], ["1x"]),
        ("a.b+(c)|d$", ["a.b+(c)|d$"], ["axb+(c)|d$", "a.b"]),
        ("", [""], ["a"]),
    ],
)
def test_a_glob_matches_whole_keys(glob, matches, differs):
    chosen = selector(glob)
    assert [key for key in matches if not chosen(key, 1)] == []
    assert [key for key in differs if chosen(key, 1)] == []


@example("[+--]", ",")
@example("[--a]", "0")
@given(st.text("ab*?[]!-\\.", max_size=8), st.text("ab[]!-\\.", max_size=6))
def test_selector_matches_fnmatch_within_one_path_component(glob, key):
    try:
        chosen = selector(glob)
    except ConfigError:
        return  # an impossible range: fnmatch lets it match nothing, we say so
    assert chosen(key, 1) == fnmatch.fnmatchcase(key, glob)


def test_excluding_beats_including():
    chosen = selector(["**/*.jpg", "**/*.png"], exclude="**/.*/**")
    keys = ("a.jpg", "x/b.png", "c.txt", ".cache/a.jpg", "x/.t/b.png")
    assert [key for key in keys if chosen(key, 1)] == ["a.jpg", "x/b.png"]


def test_selector_without_globs_accepts_every_key_but_directory_markers_unless_asked_for():
    assert selector()("any/thing", 0)
    assert not selector()("train/", 0)
    assert not selector()("", 0), "the marker of the very prefix that is listed"
    assert selector(markers=True)("train/", 0)
    assert selector()("train/", 1), "it has content, so it is an object with an odd name"
    assert selector()("empty", 0)


def test_impossible_character_range_in_glob_raises_config_error():
    with pytest.raises(ConfigError, match="z-a"):
        selector("[z-a]")


@pytest.mark.parametrize(
    ("glob", "start", "rest"),
    [
        *(("", "", ""), ("a/b", "a/b", ""), ("a/*", "a/", "*"), ("a?", "a", "?"), ("a[bc]d", "a", "[bc]d")),
        *(("a[*]b*", "a*b", "*"), ("[[]x]", "[x]", ""), ("[]]?", "]", "?"), ("a[!]", "a", "[!]"), ("a[", "a", "[")),
        ("[/]", "", "[/]"),  # no set has a "/": it matches nothing
    ],
)
def test_a_glob_is_fixed_up_to_its_first_wildcard(glob, start, rest):
    assert fixed_part(glob) == (start, rest)


@given(st.text("ab*?[]!-/", max_size=8), st.text("ab*[]!/", max_size=6))
def test_key_matched_by_a_glob_begins_with_its_fixed_part(glob, key):
    try:
        chosen = selector(glob, markers=True)
    except ConfigError:
        return
    start, rest = fixed_part(glob)
    if chosen(key, 1):
        assert key.startswith(start)
    if not rest:
        assert chosen(key, 1) == (key == start)


@pytest.mark.parametrize(
    "given", [5, None, True, b"*.jpg", ["*.jpg", 5], [None], Path("a.jpg"), re.compile("a")], ids=str
)
def test_non_string_globs_are_refused(given):
    with pytest.raises(ConfigError, match="include/exclude must be a str"):
        globs(given)


@pytest.mark.parametrize("given", ["keep/", ["*.jpg", "a/b/"], "**/", "/"], ids=str)
def test_a_glob_that_ends_in_a_slash_is_refused_because_it_matches_no_object(given):
    with pytest.raises(ConfigError, match=r"must not end in '/', got '.*/': write '.*/\*\*' for all objects below"):
        globs(given)


def test_globs_accepts_a_single_string_or_an_iterable():
    assert globs("*.jpg") == ("*.jpg",)
    assert globs(each for each in ["a", "b"]) == globs({"a": 1, "b": 2}) == ("a", "b")
    assert globs(()) == globs([]) == ()


TAKES_GLOBS = {
    "scan": lambda url, wrong: Catalog.scan(url, include=wrong),
    "scan, exclude": lambda url, wrong: Catalog.scan(url, exclude=wrong),
    "refresh": lambda url, wrong: Catalog.build(url, "", ()).refresh(include=wrong),
    "filter": lambda url, wrong: Catalog.build(url, "", [Entry("a")]).filter(include=wrong),
    "from_inventory": lambda url, wrong: Catalog.from_inventory(f"{url}manifest.json", url, include=wrong),
    "index": lambda url, wrong: ps.index(url, f"{url}a.catalog", include=wrong),
    "a dataset": lambda url, wrong: ps.MapDataset.from_prefix(url, include=wrong),
    "sync": lambda url, wrong: ps.sync(url, "memory://wrong-globs-2/", exclude=wrong),
    "find": lambda url, wrong: list(ps.find(url, name=wrong)),
    "find, path": lambda url, wrong: list(ps.find(url, path=wrong)),
}


@pytest.mark.parametrize("name", TAKES_GLOBS)
@pytest.mark.parametrize("wrong", [5, 0, None])
def test_every_public_function_with_globs_refuses_a_non_string_value(name, wrong):
    with pytest.raises(ConfigError, match="include/exclude must be a str"):
        TAKES_GLOBS[name]("memory://wrong-globs/", wrong)


def test_an_empty_glob_matches_no_object():
    """A shell's variable that is not set must not stand for everything."""
    with ps.open("memory://empty-glob/a.jpg", "wb") as writer:
        writer.write(b"1")
    with pytest.raises(NotFound, match="1 objects are there, and include="):
        Catalog.scan("memory://empty-glob/", include="")
