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


class TestLateness:
    def test_without_a_first_byte_it_is_twice_the_95th_percentile(self):
        assert lateness(under_way(0.19), USUAL) < 1 <= lateness(under_way(0.2), USUAL)

    def test_near_stores_have_fifty_milliseconds(self):
        near = Usual(first_byte_s=0.001)
        assert lateness(under_way(0.049), near) < 1 <= lateness(under_way(0.05), near)

    def test_a_handshake_has_a_second(self):
        assert lateness(under_way(0.9, connecting=True), USUAL) < 1 <= lateness(under_way(1.0, connecting=True), USUAL)
        far = Usual(first_byte_s=2.0)
        assert lateness(under_way(3.9, connecting=True), far) < 1

    def test_a_body_is_late_below_a_tenth_of_the_median_rate(self):
        size = 10_000_000  # a second at the median rate
        fine, slow = under_way(9, received=size, body_s=9.0), under_way(10.5, received=size, body_s=10.3)
        assert lateness(fine, USUAL) < 1 <= lateness(slow, USUAL)

    def test_a_body_that_stands_still_is_late_soon(self):
        assert lateness(under_way(1, received=100_000, body_s=0.4), USUAL) >= 1

    def test_while_no_rate_is_known_a_body_has_a_modest_one(self):
        unknown = Usual(first_byte_s=0.01)
        assert lateness(under_way(1, received=64 << 10, body_s=0.9), unknown) < 1
        assert lateness(under_way(3, received=64 << 10, body_s=1.2), unknown) >= 1


class TestChoice:
    def test_the_latest_come_first_where_many_others_have_ended(self):
        assert choose([0.4, 1.2, 3.0, 0.3], [100] * 4, tried=True) == [2, 1]

    def test_nothing_is_late(self):
        assert choose([0.6, 0.9], [100] * 2, tried=False) == []

    def test_the_rest_of_a_batch_is_asked_for_again_though_nothing_ends_any_more(self):
        assert choose([1.2, 1.1, 1.0], [253] * 3, tried=True) == [0, 1, 2]

    def test_no_hedge_is_chosen_if_waiting_requests_equal_ended_requests(self):
        assert choose([1.2] * 64, [*range(64)], tried=False) == []
        assert choose([1.2, *[0.6] * 63], [64] * 64, tried=False) == []

    def test_of_few_one_is_tried(self):
        assert choose([1.2, 0.3], [3, 3], tried=False) == [0]
        assert choose([1.2, 1.3, 0.6], [3, 3, 0], tried=False) == [1]
        assert choose([1.2, 1.3, 0.6], [3, 3, 0], tried=True) == []
