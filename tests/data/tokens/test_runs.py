"""Runs of token windows: each sample lies in its run; runs are read ahead once, and samples are cut from them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.reading.reading import in_lists
from penstock.data.tokens.runs import TokenReading, fitted_order, runs_of
from penstock.errors import Changed, Unusable
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


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        np.arange(number * 100_000, number * 100_000 + 50_000, dtype="u4").tofile(tmp_path / f"{number}.bin")
    return tmp_path


def opened(folder):
    return ps.TokenDataset.from_shards(f"{folder}/", length=100, dtype="u4").windows


def batches(count, size=32):
    return [[*range(at, min(at + size, count))] for at in range(0, count, size)]


def reading(runs, order, made=None, together=1000):
    return TokenReading(runs, order, 1, made, together, None)


@pytest.mark.parametrize("made", [None, lambda _, view: view.copy()])
@pytest.mark.parametrize("together", [1, 7, 1000])
def test_samples_are_cut_from_runs_read_once(folder, made, together):
    windows = opened(folder)
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows)), made, together)
    found = [np.asarray(each) for batch in in_lists(items) for each in batch]
    assert [each[0] for each in found] == [file * 100_000 + at * 100 for file in range(3) for at in range(500)]
    assert all((np.diff(each.astype(int)) == 1).all() for each in found)
    assert items.counts.size_bytes == 3 * 50_000 * 4
    assert items.counts.requests == 27  # a block that begins in one file and ends in the next takes two


def test_full_shuffle_reads_each_sample_in_a_request(folder):
    windows = opened(folder)
    items = reading(runs_of(windows, FullShuffle()), [[7, 1200, 3]])
    assert [each[0] for [*batch] in in_lists(items) for each in batch] == [700, 220_000, 300]
    assert items.counts.requests == 3


def test_tokens_of_made_samples_are_let_go(folder):
    windows = opened(folder)
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows)))
    most = 0
    for item in items:
        item.make()
        most = max(most, len(items._tokens))
    assert 0 < most < 27
    assert not items._tokens
    assert not items._known


def test_samples_of_a_replaced_file_fail_and_others_do_not(folder):
    windows = opened(folder)
    np.zeros(50_000, "u4").tofile(folder / "1.bin")
    items = reading(runs_of(windows, ps.order.BlockShuffle(60)), batches(len(windows), 500))
    found = [each for item in items for each in item.make() or ()]
    assert [hasattr(each, "error") for each in found] == [False] * 500 + [True] * 500 + [False] * 500
    assert isinstance(found[700].error, Changed)
    assert found[700].name.endswith("/1.bin")
