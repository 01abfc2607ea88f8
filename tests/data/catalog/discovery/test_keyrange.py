"""Stretches: bounds that never lose or repeat a key, and advice that is only advice."""

import pytest

from penstock.data.catalog.discovery.scan import KeyRange, ScanOptions, make_filter
from penstock.errors import Damaged
from penstock.values import ObjectMeta, Page
from tests.refusals import refused


def _page(*keys, token="", prefixes=()):
    return Page(tuple(ObjectMeta(key, 1) for key in keys), tuple(prefixes), token)


_all = make_filter()


def _names(stretch):
    columns = stretch.rows.freeze()
    return [columns.keys[row].decode() for row in range(columns.rows)]


def test_key_range_takes_keys_within_its_bounds_and_ends_beyond_them():
    stretch = KeyRange(b"", after=b"b", until=b"d")
    assert stretch.start_after() == "b"
    assert [*stretch.take(_page("c", "d", "e", token="more"), _all).keys] == [b"c", b"d"]
    assert (_names(stretch), stretch.over) == (["c", "d"], True)


def test_excluded_keys_count_as_seen_by_the_key_range():
    stretch = KeyRange(b"")
    kept = stretch.take(_page("a", "b", token="t"), make_filter("", ScanOptions(include="a")))
    assert [*kept.keys] == [b"a"]
    assert (stretch.last, stretch.over, stretch.start_after()) == (b"b", False, "")


@pytest.mark.parametrize(
    "pages",
    [
        [_page("a", "b", token="t"), _page("a", "b", token="u")],
        [_page("a", token="t"), _page("b", token="t")],
        [_page("b", "a")],
        [_page("a", "a")],
        [_page("\U0001f436", "\ue000")],
    ],
    ids=["begins again", "repeats a token", "out of order", "twice", "in UTF-16 order"],
)
def test_a_listing_that_does_not_advance_is_damaged(pages):
    stretch = KeyRange(b"")
    for page in pages[:-1]:
        stretch.take(page, _all)
    refused(Damaged, "not advance", stretch.take, pages[-1], _all)


def test_keys_outside_the_prefix_are_damage():
    refused(Damaged, "astray", KeyRange(b"train/").take, _page("test/a"), _all)


def test_some_empty_pages_are_fine_and_endless_ones_are_not():
    stretch = KeyRange(b"")
    for number in range(1000):
        stretch.take(_page(token=str(number)), _all)
    refused(Damaged, "empty", stretch.take, _page(token="last straw"), _all)


@pytest.mark.parametrize(
    ("prefix", "asked", "last", "directory"),
    [
        (b"", None, b"a/b/c", b""),
        (b"train", None, b"train/x", b"train"),
        (b"", b"", b"a/b/c", b"a/"),
        (b"", b"a/", b"a/b/c", b"a/b/"),
        (b"", b"a/b/", b"a/b/c", None),
        (b"", b"a/b/", b"a/z/c", b"a/z/"),
        (b"", b"a/b/", b"z/y/c", b"z/"),
        (b"", b"", b"flat", None),
        (b"tr", b"tr", b"train/x/1", b"train/"),
        (b"tr", b"train/", b"trees/x", b"trees/"),
        (b"a/b", b"a/b", b"a/bc", None),
        (b"", b"a/", b"a//b", b"a//"),
    ],
)
def test_directory_returns_the_shallowest_directory_not_yet_requested(prefix, asked, last, directory):
    stretch = KeyRange(prefix, asked=asked)
    stretch.last = last
    assert stretch.directory() == directory


def test_parts_join_without_gap_or_overlap():
    stretch = KeyRange(b"")
    stretch.take(_page("a/1", token="t"), _all)
    stretch.advise(b"", _page(prefixes=["a/", "b/", "c/", "d/", "e/"]))
    parts = stretch.split(2)
    bounds = [(each.after, each.until) for each in (stretch, *parts)]
    assert bounds == [(b"", b"c/"), (b"c/", b"d/"), (b"d/", None)]
    assert [each.cuts for each in (stretch, *parts)] == [[b"b/"], [], [b"e/"]]


def test_small_directories_are_not_worth_a_request_each():
    stretch = KeyRange(b"")
    stretch.take(_page(*(f"{i:03}/x" for i in range(100)), token="t"), _all)
    stretch.advise(b"", _page(prefixes=[f"{i:03}/" for i in range(300)]))
    assert [part.after for part in stretch.split(15)] == [b"166/", b"233/"], "a page covers 100 of them, 200 are left"


def test_absurd_advice_is_dropped():
    stretch = KeyRange(b"m/", after=b"m/c", until=b"m/f")
    stretch.advise(b"m/", _page(prefixes=["m/e/", "m/e/", "", "m/", "m/c", "m/f", "zzz/", "m/d/"]))
    assert stretch.cuts == [b"m/d/", b"m/e/"]


def test_truncated_delimiter_page_is_requested_again_only_if_it_has_prefixes():
    stretch = KeyRange(b"", after=b"a")
    stretch.advise(b"", _page(token="t", prefixes=["b/"]))
    assert stretch.directory() == b""
    stretch.advise(b"", _page("c", token="t"))
    assert stretch.directory() is None
