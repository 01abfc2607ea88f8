"""A second request is for few reads, and only where the store answers others."""

import random

import pytest

from penstock.engine.contracts.exchange import UnderWay
from penstock.engine.read.hedging import SHARE, Allowance, Usual, choose, lateness

USUAL = Usual(first_byte_s=0.1, bytes_per_s=10e6)


def under_way(waited_s, **more):
    return UnderWay(operation=None, waited_s=waited_s, **more)


class TestAllowance:
    def test_hedge_allowance_is_two_percent_of_ended_requests_and_initially_zero(self):
        allowance = Allowance()
        assert not allowance.spend()
        made, draw = 0, random.Random(1)
        for ended in range(1, 20_001):
            allowance.earn(ended)
            while draw.random() < 0.1 and allowance.spend():
                made += 1
            assert made <= SHARE * ended
        assert made == pytest.approx(SHARE * 20_000, abs=1)

    def test_quiet_times_save_up_a_few_only(self):
        allowance = Allowance()
        allowance.earn(10**6)
        assert sum(allowance.spend() for _ in range(100)) == 16
        allowance.earn(10**6 - 10)  # a count that goes back earns nothing
        allowance.earn(10**6)
        assert not allowance.spend()


MB, KIB = 1_000_000, 1 << 10
# By the rule: the usual times of the store, what is fine, and what is late.
LATENESS = {
    "without a first byte, twice the 95th percentile": (USUAL, under_way(0.19), under_way(0.2)),
    "50 ms at near stores": (Usual(first_byte_s=0.001), under_way(0.049), under_way(0.05)),
    "a second for a handshake": (USUAL, under_way(0.9, connecting=True), under_way(1.0, connecting=True)),
    "and more where the store is far": (Usual(first_byte_s=2.0), under_way(3.9, connecting=True), None),
    "a tenth of the median rate, at which this body takes a second": (
        USUAL,
        under_way(9, received=10 * MB, body_s=9.0),
        under_way(10.5, received=10 * MB, body_s=10.3),
    ),
    "soon where a body stands still": (USUAL, None, under_way(1, received=MB // 10, body_s=0.4)),
    "a modest rate while none is known": (
        Usual(first_byte_s=0.01),
        under_way(1, received=64 * KIB, body_s=0.9),
        under_way(3, received=64 * KIB, body_s=1.2),
    ),
}


@pytest.mark.parametrize("rule", LATENESS)
def test_lateness_by_the_rule(rule):
    usual, fine, late = LATENESS[rule]
    assert fine is None or lateness(fine, usual) < 1
    assert late is None or lateness(late, usual) >= 1


@pytest.mark.parametrize(
    ("late", "ended", "tried", "chosen"),
    [
        ([0.4, 1.2, 3.0, 0.3], [100] * 4, True, [2, 1]),  # the latest come first where many others have ended
        ([0.6, 0.9], [100] * 2, False, []),
        ([1.2, 1.1, 1.0], [253] * 3, True, [0, 1, 2]),  # the rest of a batch, though nothing ends any more
        ([1.2] * 64, [*range(64)], False, []),  # as many wait as have ended
        ([1.2, *[0.6] * 63], [64] * 64, False, []),
        ([1.2, 0.3], [3, 3], False, [0]),  # of few, one is tried
        ([1.2, 1.3, 0.6], [3, 3, 0], False, [1]),
        ([1.2, 1.3, 0.6], [3, 3, 0], True, []),
    ],
)
def test_reads_are_chosen_by_their_lateness_and_by_how_many_others_have_ended(late, ended, tried, chosen):
    assert choose(late, ended, tried=tried) == chosen
