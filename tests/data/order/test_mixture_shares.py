"""Shares: every block is divided exactly, and what rounding takes it gives back."""

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.mixture import MOST_DRAWS, Shares, choose_step
from penstock.errors import Unusable
from tests.amounts import examples

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
