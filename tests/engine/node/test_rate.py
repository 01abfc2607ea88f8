"""A store's rate is learned of what it refuses, followed when it grows, and forgotten; turns come in order."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.node.rate import NONE, Rate, Turns

TICK = 0.25


def played(limit, offered, seconds, rate=NONE, at=1000.0):
    """Return the rate after a while at a store that accepts ``limit(time)`` a second, and the shares it refused."""
    refused_shares = []
    for tick in range(int(seconds / TICK)):
        now = at + (tick + 1) * TICK
        sent = min(offered, rate.present(now)) * TICK
        refused = max(0.0, sent - limit(now - at) * TICK)
        if refused or rate.opened:
            rate = rate.count(sent, refused, now)
        refused_shares.append(refused / sent)
    return rate, refused_shares


@pytest.mark.parametrize("limit", [40, 200, 5500, 100_000])
@pytest.mark.parametrize("excess", [1.2, 3, 8])
def test_the_limit_is_found_and_kept_to(limit, excess):
    rate, refused = played(lambda _: limit, limit * excess, 60)
    assert 0.7 * limit <= rate.present(1060) <= 1.15 * limit
    assert sum(refused[12:]) / len(refused[12:]) < 0.03


def test_a_store_that_scales_out_or_gets_slower_is_followed():
    assert played(lambda s: 1000 if s < 20 else 10_000, 8000, 120)[0].present(1120) > 7000
    assert played(lambda s: 5500 if s < 30 else 500, 20_000, 40)[0].present(1040) <= 575


def test_an_outage_teaches_no_rate():
    rate, _ = played(lambda _: 0, 1000, 30)
    assert rate.present(1030) == inf
    bounded = Rate(base=500, since=1000, opened=1000, touched=1000)
    assert played(lambda _: 0, 1000, 2, bounded)[0].base == 500


@pytest.mark.parametrize(("share", "least"), [(0.06, 0.85), (0.2, 0.85), (0.4, 0.6)])
def test_refusals_that_are_not_for_the_rate_bound_nothing_for_long(share, least):
    rate, at, sent = NONE.count(0, 1, 1000.0), 1000.0, 0.0
    for _ in range(int(120 / TICK)):
        at += TICK
        now = min(1000.0, rate.present(at)) * TICK
        rate = rate.count(now, share * now, at)
        sent += now
    assert sent > least * 1000 * 120  # a few seconds in sixty are spent on finding out


def test_few_refusals_are_left_to_backoff():
    rate = NONE.count(0, 1, 1000.0)
    for tick in range(40):
        rate = rate.count(40, 1, 1000.25 + tick * TICK)
    assert rate.present(1011) == inf


def test_rate_state_expires_after_refusals_stop():
    seen = NONE.count(0, 1, 1000.0)
    assert not seen.over(1001)
    assert seen.over(1011)
    bounded = Rate(base=500, since=1000, opened=1000, touched=1000)
    assert not bounded.over(1299)
    assert bounded.over(1301)
    assert bounded.over(999)  # of another boot


def test_a_window_that_was_not_closed_begins_anew():
    rate = NONE.count(100, 50, 1000.0).count(100, 50, 1100.0)
    assert rate.base == 0
    assert (rate.opened, rate.sent) == (1100.0, 0.0)


def test_the_present_rate_never_falls_by_itself():
    rate = Rate(base=100, since=1000)
    seen = [rate.present(990 + step) for step in range(400)]
    assert seen == sorted(seen)
    assert rate.present(1010) == pytest.approx(118.7, rel=0.01)


class Client:
    """A caller that waits for a turn."""


def asked(turns, clients, now):
    """Return which of them go within a second, in steps of a millisecond, each asking when it was told to."""
    due = [(now, number, each) for number, each in enumerate(clients)]
    went = []
    while due:
        due.sort(key=lambda each: each[:2])
        at, number, each = due.pop(0)
        wait_s = turns.ask(each, at)
        if wait_s:
            due.append((at + wait_s, number, each))
        else:
            went.append((at, each))
    return went


@given(st.floats(1, 10_000), st.integers(1, 200))
def test_turns_come_in_order_and_at_the_rate(rate, count):
    clients = [Client() for _ in range(count)]
    went = asked(Turns(rate, 10.0), clients, 10.0)
    assert [each for _, each in went] == clients
    assert went[-1][0] - 10.0 >= (count - 1 - max(1, rate * 0.05)) / rate - 1e-6
    assert went[-1][0] - 10.0 <= count / rate + 1e-3


def test_raised_rate_applies_to_clients_already_waiting():
    turns, clients = Turns(1.0, 0.0), [Client() for _ in range(10)]
    waits = [turns.ask(each, 0.0) for each in clients]
    assert waits[0] == 0.0
    assert max(waits) == 2.0  # then it asks again
    turns.rate = 1000.0
    assert [turns.ask(each, 2.0) for each in clients[1:]] == [0.0] * 9


def test_turns_that_are_not_taken_are_not_saved_up_and_those_without_a_bound_leave_no_debt():
    turns = Turns(100.0, 0.0)
    assert sum(turns.ask(Client(), 1000.0) == 0.0 for _ in range(100)) <= 6
    turns = Turns(inf, 0.0)
    assert all(turns.ask(Client(), 1.0) == 0.0 for _ in range(1000))
    turns.rate = 10.0
    assert turns.ask(Client(), 1.1) <= 0.1


def test_calls_do_not_wait_for_those_that_are_gone(seed):
    draw = random.Random(seed)
    turns, clients = Turns(10.0, 0.0), [Client() for _ in range(100)]
    for each in clients:
        turns.ask(each, 0.0)
    gone = draw.sample(turns.waiting(), 90)
    turns.leave(gone)
    left = [each for each in turns.waiting() if each not in gone]
    assert len(turns) == len(left) == 9
    went = asked(turns, left, 0.0)
    assert [each for _, each in went] == left
    assert went[-1][0] <= 1.0
    turns.leave([])
    assert turns.ask(Client(), 1.2) == 0.0
