"""Samples come as often as their weights demand, and those of a block stay within its window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.lanes import Lanes
from penstock.data.order.sampling import Cursor, SamplingPlan
from penstock.data.order.weighted_blocks import WeightedBlocks
from penstock.errors import Unusable
from tests.amounts import examples


def order_of(weights, blocks=7, window=3, **arguments):
    return WeightedBlocks(Lanes(blocks, window, arguments.pop("lanes", None)), weights, **arguments)


def drawn(order, seed=0, epoch=0):
    samples = len(order.weights)
    return order.epoch(samples, seed, epoch)(np.arange(order.positions(samples)))


WEIGHTS = st.lists(st.sampled_from([0, 0.01, 0.5, 1, 2.5, 30]), min_size=5, max_size=60).filter(any)


@settings(max_examples=examples(60))
@given(WEIGHTS, st.none() | st.integers(1, 200), st.integers(0, 5), st.booleans(), st.sampled_from([1, 2, 4]))
def test_each_sample_comes_as_often_as_expected_rounded_down_or_up(weights, count, epoch, uneven, lanes):
    sizes = [3, *[4] * 20] if uneven else 4
    sizes = np.diff([0, *[end for end in np.cumsum(sizes) if end < len(weights)], len(weights)]) if uneven else 4
    order = order_of(weights, sizes, 2, epoch_samples=count, lanes=lanes)
    found = np.bincount(drawn(order, 1, epoch), minlength=len(weights))
    total = count or len(weights)
    expected = np.array(weights) / sum(weights) * total
    assert found.sum() == total
    assert (found >= np.floor(expected - 1e-6)).all()
    assert (found <= np.ceil(expected + 1e-6)).all()


@pytest.mark.parametrize("replacement", [True, False])
def test_shares_over_many_epochs_are_those_of_the_weights(replacement):
    weights = np.array([0, 0.2, 1, 3, 0.5] * 40)
    order = order_of(weights, replacement=replacement, epoch_samples=50)
    found = sum(np.bincount(drawn(order, 0, epoch), minlength=200) for epoch in range(400))
    expected = weights / weights.sum() * 50 * 400
    assert (np.abs(found - expected) <= 6 * np.sqrt(expected) + 1e-9).all()
    assert drawn(order, 0, 1).tolist() != drawn(order, 0, 2).tolist() != drawn(order, 1, 2).tolist()


@pytest.mark.parametrize("replacement", [True, False])
def test_a_block_is_begun_and_finished_within_its_window(replacement):
    weights = np.random.default_rng(0).pareto(1.5, 2000)
    order = order_of(weights, 50, 4, replacement=replacement, epoch_samples=3000)
    blocks = drawn(order) // 50
    first = {block: at for at, block in reversed([*enumerate(blocks.tolist())])}
    last = {block: at for at, block in enumerate(blocks.tolist())}
    open_blocks = [sum(first[each] <= at <= last[each] for each in first) for at in range(0, 3000, 10)]
    assert max(open_blocks) <= 4
    assert np.bincount(blocks).max() <= order.most


def test_lanes_are_those_of_the_ranks_and_a_state_names_the_weights():
    plans = [SamplingPlan(samples=40, batch=4, order=order_of(np.arange(40) + each)) for each in (0, 1)]
    assert plans[0].lanes(Cursor(), 2) == 2
    assert plans[0].state(Cursor(), 1, "")["order"] != plans[1].state(Cursor(), 1, "")["order"]
    assert plans[0].order.with_lanes(4).identity == plans[0].order.identity


@pytest.mark.parametrize(
    ("weights", "arguments", "words"),
    [
        ([1, -1], {}, "weights of samples must be finite, 0 or more"),
        ([0, 0], {}, "not all 0"),
        ([1, 2], {"replacement": 2}, "replacement must be True or False"),
        ([1, 2], {"epoch_samples": 0}, "epoch_samples must be"),
    ],
)
def test_invalid_arguments_are_refused(weights, arguments, words):
    with pytest.raises(Unusable, match=words):
        order_of(weights, **arguments)


def test_weights_of_another_number_of_samples_are_refused():
    with pytest.raises(Unusable, match="weights of 2 samples, and the dataset has 3"):
        order_of([1, 2]).positions(3)
