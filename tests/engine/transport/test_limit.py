"""As many requests in flight as pay: hundreds for a distant store, few for a near one, and never more than allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.transport.session import Limit


def played(limit: Limit, rate_at, seconds: float) -> Limit:
    """Drive it as a store would whose rate depends on how many are in flight; others are always waiting."""
    at = 0.0
    limit.record(0, at, waiting=True)
    while at < seconds:
        at += 0.01
        limit.record(round(rate_at(limit.now) * 0.01), at, waiting=True)
    return limit


@pytest.mark.parametrize("most", [200, 256, 1000])
def test_a_distant_store_gets_all_of_them_within_a_second_or_two(most):
    """30 ms to the first byte: twice as many in flight are twice as many a second."""
    assert played(Limit(most), lambda now: now / 0.03, seconds=2).now == most


def located(limit: Limit, *first_bytes_s: float) -> Limit:
    """Tell it of as many first answers as it waits for, all but those given after 10 s."""
    for number in range(limit.now):
        assert not limit.located
        limit.locate(first_bytes_s[number] if number < len(first_bytes_s) else 10.0)
    assert limit.located
    return limit


@pytest.mark.parametrize(("first_byte_s", "places"), [(0.0, 64), (0.004, 64), (0.01, 100), (0.03, 256), (10.0, 256)])
def test_the_first_answers_tell_how_far_away_a_store_is(first_byte_s, places):
    assert located(Limit(256), 0.2, first_byte_s).now == places


@pytest.mark.parametrize("most", [8, 256])
def test_not_even_a_distant_store_gets_more_than_allowed(most):
    assert located(Limit(most)).now == most


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after late first answers"])
def test_a_near_store_gets_few_and_one_that_moves_away_is_followed(late):
    """A line that is full at 40: more bring nothing."""
    limit = located(Limit(256)) if late else Limit(256)
    assert played(limit, lambda now: min(now, 40) * 300, seconds=30).now in (32, 64)
    assert played(limit, lambda now: now / 0.03, seconds=60).now == 256


def test_idle_slots_of_a_slow_consumer_leave_the_limit_unchanged():
    limit = Limit(256)
    for second in range(100):
        limit.record(10, float(second), waiting=False)
    assert limit.now == 64


def test_bursts_are_put_together():
    """Batches of 256 at 30 ms: each waits for a place for a moment only, and the limit rises all the same."""
    limit, at = Limit(256), 0.0
    for _ in range(20):
        left = 256
        limit.record(0, at, waiting=True)
        while left:
            at += 0.03
            done = min(left, limit.now)
            left -= done
            limit.record(done, at, waiting=left > limit.now)
        at += 1
    assert limit.now >= 128


@given(st.integers(1, 2000), st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1), st.booleans()), max_size=200))
def test_limit_stays_within_its_bounds(most, records):
    limit, at = Limit(most), 0.0
    for finished, passed, waiting in records:
        at += passed
        limit.record(finished, at, waiting=waiting)
        assert min(32, most) <= limit.now <= most
