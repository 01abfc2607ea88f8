"""A page is taken for what it is: what was asked for, or damage."""

from dataclasses import replace

import pytest

from penstock.engine.listing.listing import Entries, Listing, UploadListing, columns, pack_entries
from penstock.engine.listing.names import Names, PackedEntries
from penstock.errors import Damaged
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page, Upload, Uploads


def _page(*keys, token="", prefixes=(), size=1):
    return Page(tuple(ObjectMeta(key, size) for key in keys), tuple(prefixes), token)


@pytest.mark.parametrize(
    ("asked", "pages"),
    [
        ({"prefix": "a/"}, [_page("a/", "a/b", token="t"), _page("a/c")]),
        ({"prefix": ""}, [_page("\ue000", "\U0001f436")]),
        ({"prefix": ""}, [_page("\udcc3\udcbf", "\udcff")]),
        ({"prefix": "a", "start_after": "ab"}, [_page("abc", "ac")]),
        ({"prefix": "", "delimiter": "/"}, [_page("b", prefixes=["a/", "c/"], token="t"), _page("d", prefixes=["e/"])]),
        ({"prefix": "a/", "delimiter": "/", "start_after": "a/b/c"}, [_page("a/c", prefixes=["a/b/", "a/d/"])]),
        ({"prefix": "a/", "delimiter": "/"}, [_page("a/", prefixes=["a//"])]),
        ({"prefix": ""}, [_page(token=str(number)) for number in range(1000)] + [_page("a")]),
        ({"prefix": "", "token": "x"}, [_page("a", token="y"), _page("b")]),
        ({"prefix": ""}, [_page("a", size=(1 << 63) - 1)]),
        ({"prefix": ""}, [_page("a", size=UNKNOWN_SIZE)]),
    ],
)
def test_valid_pages_are_accepted_until_the_listing_is_over(asked, pages):
    for take in (lambda page: page, _packed):
        listing = Listing(**asked)
        for page in map(take, pages):
            assert not listing.over
            assert listing.take(page) is page
            assert listing.token == page.token
            assert [*listing.keys] == [each.key.encode("utf-8", "surrogateescape") for each in page.entries]
        assert listing.over


@pytest.mark.parametrize(
    ("asked", "pages", "word"),
    [
        ({"prefix": "a/"}, [_page("b")], "astray"),
        ({"prefix": "a/"}, [_page("a/1", "b")], "astray"),
        ({"prefix": "b/"}, [_page("a", "b/1")], "astray"),
        ({"prefix": "a/"}, [_page("a/1", token="t"), _page("b")], "astray"),
        ({"prefix": "a/", "delimiter": "/"}, [_page(prefixes=["b/"])], "astray"),
        ({"prefix": ""}, [_page("")], "advance"),
        ({"prefix": ""}, [_page("b", "a")], "unsorted listings"),
        ({"prefix": ""}, [_page("a", "a")], "advance"),
        ({"prefix": ""}, [_page("\U0001f436", "\ue000")], "advance"),
        ({"prefix": ""}, [_page("a", token="t"), _page("a")], "advance"),
        ({"prefix": "", "delimiter": "/"}, [_page(prefixes=["a/", "a/"])], "advance"),
        ({"prefix": "", "delimiter": "/"}, [_page(prefixes=["a/"], token="t"), _page(prefixes=["a/"])], "advance"),
        ({"prefix": "", "delimiter": "/"}, [_page("b", token="t"), _page(prefixes=["a/"])], "advance"),
        ({"prefix": "", "start_after": "b"}, [_page("a")], "ignores start-after"),
        ({"prefix": "", "start_after": "b"}, [_page("b")], "ignores start-after"),
        ({"prefix": "", "delimiter": "/"}, [_page("a/b")], "delimiter"),
        ({"prefix": "", "delimiter": "/"}, [_page(prefixes=["a"])], "delimiter"),
        ({"prefix": "", "delimiter": "/"}, [_page(prefixes=["a/b/"])], "delimiter"),
        ({"prefix": "a/", "delimiter": "/"}, [_page(prefixes=["a/"])], "delimiter"),
        ({"prefix": ""}, [_page("a", token="t"), _page("b", token="t")], "repeats a token"),
        ({"prefix": ""}, [_page(token="t"), _page(token="u"), _page(token="t")], "repeats a token"),
        ({"prefix": "", "token": "t"}, [_page("a", token="t")], "repeats a token"),
        ({"prefix": ""}, [_page(token=str(number)) for number in range(1001)], "empty pages"),
        ({"prefix": ""}, [_page("a", size=-2)], "size of -2"),
        ({"prefix": ""}, [_page("a", size=1 << 63)], "size of"),
        ({"prefix": ""}, [_page("a\ud800")], "UTF-8"),
    ],
)
def test_page_that_contradicts_the_listing_request_raises_damaged(asked, pages, word):
    representable = not any("\ud800" in each.key or each.size >> 63 > 0 for each in pages[-1].entries)
    for take in (lambda page: page, *([_packed] if representable else [])):
        listing = Listing(**asked)
        for page in pages[:-1]:
            listing.take(take(page))
        with pytest.raises(Damaged, match=word):
            listing.take(take(pages[-1]))


def _packed(page):
    return replace(page, entries=Entries(None, _seconds, pack_entries(page.entries)))


def test_driver_marking_pages_as_advanced_may_send_unlimited_empty_pages():
    """It walks through folders without objects; a token that comes twice ends the listing as ever."""
    listing = Listing("")
    for number in range(3000):
        listing.take(replace(_page(token=str(number)), advanced=True))
    with pytest.raises(Damaged, match="only empty pages"):
        for number in range(3000, 4001):
            listing.take(_page(token=str(number)))


def _uploads(*found, token=""):
    return Uploads(tuple(Upload(*each) for each in found), token)


def test_uploads_come_in_any_order():
    """Ceph 16 sorts them by ``key.id``: "a-b" before "a"."""
    listing = UploadListing("a")
    listing.take(_uploads(("a-b", "1"), ("a", "2"), token="t"))
    listing.take(_uploads(("a", "3")))
    assert listing.over


@pytest.mark.parametrize(
    ("prefix", "pages", "word"),
    [
        ("a/", [_uploads(("b", "1"))], "astray"),
        ("", [_uploads(("", "1"))], "astray"),
        ("", [_uploads(("a", "1"), ("a", "1"))], "twice"),
        ("", [_uploads(("a", "1"), token="t"), _uploads(("a", "1"), token="u")], "twice"),
        ("", [_uploads(("a", "1"), token="t"), _uploads(("b", "1"), token="t")], "repeats a token"),
        ("", [_uploads(token=str(number)) for number in range(1001)], "empty pages"),
    ],
)
def test_uploads_that_were_not_asked_for_are_damage(prefix, pages, word):
    listing = UploadListing(prefix)
    for page in pages[:-1]:
        listing.take(page)
    with pytest.raises(Damaged, match=word):
        listing.take(pages[-1])


@pytest.mark.parametrize("form", ["lists", "packed"])
def test_entries_are_objects_that_are_made_when_they_are_asked_for(form):
    lists = ["a", "b", "c"], [1, 2, 3], ["x", "", "z"], ["1.5", "", "nonsense"]
    packed = PackedEntries.of(*lists[:3])._replace(dates=Names.of([*map(str.encode, lists[3])]))
    entries = Entries(None, _seconds, packed) if form == "packed" else Entries(lists, _seconds)
    made = (ObjectMeta("a", 1, "x", 1.5), ObjectMeta("b", 2), ObjectMeta("c", 3, "z"))
    assert tuple(entries) == made
    assert entries == made
    assert made == tuple(entries)
    assert entries != made[:2]
    assert entries != "abc"
    assert (entries[-1], entries[1:], len(entries), bool(entries)) == (made[-1], made[1:], 3, True)
    assert made[1] in entries
    assert columns(entries) == columns(made) == (["a", "b", "c"], [1, 2, 3], ["x", "", "z"])
    assert [*entries.below("a")] == [replace(each, key=each.key.removeprefix("a")) for each in made]
    assert [*entries[:1].below("a")] == [replace(made[0], key="")]
    assert "3" in repr(entries)
    with pytest.raises(IndexError):
        entries[3]


def _seconds(text):
    try:
        return float(text)
    except ValueError:
        return None
