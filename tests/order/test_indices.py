"""Positions become samples in blocks, lazily, and nothing is lost at a block's edge."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order.indices import batch_indices, sample_indices
from penstock.order.partition import Repeat
from penstock.order.sampling import Cursor, SamplingPlan
from penstock.values import Place

_totals, _few = st.integers(0, 5000), st.integers(1, 4)


@given(_totals, st.integers(1, 7), _few, _few, st.booleans(), st.sampled_from(["short", "pad"]))
def test_ranks_and_workers_together_take_every_sample_once_and_know_what_repeats(
    total, batch, world, workers, shuffle, tail
):
    plan = SamplingPlan(total=total, batch=batch, shuffle=shuffle, seed=5, tail=tail)
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


@given(_totals, _few, _few, st.booleans(), st.data())
def test_a_stroll_takes_every_remaining_sample_once(total, world, workers, shuffle, data):
    start = data.draw(st.integers(0, total))
    plan = SamplingPlan(total=total, batch=1, shuffle=shuffle, seed=3)
    places = [Place(rank, world, worker, workers) for rank in range(world) for worker in range(workers)]
    taken = [index for place in places for index in sample_indices(plan, Cursor(2, start), place)]
    order = plan.order(2)
    assert sorted(taken) == sorted(range(start, total) if order is None else order.block(start, total).tolist())


def test_a_batch_is_the_permutation_of_its_positions():
    plan = SamplingPlan(total=100_000, batch=10, shuffle=True, seed=1)
    order = plan.order(2)
    for number, indices in enumerate(islice(batch_indices(plan, Cursor(2), Place()), 3000)):
        assert indices == order.block(number * 10, number * 10 + 10).tolist()


@pytest.mark.parametrize("taken", [batch_indices, sample_indices])
def test_it_looks_no_further_ahead_than_a_block(taken):
    """Of 10^15 samples the first comes at once, and from their middle too."""
    plan = SamplingPlan(total=10**15, batch=256, shuffle=True)
    for cursor in (Cursor(0), Cursor(0, 5 * 10**14)):
        first = next(taken(plan, cursor, Place()))
        assert (first[0] if taken is batch_indices else first) == plan.order(0).at(cursor.position)
    one = next(taken(SamplingPlan(total=1, batch=1), Cursor(), Place()))
    assert type(one if taken is sample_indices else one[0]) is int
