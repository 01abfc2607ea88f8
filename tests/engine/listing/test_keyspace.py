"""What is learned of keys divides what is left evenly, and never leads out of the range."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.listing.keyspace import Keyspace, Seen

_PAGE = 1000
_SHAPES = {
    "counter": "p/{0:08}.jpg",
    "counter of many digits": "p/img_{0:020}.jpg",
    "UUIDs": "p/{1}.bin",
    "directories of one object": "p/{0:07}/x",
    "letters of no alphabet": "p/é{2}🐶",
}


def _shaped(shape, count, chance):
    drawn = ((uuid.UUID(int=chance.getrandbits(128)), "".join(chance.choices("ßабв漢字", k=12))) for _ in range(count))
    return sorted((_SHAPES[shape].format(i, *each) for i, each in enumerate(drawn)), key=str.encode)


def _learned(prefix, *pages):
    space = Keyspace(prefix)
    for page in pages:
        space.learn([*map(str.encode, page)])
    return space


@pytest.mark.parametrize("shape", _SHAPES)
def test_bounds_divide_remaining_keys_into_similar_parts_once_end_is_known(shape, seed):
    keys = _shaped(shape, 50_000, random.Random(seed))
    first, last = keys[:_PAGE], keys[-_PAGE:]
    space = _learned("p/", first, last)
    seen = Seen(first[0], first[-1], _PAGE, keys[-1])
    assert 0.5 < space.left(seen) / (len(keys) - _PAGE) < 2
    bounds = space.bounds(seen, 9)
    parts = [sum(one < key <= other for key in keys) for one, other in zip([first[-1], *bounds], bounds, strict=False)]
    assert len(bounds) == 9
    assert max(parts) < 4 * len(keys) / 10


def test_where_the_end_is_not_known_the_distances_grow_by_a_factor():
    """A counter of 20 digits that ends at a million: bounds at like distances would all lie far beyond the end."""
    keys = [f"p/{i:020}" for i in range(1_000_000)]
    space = _learned("p/", keys[:_PAGE])
    bounds = space.bounds(Seen(keys[0], keys[999], _PAGE, None), 15)
    within = [bound for bound in bounds if bound < keys[-1]]
    assert len(bounds) == 15
    assert len(within) >= 2


def test_single_key_page_yields_no_bounds_and_zero_keys_left():
    space = _learned("p/", ["p/a"])
    assert space.bounds(Seen("p/a", "p/a", 1, None), 5) == []
    assert space.left(Seen("p/a", "p/a", 1, None)) == 0
    # Nor do keys that are alike for longer than is looked at.
    keys = [f"{'x' * 500}{i:03}" for i in range(100)]
    assert _learned("", keys).bounds(Seen(keys[0], keys[-1], 100, None), 5) == []


_texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("ab/\udc80\udcff"), max_size=8)


@given(st.lists(_texts, min_size=2, max_size=30), _texts, st.integers(1, 20), st.booleans())
def test_bounds_are_sorted_and_within_range_for_arbitrary_keys(texts, prefix, count, ends):
    keys = sorted({prefix + text for text in texts if _writable(prefix + text)}, key=_octets)
    if not keys:
        return
    until = keys.pop() if ends and len(keys) > 1 else None
    space = _learned(prefix, keys)
    seen = Seen(keys[0], keys[-1], len(keys), until)
    bounds = [_octets(bound) for bound in space.bounds(seen, count)]
    assert bounds == sorted(set(bounds))
    assert len(bounds) <= count
    assert all(_octets(keys[-1]) < bound and (until is None or bound < _octets(until)) for bound in bounds)
    assert space.left(seen) >= 0


def _octets(key):
    return key.encode("utf-8", "surrogateescape")


def _writable(key):
    try:
        return bool(_octets(key))
    except UnicodeEncodeError:
        return False
