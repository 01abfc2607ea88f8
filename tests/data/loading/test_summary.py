"""What was counted of a host becomes plain numbers: quantiles of times, and of rates what most bodies reach."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.data.loading.summary import host_report
from penstock.errors import Unusable
from penstock.events import HostTimings, Timings


def test_a_host_s_rates_are_those_that_most_bodies_reach():
    timings = HostTimings()
    for number in range(100):
        timings.first_byte.add(0.01 if number < 90 else 1.0)
        timings.body_rate.add(1e8 if number < 90 else 1e5)
    found = host_report("h", timings)
    assert found.first_byte_s.p50 == pytest.approx(0.01, rel=0.05)
    assert found.first_byte_s.p99 == pytest.approx(1.0, rel=0.05)
    assert found.body_bytes_per_s.p50 == pytest.approx(1e8, rel=0.05)
    assert found.body_bytes_per_s.p95 == pytest.approx(1e5, rel=0.05)
    assert [count for _, _, count in found.first_bytes] == [90, 10]


def test_plots_have_bounds_also_of_numbers_beyond_the_buckets():
    timings = HostTimings()
    for value in (0.0, 1e9):
        timings.first_byte.add(value)
    assert all(0 < low < high < 1e9 for low, high, _ in host_report("h", timings).first_bytes)


def test_host_report_counts_hedged_requests_and_hedges_won():
    timings = HostTimings()
    assert (host_report("h", timings).hedged, host_report("h", timings).hedges_won) == (0, 0)
    source = Timings("hedged-in-a-test")
    source.hedged(won=True, wasted_bytes=9)
    source.hedged(won=False, wasted_bytes=9)
    assert (host_report("h", source.host).hedged, host_report("h", source.host).hedges_won) == (2, 1)


def test_a_host_without_a_read_has_zeros():
    found = host_report("h", HostTimings())
    assert (found.first_byte_s.p50, found.body_bytes_per_s.p99, found.first_bytes) == (0.0, 0.0, ())


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "0.4", None])
def test_a_price_is_a_number_and_not_negative(price):
    with pytest.raises(Unusable, match="per_gib must be a price, 0 or more and not negative"):
        ps.observe.Prices(per_gib=price)


def test_prices_are_of_requests_and_bytes():
    with pytest.raises(Unusable, match="currency"):
        ps.observe.Prices(currency=None)
    assert ps.observe.Prices(per_1000_requests=0.4, per_gib=1).of(2000, 1 << 30) == pytest.approx(1.8)
