"""Walks are found by their tokens, told apart, bounded, and begun again where they are not kept any more."""

from penstock.stores.http.listing import ListingWalks
from penstock.stores.web.index import Walk


def test_walks_are_bounded_and_found_by_token_prefix_and_mode():
    walks = ListingWalks(Walk.begin)
    walk = Walk.begin("a/", "a/x")
    tokens = [walks.keep(walk, f"a/{number}") for number in range(1000)]
    assert len(set(tokens)) == 1000
    assert len(walks._walks) < 1000
    assert walks.find(tokens[0], "a/", flat=False).after == "a/0"
    assert walks.find(tokens[-1], "a/", flat=False) is walk
    assert walks.find(tokens[-1], "b/", flat=False).prefix == "b/"
    assert walks.find(tokens[-1], "a/", flat=True).flat
    assert walks.keep(None, "a") == ""
