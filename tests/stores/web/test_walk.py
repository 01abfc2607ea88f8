"""A walk through directories tells what a sorted listing of all keys would tell, however it is continued."""

import random
from itertools import count

import pytest

from penstock.engine.listing.listing import Listing
from penstock.errors import Damaged
from penstock.stores.http.listing import ListingWalks
from penstock.stores.web.index import IndexEntry, Walk


def _children(keys, folder):
    names = {key[len(folder) :] for key in keys if key.startswith(folder)}
    return list({IndexEntry(name.partition("/")[0] + ("/" if "/" in name else "")) for name in names})


def _listed(keys, walk):
    """Follow a walk to its end, each page held to what was asked for."""
    listing = Listing(walk.prefix, walk.after, "/" if walk.flat else "")
    found = []
    while walk is not None:
        page, walk = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in listing.take(page).entries]
        listing.over = False
    return found


def _some_keys(seed):
    draw = random.Random(seed)
    keys = {"/".join(draw.choice("abAü.-0") * draw.randint(1, 2) for _ in range(draw.randint(1, 4))) for _ in range(60)}
    return {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}


@pytest.mark.parametrize("trial", range(20))
def test_walk_yields_the_same_keys_as_a_sorted_flat_listing(trial, seed):
    keys = _some_keys(seed * 100 + trial)
    draw = random.Random(seed + trial)
    for prefix in ("", "a", "a/", "b/a", "zz", draw.choice(sorted(keys))):
        if prefix.endswith("/") and not any(key.startswith(prefix) for key in keys):
            continue
        matching = sorted((key for key in keys if key.startswith(prefix)), key=str.encode)
        assert _listed(keys, Walk.begin(prefix)) == matching
        for after in {draw.choice(matching) if matching else "", f"{prefix}a", f"{prefix}b/"}:
            expected = [key for key in matching if key.encode() > after.encode()]
            assert _listed(keys, Walk.begin(prefix, after)) == expected


@pytest.mark.parametrize("every", [1, 3])
def test_listing_resumes_at_its_position_after_walk_is_discarded(every, seed):
    keys = _some_keys(seed)
    walks, found, walk = ListingWalks(Walk.begin), [], Walk.begin("")
    for number in count():
        page, following = walk.enter(_children(keys, walk.directory))
        found += [each.key for each in page.entries]
        token = walks.keep(following, found[-1] if found else "")
        if not token:
            break
        if page.entries and number % every == 0:
            walks._walks.clear()
        walk = walks.find(token, "", flat=False)
    assert found == sorted(keys, key=str.encode)


def test_a_delimiter_names_directories_and_enters_none():
    keys = {"a/1", "a/2", "a.txt", "b/c/d", "e"}
    page, following = Walk.begin("", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes, following) == (["a.txt", "e"], ("a/", "b/"), None)
    page, _ = Walk.begin("b/", flat=True).enter(_children(keys, "b/"))
    assert page.prefixes == ("b/c/",)
    page, _ = Walk.begin("", "a/", flat=True).enter(_children(keys, ""))
    assert ([each.key for each in page.entries], page.prefixes) == (["e"], ("b/",))


def test_keys_have_the_spelling_that_was_asked_for():
    page, _ = Walk.begin("my%20data/%c3%bc").enter([IndexEntry("ü1"), IndexEntry("x")])
    assert [each.key for each in page.entries] == ["my%20data/%c3%bc1"]


def test_a_directory_in_itself_ends():
    walk = Walk.begin("")
    with pytest.raises(Damaged, match="deep"):
        while walk is not None:
            _, walk = walk.enter([IndexEntry("loop/")])
