"""Metrics name every count once, and cumulate histograms without losing a number."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.events import HostTimings
from penstock.histogram import Histogram
from penstock.observe.board import COUNTS, DISTRIBUTIONS, cumulate_buckets

BOUNDS = tuple(1e-6 * 2**power for power in range(9, 27))


def test_names_are_unique_and_every_value_can_be_read():
    names = [each.name for each in (*COUNTS, *DISTRIBUTIONS)]
    assert len(set(names)) == len(names)
    host = HostTimings()
    assert [each.value(host) for each in COUNTS] == [0] * len(COUNTS)
    assert [each.value(host).count for each in DISTRIBUTIONS] == [0, 0]


@given(st.lists(st.floats(1e-7, 1e4), max_size=50))
def test_cumulated_counts_are_those_of_the_numbers_to_within_a_bucket(numbers):
    histogram = Histogram()
    for number in numbers:
        histogram.add(number)
    counts = cumulate_buckets(histogram, BOUNDS)
    assert counts == sorted(counts)
    assert counts[-1] == len(numbers)
    for bound, count in zip((*BOUNDS, inf), counts, strict=True):
        assert count <= sum(number <= bound * 1.0001 for number in numbers)
        assert count >= sum(number <= bound / 1.0001 for number in numbers)
