"""Parts of a listing hold every key once, wherever they are divided."""

import pytest

from penstock.engine.listing.keyspace import KeySpan
from penstock.errors import Damaged
from penstock.values import ObjectMeta, Page


def _page(*keys, token=""):
    return Page(tuple(ObjectMeta(key, 1) for key in keys), (), token)


def test_part_ends_at_its_bound_and_accept_counts_keys_within_it():
    part = KeySpan(b"", after=b"b", until=b"d")
    assert (part.start_after(), part.astray) == ("b", True)
    assert part.accept(_page("c", "d", "e", token="more")) == 2
    assert (part.first, part.last, part.seen, part.over, part.recent) == (b"c", b"d", 2, True, [b"c", b"d"])
    assert not part.astray
    part = KeySpan(b"p/")
    assert part.accept(_page("p/a", token="t")) == 1
    assert (part.token, part.start_after(), part.over) == ("t", "", False), "it continues by its token"


def test_divided_part_splits_at_bounds_and_last_piece_keeps_end():
    part = KeySpan(b"", until=b"z")
    made = part.divide([b"f", b"m"])
    assert [(each.after, each.until) for each in (part, *made)] == [(b"", b"f"), (b"f", b"m"), (b"m", b"z")]
    assert part.divide([]) == []
    assert part.until == b"f"


def test_view_of_latest_page_differs_from_view_of_all_pages():
    part = KeySpan(b"")
    part.accept(_page("a", "b", token="t"))
    part.accept(_page("c", "d", token="u"))
    assert part.view() == ("a", "d", 4, None)
    assert part.view(latest=True) == ("c", "d", 2, None)


def test_a_server_that_begins_elsewhere_is_damaged_before_anything_was_seen():
    part = KeySpan(b"", after=b"m")
    with pytest.raises(Damaged):
        part.accept(_page("a", "b"))
    assert part.astray
