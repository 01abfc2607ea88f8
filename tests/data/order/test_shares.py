"""Shares: every block is divided exactly, and what rounding takes it gives back."""

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order import shares as module
from penstock.data.order.shares import MOST_DRAWS, EndingShares, Shares, choose_step, count_draws
from penstock.errors import Unusable
from tests.amounts import examples

# A source is off by 1 at its own node, and by its part of what the nodes above it are off.
OFF = 3
WEIGHTS = st.lists(st.one_of(st.just(0), st.integers(1, 100), st.floats(1e-6, 1)), min_size=1, max_size=20).filter(any)


@given(weights=WEIGHTS, size=st.integers(1, 500))
@settings(max_examples=examples(100))
def test_every_block_has_each_share_rounded_up_or_down(weights, size):
    counts = np.diff(Shares(weights, size).bounds(np.arange(200)), axis=1)
    wanted = np.array([float(Fraction(each) * size / sum(map(Fraction, weights))) for each in weights])
    assert (counts.sum(axis=1) == size).all()
    assert (np.abs(counts - wanted) < 1 + 1e-9).all()
    assert (counts[:, wanted == 0] == 0).all()


@given(weights=WEIGHTS, size=st.integers(1, 500), block=st.integers(0, 300))
@settings(max_examples=examples(100))
def test_draws_before_a_block_are_the_sum_of_those_of_earlier_blocks(weights, size, block):
    shares = Shares(weights, size)
    counts = np.diff(shares.bounds(np.arange(block)), axis=1)
    assert shares.before(block).tolist() == counts.sum(axis=0).tolist()


def test_shares_stay_within_a_few_draws_of_their_weights_over_a_billion_blocks():
    weights = [1 / (number + 1) for number in range(64)]
    shares = Shares(weights, 256)
    for blocks in (10**3, 10**6, 10**9):
        wanted = np.array(weights) / sum(weights) * 256 * blocks
        assert np.abs(shares.before(blocks) - wanted).max() < 8


def test_bounds_of_a_distant_block_do_not_overflow():
    shares = Shares([1, 2, 3], 7)
    block = (1 << 58) + 12345
    counts = np.diff(shares.bounds(np.array([block])), axis=1)[0]
    assert counts.tolist() == (shares.before(block + 1) - shares.before(block)).tolist()


@given(first=st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), data=st.data())
@settings(max_examples=examples(100))
def test_weights_change_from_the_first_block_to_the_last_in_equal_steps(first, data):
    last = data.draw(st.lists(st.one_of(st.just(0), st.floats(0, 9)), min_size=4, max_size=4).filter(sum))
    size, start, count = (
        data.draw(st.integers(1, 300)),
        data.draw(st.integers(0, 9000)),
        data.draw(st.integers(1, 9000)),
    )
    blocks = range(start, start + count)
    first, last = (np.array(weights) / sum(weights) for weights in (first, last))
    shares = Shares(first, size, last, blocks)
    counts = np.diff(shares.bounds(np.array(blocks)), axis=1)
    part = np.arange(count)[:, np.newaxis] / max(count - 1, 1)
    wanted = (first * (1 - part) + last * part) * size
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == size).all()
    assert (np.abs(counts - wanted) < 1 + 1e-6).all()
    assert (counts[:, (first == 0) & (last == 0)] == 0).all()
    assert shares._slopes[0, -1] == 0, "the size of a block"
    assert (np.diff(shares._targets + shares._slopes * (count - 1)) >= 0).all()
    at = data.draw(st.integers(0, count))
    assert shares.before(start + at).tolist() == counts[:at].sum(axis=0).tolist()
    several = count_draws(np.stack([first, last]), np.stack([last, last]), size, [range(start, start + at), range(at)])
    assert several[1].tolist() == Shares(last, size).before(at).tolist()
    if at > 1:
        own = Shares(first, size, last, range(start, start + at))
        assert several[0].tolist() == np.diff(own.bounds(np.arange(start, start + at)), axis=1).sum(axis=0).tolist()


def test_a_stage_of_a_billion_blocks_reaches_its_last_weights():
    blocks = range(10**9)
    shares = Shares(np.array([0.9, 0.1, 0]), 256, np.array([0.2, 0.1, 0.7]), blocks)
    counts = np.diff(shares.bounds(np.array([0, 10**9 // 2, 10**9 - 1])), axis=1)
    assert np.abs(counts / 256 - [[0.9, 0.1, 0], [0.55, 0.1, 0.35], [0.2, 0.1, 0.7]]).max() < 1.1 / 256
    assert np.abs(shares.before(10**9) / (256 * 10**9) - [0.55, 0.1, 0.35]).max() < 1e-4


def test_sums_beyond_64_bits_are_those_of_small_numbers(monkeypatch):
    shares = Shares(np.array([1, 2, 3]), 7, np.array([3, 0, 3]), range(100, 9000))
    blocks = [100, 101, 4095, 4096, 4097, 8191, 8999, 9000]
    found = [shares.before(block).tolist() for block in blocks]
    monkeypatch.setattr(module, "_SMALL", 1)
    shares = Shares(np.array([1, 2, 3]), 7, np.array([3, 0, 3]), range(100, 9000))
    assert [shares.before(block).tolist() for block in reversed(blocks)] == found[::-1]


UNITS = st.lists(
    st.tuples(st.one_of(st.integers(1, 9), st.floats(1e-6, 1)), st.integers(0, 200)), min_size=1, max_size=40
)


@given(sources=UNITS, size=st.integers(1, 50), start=st.integers(0, 5))
@settings(max_examples=examples(100))
def test_ending_sources_give_all_they_have_and_until_then_their_shares(sources, size, start):
    weights, units = (np.array(each) for each in zip(*sources, strict=True))
    count = int(units.sum()) // size
    shares = EndingShares(weights.astype(float), units, size, start)
    if not count:
        return
    counts = np.diff(shares.bounds(np.arange(start, start + count)), axis=1)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == size).all()
    given = np.cumsum(counts, axis=0)
    assert (given <= units).all()
    for block in range(count):
        assert shares.before(start + block + 1).tolist() == given[block].tolist()
    low, high = np.zeros(count), np.full(count, (units / weights).max())
    for _ in range(200):
        middle = (low + high) / 2
        fewer = np.minimum(units, weights * middle[:, np.newaxis]).sum(axis=1) < size * np.arange(1, count + 1)
        low, high = np.where(fewer, middle, low), np.where(fewer, high, middle)
    assert np.abs(given - np.minimum(units, weights * high[:, np.newaxis])).max() < OFF


def test_ending_sources_of_2_to_the_61_units_are_exact():
    units = np.array([(1 << 61) - 3, 1, (1 << 60) + 1, 1 << 31])
    shares = EndingShares(np.array([1.0, 1e-12, 3, 1e-200]), units, 1, 0)
    total = int(units.sum())
    for block in (0, 1, 1 << 40, (1 << 60) + 7, total - 1, total):
        given = shares.before(block)
        assert int(given.sum()) == block
        assert ((given >= 0) & (given <= units)).all()
        if block < total:
            assert np.diff(shares.bounds(np.array([block]))[0]).min() >= 0
    assert shares.before(total).tolist() == units.tolist()


@pytest.mark.parametrize("power", [0, 1, 3, 50])
def test_the_tree_of_ending_sources_is_low(power):
    heights = []
    for count in (8, 64, 512, 4096):
        weights = 1 / (np.arange(count) + 1.0) ** power
        shares = EndingShares(weights, np.full(count, 10**6), 256, 0)
        heights.append(len(shares._levels))
    assert all(height <= np.log2(count) + 4 for height, count in zip(heights, (8, 64, 512, 4096), strict=True))


def test_a_block_of_too_many_draws_is_refused():
    Shares([1], MOST_DRAWS)
    with pytest.raises(Unusable, match="at most"):
        Shares([1], MOST_DRAWS + 1)


@given(size=st.integers(1, 10_000))
@settings(max_examples=examples(100))
def test_a_spread_visits_every_place_and_puts_neighbours_far_apart(size):
    step = choose_step(size)
    assert gcd(step, size) == 1
    if size > 100:
        assert size // 3 < step < size - size // 4
