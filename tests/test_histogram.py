"""Quantiles are right to 4.5 %; what is added, subtracted or shared is neither lost nor counted twice."""

from __future__ import annotations

from array import array
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.histogram import WORDS, Histogram

SECONDS = st.floats(2e-6, 900, allow_nan=False)


def filled(values, least=1e-6):
    histogram = Histogram(least)
    for value in values:
        histogram.add(value)
    return histogram


@given(st.lists(SECONDS, min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_within_half_a_bucket_of_the_exact_one(values, share):
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    found = filled(values).quantile(share)
    assert exact / 1.05 <= found <= exact * 1.05


@given(st.lists(SECONDS, max_size=40), st.lists(SECONDS, max_size=40))
def test_histogram_sum_adds_counts_and_difference_keeps_later_ones(first, second):
    whole = filled(first) + filled(second)
    assert whole == filled([*first, *second])
    assert whole - filled(first) == filled(second)
    assert whole.count == len(first) + len(second)
    assert whole.total == pytest.approx(sum(first) + sum(second), abs=1e-6 * (1 + whole.count))


@given(st.lists(SECONDS, min_size=1, max_size=20), st.integers(1, 100))
def test_a_weight_counts_a_number_as_often(values, weight):
    weighted, repeated = Histogram(), filled(values * weight)
    for value in values:
        weighted.add(value, weight)
    assert weighted == repeated


def test_rates_take_another_least_bound():
    histogram = filled([1e3, 5e6, 5e6, 2e9], least=1e3)
    assert histogram.quantile(0.5) == pytest.approx(5e6, rel=0.05)
    assert histogram.quantile(1) == pytest.approx(2e9, rel=0.05)
    assert [bucket.size for bucket in histogram.buckets()] == [1, 2, 1]
    assert all(bucket.low < bucket.high for bucket in histogram.buckets())


def test_numbers_beyond_the_buckets_count_as_the_nearest_bound():
    histogram = filled([0.0, -1.0, nan, 1e-9, inf, 1e9])
    assert histogram.count == 6
    assert histogram.quantile(0.5) == 1e-6
    assert histogram.quantile(1) == pytest.approx(1e-6 * 2**30)


def test_an_empty_one_has_zeros():
    empty = Histogram()
    assert (empty.count, empty.total, empty.mean, empty.quantile(0.99), empty.buckets()) == (0, 0.0, 0.0, 0.0, [])


def test_words_of_shared_memory_are_written_in_place():
    shared = memoryview(bytearray(8 * WORDS)).cast("q")
    Histogram(words=shared).add(0.5)
    assert Histogram(words=shared) == filled([0.5])
    copied = Histogram(words=shared).copy()
    Histogram(words=shared).add(0.5)
    assert copied.count == 1
    assert isinstance(copied.words, array)


def test_histogram_repr_shows_quantiles_and_hash_raises():
    assert repr(filled([1.0])) == "Histogram(count=1, mean=1, p50=1, p99=1)"
    assert filled([1.0]) != filled([2.0])
    with pytest.raises(TypeError):
        hash(Histogram())
