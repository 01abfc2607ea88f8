"""Positions become samples in blocks, lazily, and nothing is lost at a block's edge."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.order.sampling import Cursor, Repeat, SamplingPlan, batch_indices, sample_indices
from penstock.data.order.shuffle import Permutation
from penstock.values import Place

_totals, _few = st.integers(0, 5000), st.integers(1, 4)
_orders = st.sampled_from([CatalogOrder(), FullShuffle(), BlockShuffle(37, 3)])


@given(_totals, st.integers(1, 7), _few, _few, _orders, st.sampled_from(["short", "pad"]))
def test_ranks_and_workers_cover_every_sample_once_and_mark_repeats(total, batch, world, workers, order, tail):
    plan = SamplingPlan(samples=total, batch=batch, order=order, seed=5, tail=tail)
    taken, repeated = [], []
    for rank in range(world):
        for worker in range(workers):
            for indices in batch_indices(plan, Cursor(1), Place(rank, world, worker, workers)):
                assert 1 <= len(indices) <= batch
                taken += [index for index in indices if not isinstance(index, Repeat)]
                repeated += [index for index in indices if isinstance(index, Repeat)]
    assert sorted(taken) == list(range(total))
    rest = total % (batch * world)
    filled = {"short": max(0, world - rest), "pad": batch * world - rest}[tail] if rest else 0
    assert len(repeated) == filled
    assert set(repeated) <= set(taken)


@given(_totals, _few, _few, _orders, st.data())
def test_sample_indices_take_every_remaining_sample_once(total, world, workers, order, data):
    start = data.draw(st.integers(0, total))
    plan = SamplingPlan(samples=total, batch=1, order=order, seed=3)
    places = [Place(rank, world, worker, workers) for rank in range(world) for worker in range(workers)]
    taken = [index for place in places for index in sample_indices(plan, Cursor(2, start), place)]
    assert sorted(taken) == sorted(plan.indices(Cursor(2), 1)(np.arange(start, total)).tolist())


def test_a_batch_is_the_permutation_of_its_positions():
    plan = SamplingPlan(samples=100_000, batch=10, order=FullShuffle(), seed=1)
    order = Permutation(100_000, 1, 2)
    for number, indices in enumerate(islice(batch_indices(plan, Cursor(2), Place()), 3000)):
        assert indices == order.block(number * 10, number * 10 + 10).tolist()


@pytest.mark.parametrize("taken", [batch_indices, sample_indices])
def test_indices_are_drawn_lazily_without_scanning_the_epoch(taken):
    """Of 10^15 samples the first comes at once, and from their middle too."""
    plan = SamplingPlan(samples=10**15, batch=256, order=FullShuffle())
    for cursor in (Cursor(0), Cursor(0, 5 * 10**14)):
        first = next(taken(plan, cursor, Place()))
        assert (first[0] if taken is batch_indices else first) == Permutation(10**15, 0, 0).at(cursor.position)
    one = next(taken(SamplingPlan(samples=1, batch=1), Cursor(), Place()))
    assert type(one if taken is sample_indices else one[0]) is int


@given(st.integers(1, 600), _few, st.integers(1, 3), _orders, st.data())
def test_global_batches_are_the_same_for_each_number_of_ranks_and_workers_and_after_a_stop(
    total, batch, share, order, data
):
    every = 12 * batch
    plans = {world: SamplingPlan(samples=total, batch=every // world, order=order, seed=9) for world in (1, 2, 3, 4)}

    def merged(world, workers, start):
        """Return the global batches as the ranks' parts joined, each rank's batches taken from workers in turn."""
        ranks = []
        for rank in range(world):
            parts = [
                list(batch_indices(plans[world], Cursor(3, start), Place(rank, world, worker, workers)))
                for worker in range(workers)
            ]
            ranks.append([parts[number % workers][number // workers] for number in range(sum(map(len, parts)))])
        return [[index for part in parts for index in part if type(index) is int] for parts in zip(*ranks, strict=True)]

    whole = merged(1, 1, 0)
    stopped = data.draw(st.integers(0, len(whole)))
    start = plans[1].after(Cursor(3), stopped, 1).position
    for world in plans:
        assert merged(world, share, start) == whole[stopped:]
