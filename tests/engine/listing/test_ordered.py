"""Pages that are requested ahead come in order, every key once, for few requests more than a plain listing."""

import bisect
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.listing.keyspace import NoStartError, order_pages
from penstock.errors import Damaged, Throttled
from penstock.values import ObjectMeta, Page

_spread = st.sets(st.text("09amz🐶", min_size=1, max_size=12), min_size=1, max_size=40)
_SHAPES = ["{0:06}", "x{0:020}.jpg", "{1:032x}", "{0}", "{0:06}/x", "{2}/{0:05}", "{2}/{3}/{0:05}"]


class Rounds:
    """A bucket that answers all requests in flight together, as if all took equally long: ``sent`` says how many."""

    def __init__(self, keys, page_keys):
        self.keys = sorted(keys, key=self._order)
        self.page_keys = page_keys
        self.sent = []
        self._flying = {}

    @staticmethod
    def _order(key):
        return key.encode("utf-8", "surrogateescape")

    def start(self, prefix, **asked):
        request = object()
        self._flying[request] = prefix, asked
        return request

    def outcomes(self, *, wait=True):
        if not wait:
            return []
        flying, self._flying = self._flying, {}
        self.sent.append(len(flying))
        return [(request, self._page(prefix, **asked)) for request, (prefix, asked) in flying.items()]

    def _page(self, prefix, *, token="", start_after=""):
        after = max(token or start_after, prefix[:-1], key=self._order)
        start = bisect.bisect_right(self.keys, self._order(after), key=self._order)
        found = [key for key in self.keys[start : start + self.page_keys + 1] if key.startswith(prefix)]
        shown = tuple(ObjectMeta(key, 1) for key in found[: self.page_keys])
        return Page(shown, (), shown[-1].key if len(found) > self.page_keys else "")

    def plain(self):
        return max(1, -(-len(self.keys) // self.page_keys))


def _named(name, count, chance):
    return [name.format(i, chance.getrandbits(128), i // 20_000, i // 1_000) for i in range(count)]


def _listed(bucket, prefix=""):
    return [entry.key for page in order_pages(lambda: bucket, prefix) for entry in page.entries]


@given(_spread, st.integers(1, 4), st.integers(0, 1 << 30).map(random.Random))
def test_no_spread_of_keys_loses_repeats_or_moves_one_or_costs_much_more(keys, page_keys, chance):
    keys = {key + "".join(chance.choices("01z", k=chance.randrange(5))) for key in keys for _ in range(9)}
    bucket = Rounds(keys, page_keys)
    assert _listed(bucket) == bucket.keys
    assert sum(bucket.sent) <= 3 * bucket.plain() + 17


@pytest.mark.parametrize("name", _SHAPES)
def test_a_long_listing_takes_a_fraction_of_the_rounds(name, seed):
    bucket = Rounds(_named(name, 100_000, random.Random(seed)), 1000)
    assert _listed(bucket) == bucket.keys
    assert len(bucket.sent) <= bucket.plain() * 0.6
    assert max(bucket.sent) <= 17
    assert sum(bucket.sent) <= 2.2 * bucket.plain() + 16


@pytest.mark.parametrize("name", _SHAPES)
@pytest.mark.parametrize("pages", [1, 3, 5, 10])
def test_a_short_listing_takes_no_more_rounds_than_a_plain_one(name, pages, seed):
    bucket = Rounds(_named(name, pages * 1000, random.Random(seed)), 1000)
    assert _listed(bucket) == bucket.keys
    assert len(bucket.sent) <= pages
    assert sum(bucket.sent) == pages or pages > 3


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 10, 40])
def test_taking_the_first_pages_requests_at_most_about_twice_as_many(wanted):
    bucket = Rounds(_named("{0:07}", 200_000, random.Random(0)), 1000)
    pages = order_pages(lambda: bucket, "")
    for _ in range(wanted):
        next(pages)
    assert sum(bucket.sent) <= (wanted if wanted < 3 else 2 * wanted + 1)


def test_pages_in_memory_are_bounded_however_many_there_are(seed):
    most = 0
    bucket = Rounds(_named("{1:032x}", 100_000, random.Random(seed)), 100)
    for yielded, _ in enumerate(order_pages(lambda: bucket, ""), 1):
        most = max(most, sum(bucket.sent) - yielded)
    assert most <= 64 + 0.5 * bucket.plain(), "requests beyond the pages yielded; those cut short count"


def test_replaced_engine_repeats_pages_in_flight_and_loses_no_key():
    bucket = Rounds(_named("{0:06}", 30_000, random.Random(0)), 1000)
    now = bucket
    pages = order_pages(lambda: now, "")
    keys = [entry.key for _ in range(10) for entry in next(pages).entries]
    now = Rounds(bucket.keys, 1000)
    keys += [entry.key for page in pages for entry in page.entries]
    assert keys == bucket.keys
    assert now.sent


@pytest.mark.parametrize("failing", [0, 3, 40, 77, 99])
def test_an_error_comes_after_all_pages_before_it(failing):
    """Pages that begin after certain keys fail, also where they are requested ahead."""

    class Failing(Rounds):
        def _page(self, prefix, *, token="", start_after=""):
            if failing * 1000 <= int((token or start_after or "k0")[1:]) < failing * 1000 + 1000:
                return Throttled("slow down")
            return super()._page(prefix, token=token, start_after=start_after)

    bucket, given = Failing(_named("k{0:06}", 100_000, random.Random(0)), 1000), []
    pages = order_pages(lambda: bucket, "")
    with pytest.raises(Throttled):
        for page in pages:
            given += [entry.key for entry in page.entries]
    assert given == bucket.keys[: len(given)]
    assert failing * 1000 - 1000 <= len(given) <= failing * 1000 + 1000


def test_only_the_last_page_has_no_token():
    bucket = Rounds(_named("{0:06}", 20_000, random.Random(0)), 1000)
    tokens = [bool(page.token) for page in order_pages(lambda: bucket, "")]
    assert all(tokens[:-1])


class Deaf(Rounds):
    def _page(self, prefix, *, token="", start_after=""):  # noqa: ARG002  it ignores it
        return super()._page(prefix, token=token)


class Mute(Rounds):
    def _page(self, prefix, *, token="", start_after=""):
        return Page((), (), "") if start_after else super()._page(prefix, token=token)


class Circle(Rounds):
    def _page(self, prefix, **_):
        return super()._page(prefix)


class Short(Rounds):
    """It leaves out two keys where a part begins."""

    def _page(self, prefix, *, token="", start_after=""):
        page = super()._page(prefix, token=token, start_after=start_after)
        return replace(page, entries=page.entries[2:]) if start_after else page


@pytest.mark.parametrize("server", [Deaf, Mute, Circle, Short])
def test_ignored_start_after_raises_no_start_and_page_loop_raises_damaged(server):
    with pytest.raises(Damaged if server is Circle else NoStartError):
        _listed(server(_named("{0:06}", 20_000, random.Random(0)), 1000))
