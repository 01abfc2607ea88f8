"""Runs of token windows: each sample lies in its run, runs are short, and no byte is in two of them without overlap."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.tokens.runs import fitted_order, runs_of
from penstock.errors import Unusable
from tests.amounts import examples
from tests.data.tokens.test_windows import lies_in, windows

UNITS = st.lists(st.lists(st.integers(0, 1500), max_size=8), min_size=1, max_size=5)
ORDERS = [
    CatalogOrder(),
    FullShuffle(),
    ps.order.Lanes(),
    ps.order.BlockShuffle(5),
    ps.order.Lanes(3, 2),
    ps.order.BlockShuffle(block_bytes=1500),
    ps.order.Lanes(7, shuffle=False),
]


@given(UNITS, st.sampled_from([0, 1, 50, 300]), st.integers(1, 1000), st.sampled_from(ORDERS), st.booleans())
@settings(max_examples=examples(150))
def test_runs_hold_their_samples_and_partition_them(units, length, stride, order, listed):
    found = windows(units, length, stride)
    order = fitted_order(order, found)
    if listed and isinstance(order, ps.order.BlockShuffle):
        sizes = np.bincount(np.arange(len(found)) ** 2 % 7, minlength=7) if len(found) else [0]
        order = ps.order.BlockShuffle(sizes)
    runs = runs_of(found, order)
    numbers = runs.of(np.arange(len(found))).tolist()
    assert numbers == sorted(numbers)
    bounds = [runs.bounds(number) for number in dict.fromkeys(numbers)]
    assert [at for first, stop in bounds for at in range(first, stop)] == [*range(len(found))]
    for sample, number in enumerate(numbers):
        first, stop = runs.bounds(number)
        run, own = runs.piece(number), found.piece(sample, sample)
        assert first <= sample < stop
        assert lies_in(own, run)
        if isinstance(order, FullShuffle):
            assert run == own
    spans = [*runs]
    assert spans == [span for number in dict.fromkeys(numbers) for span in runs.piece(number).spans]
    if stride >= length:
        assert all(a.key != b.key or a.stop <= b.start for a, b in itertools.pairwise(spans))


def test_blocks_by_bytes_are_equal_and_take_no_memory():
    found = windows([[10**11]] * 8, 2049, 2049, "tokens")
    order = fitted_order(ps.order.Lanes(), found)
    assert order.block_samples == (1 << 20) // 4098
    runs = runs_of(found, order)
    [middle] = runs.of(np.array([len(found) // 3])).tolist()
    [span] = runs.piece(middle).spans
    assert span.stop - span.start == 255 * 4098
    lookup = order.with_lanes(2).epoch(len(found), 0, 0)
    assert len(set(lookup(np.arange(1000)).tolist())) == 1000


def test_blocks_of_documents_are_cut_by_their_bytes():
    found = windows([[300_000] * 7, [1000] * 5], 0, 0)
    assert fitted_order(ps.order.Lanes(), found).block_samples.tolist() == [2, 2, 2, 1, 5]


def test_long_blocks_are_several_requests():
    found = windows([[10**8]], 2049, 2049, "tokens")
    for order in (ps.order.BlockShuffle(20_000), ps.order.BlockShuffle([20_000, len(found) - 20_000])):
        sizes = [span.stop - span.start for span in runs_of(found, order)]
        assert max(sizes) <= 8 << 20
        assert len(sizes) <= 2 + 2 * 10**8 / (8 << 20) + 3


def test_windows_far_apart_are_separate_requests():
    found = windows([[10**6]], 100, 50_000, "tokens")
    for order in (CatalogOrder(), ps.order.Lanes(), ps.order.BlockShuffle(4)):
        assert [(span.start, span.stop) for span in runs_of(found, fitted_order(order, found))] == [
            (at * 100_000, at * 100_000 + 200) for at in range(20)
        ]


def test_long_gaps_between_documents_are_not_read():
    # Of five documents only the first and the last have a window.
    found = windows([[100, 90, 90, 90, 100, 100]], 100, 100)
    assert [(span.start, span.stop) for span in runs_of(found, CatalogOrder())] == [(0, 1140)]
    found = windows([[100, *[90] * 50, 100, 100]], 100, 100)
    assert [(span.start, span.stop) for span in runs_of(found, CatalogOrder())] == [(0, 200), (9200, 9600)]


def test_wrong_orders_are_refused():
    with pytest.raises(Unusable, match="shuffle must be True, False or an order"):
        fitted_order("yes", windows([[100]], 10, 10))
