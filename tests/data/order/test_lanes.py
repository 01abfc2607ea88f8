"""Orders in lanes: every sample once, each block on one rank, few of them at a time, for any ranks that divide."""

from __future__ import annotations

import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.lanes import MOST_LANES, Lanes, by_lane
from penstock.data.order.orders import order_of
from penstock.data.order.protocol import LaneOrder, Order
from penstock.data.order.sampling import Cursor, Repeat, SamplingPlan, batch_indices, sample_indices
from penstock.errors import StateMismatch, Unusable
from penstock.values import Place
from tests.amounts import examples

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=40)
CATALOG = "c" * 64


@st.composite
def layouts(draw):
    """Sizes of blocks, an order, ranks that divide its lanes, and a batch that the lanes share."""
    sizes = draw(SIZES)
    world, more = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lanes = world * more
    batch = more * draw(st.integers(1, 6))
    equal = draw(st.booleans())
    sizes = [sizes[0]] * (len(sizes) - 1) + [draw(st.integers(1, sizes[0]))] if equal else sizes
    given = sizes[0] if equal else sizes
    order = Lanes(given, draw(st.integers(1, 5)), lanes, shuffle=draw(st.booleans()))
    return sizes, order, world, batch


def plan_of(sizes, order, batch, **changes) -> SamplingPlan:
    return SamplingPlan(**{"samples": sum(sizes), "batch": batch, "order": order, "seed": 5, **changes})


def of_rank(plan, cursor, rank, world, workers=1):
    """Return a rank's batches, taken from its workers in turn."""
    parts = [list(batch_indices(plan, cursor, Place(rank, world, worker, workers))) for worker in range(workers)]
    return [parts[number % workers][number // workers] for number in range(sum(map(len, parts)))]


def of_ranks(plan, cursor, world, workers=1):
    return [of_rank(plan, cursor, rank, world, workers) for rank in range(world)]


def blocks_of(sizes, samples):
    """Which block each sample lies in."""
    return np.repeat(np.arange(len(sizes)), sizes)[np.asarray(samples, dtype=np.int64)]


def alive(blocks) -> int:
    """Return how many blocks at most have been begun and not finished."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, block in enumerate(blocks):
        first.setdefault(block, at)
        last[block] = at
    change = np.zeros(len(blocks) + 1, dtype=np.int64)
    for block, at in first.items():
        change[at] += 1
        change[last[block] + 1] -= 1
    return int(np.cumsum(change).max(initial=0))


@given(layouts(), st.integers(1, 3), st.sampled_from(["short", "pad", "drop"]))
def test_ranks_and_workers_take_every_sample_once_in_as_many_batches(layout, workers, tail):
    sizes, order, world, batch = layout
    plan = plan_of(sizes, order, batch, tail=tail)
    ranks = of_ranks(plan, Cursor(1), world, workers)
    assert len({len(batches) for batches in ranks}) == 1
    taken = [index for index in chain(*chain(*ranks)) if not isinstance(index, Repeat)]
    assert len(set(taken)) == len(taken)
    whole = sum(sizes) - sum(sizes) % (batch * world) if tail == "drop" else sum(sizes)
    assert len(taken) == whole
    every = order.epoch(sum(sizes), 5, 1)(np.arange(sum(sizes))).tolist()
    assert set(taken) == set(every[:whole])


@given(layouts())
def test_each_block_is_read_by_one_rank_but_for_borders(layout):
    sizes, order, world, batch = layout
    ranks = of_ranks(plan_of(sizes, order, batch, tail="drop"), Cursor(2), world)
    reads = sum(len(set(blocks_of(sizes, list(chain(*batches))))) for batches in ranks)
    assert reads <= len(sizes) + world - 1


@given(layouts())
def test_an_incomplete_last_batch_makes_few_blocks_be_read_again(layout):
    sizes, order, world, batch = layout
    ranks = of_ranks(plan_of(sizes, order, batch), Cursor(2), world)
    whole = sum(sizes) // (batch * world)
    before = [set(blocks_of(sizes, list(chain(*batches[:whole])))) for batches in ranks]
    after = [set(blocks_of(sizes, list(chain(*batches[whole:])))) for batches in ranks]
    assert all(len(late - early) <= batch for early, late in zip(before, after, strict=True))


@given(layouts())
def test_a_rank_has_few_blocks_begun_and_not_finished(layout):
    sizes, order, world, batch = layout
    if not order.shuffle:
        order = Lanes(order.block_samples, order.window_blocks, order.lanes)
    plan = plan_of(sizes, order, batch, tail="drop")
    for batches in of_ranks(plan, Cursor(3), world):
        blocks = blocks_of(sizes, list(chain(*batches))).tolist()
        assert alive(blocks) <= order.window_blocks * order.lanes // world


@given(layouts(), st.integers(1, 4), st.data())
def test_global_batches_are_the_same_for_all_ranks_that_divide_the_lanes_after_any_stop(layout, workers, data):
    sizes, order, world, batch = layout
    every, lanes = batch * world, order.lanes
    free = Lanes(order.block_samples, order.window_blocks, shuffle=order.shuffle)  # lanes of the state
    divisors = [ranks for ranks in range(1, lanes + 1) if lanes % ranks == 0 and every % lanes == 0]
    plans = {ranks: plan_of(sizes, free, every // ranks) for ranks in divisors}

    def merged(ranks, cursor):
        parts = of_ranks(plans[ranks], cursor, ranks, workers)
        return [[index for each in row for index in each if type(index) is int] for row in zip(*parts, strict=True)]

    whole = merged(world, Cursor(4, 0, lanes))
    stopped = data.draw(st.integers(0, len(whole)))
    state = plans[world].state(plans[world].after(Cursor(4, 0, lanes), stopped, world), world, CATALOG)
    assert state["lanes"] == lanes
    for ranks in divisors:
        cursor = plans[ranks].resume(state, ranks, CATALOG)
        assert merged(ranks, cursor) == whole[stopped:]
        assert merged(ranks, Cursor(5, 0, cursor.lanes)) == merged(world, Cursor(5, 0, lanes))


@given(layouts(), st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.data())
def test_any_rank_count_resumes_from_any_stop_with_allow_rereads(layout, ranks, batch, workers, data):
    sizes, order, world, first = layout
    free = Lanes(order.block_samples, order.window_blocks, shuffle=order.shuffle)
    began = Cursor(1, 0, order.lanes)
    before, after = plan_of(sizes, free, first), plan_of(sizes, free, batch)
    stopped = data.draw(st.integers(0, sum(sizes) // (first * world)))
    got = [index for batches in of_ranks(before, began, world) for index in chain(*batches[:stopped])]
    state = before.state(before.after(began, stopped, world), world, CATALOG)
    cursor = after.resume(state, ranks, CATALOG, allow_new_global_batch=True, allow_rereads=True)
    parts = of_ranks(after, cursor, ranks, workers)
    assert len({len(part) for part in parts}) == 1
    rest = [index for index in chain(*chain(*parts)) if type(index) is int]
    if cursor.position > 0:  # else it is another order, of the same samples
        assert sorted(got + rest) == list(range(sum(sizes)))
    assert sorted(rest) == sorted(set(rest))
    new = [index for part in of_ranks(after, Cursor(2, 0, cursor.lanes), ranks) for index in chain(*part)]
    assert sorted(index for index in new if type(index) is int) == list(range(sum(sizes)))


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 40))
def test_a_batch_read_lane_by_lane_is_sorted_by_lane_and_position(first, size, lanes):
    at = np.arange(size)
    expected = sorted(range(first, first + size), key=lambda position: (position % lanes, position))
    assert by_lane(np.full(size, first), np.full(size, size), lanes, at).tolist() == expected


@given(SIZES, st.integers(1, 5), st.integers())
def test_single_lane_order_equals_block_shuffle(sizes, window, epoch):
    positions = np.arange(sum(sizes))
    for given_sizes in (sizes, sizes[0]):
        found = Lanes(given_sizes, window).epoch(sum(sizes), 3, epoch)(positions)
        assert found.tolist() == BlockShuffle(given_sizes, window).epoch(sum(sizes), 3, epoch)(positions).tolist()


@given(SIZES, st.integers(1, 5), st.integers(1, 60))
def test_equal_blocks_are_ordered_as_sizes_that_are_equal(sizes, window, lanes):
    count, size = sum(sizes), sizes[0]
    listed = [size] * (count // size) + ([count % size] if count % size else [])
    one, other = (Lanes(each, window, lanes).epoch(count, 1, 2)(np.arange(count)) for each in (size, listed))
    assert one.tolist() == other.tolist()
    assert sorted(one.tolist()) == list(range(count))


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 70), st.booleans())
def test_empty_blocks_and_empty_lanes_hold_nothing(sizes, lanes, shuffle):
    order = Lanes(sizes, 2, lanes, shuffle=shuffle)
    assert sorted(order.epoch(sum(sizes), 0, 0)(np.arange(sum(sizes))).tolist()) == list(range(sum(sizes)))


def test_the_order_is_the_same_for_ever():
    """A state of today resumes in years: what stands here may not change while the identity says 3."""
    order = Lanes([3, 5, 2, 4, 6, 1], 2, 2).epoch(21, 7, 1)(np.arange(21))
    assert order.tolist() == [15, 9, 16, 13, 19, 8, 6, 10, 7, 11, 17, 12, 14, 2, 5, 1, 4, 0, 3, 20, 18]
    assert Lanes(4, 2, 3, shuffle=False).epoch(11, 7, 1)(np.arange(11)).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7]
    assert Lanes(4, 2).identity == "lanes 3: 4 samples, window 2"
    assert Lanes([4, 3], 2).identity == "lanes 3: 2 of sizes 051a156331f33b0db721f9513137ea49, window 2"
    assert Lanes(4, 2, 8, shuffle=False).identity == "lanes 3: in order"


def test_another_epoch_and_another_seed_are_other_orders():
    found = [
        tuple(Lanes(8, 4, 4).epoch(1000, seed, epoch)(np.arange(1000)).tolist()) for seed in (0, 1) for epoch in (0, 1)
    ]
    assert len(set(found)) == 4


def test_unset_lanes_default_to_one_lane_per_rank():
    plan = plan_of([10] * 10, Lanes(10), 5)
    assert [plan.lanes(Cursor(), world) for world in (1, 2, 5)] == [1, 2, 5]
    assert plan.lanes(Cursor(3, 50, 8), 2) == 8
    assert plan.lanes(Cursor(3, 0, 10), 2) == 10
    assert plan.lanes(Cursor(3, 0, 3), 2) == 2  # a new epoch, and 3 lanes cannot be shared by 2 ranks
    assert plan_of([10] * 10, BlockShuffle(10), 5).lanes(Cursor(), 4) == 0


def test_a_plan_holds_to_the_lanes_of_the_epoch_under_way():
    plan = plan_of([10] * 10, Lanes(10), 5)
    cursor = plan.after(Cursor(), 2, 2)
    assert cursor == Cursor(0, 20, 2)
    assert plan.after(cursor, 1, 1) == Cursor(0, 25, 2)
    state = plan.state(cursor, 2, CATALOG)
    assert (state["lanes"], state["order"]) == (2, "lanes 3: 10 samples, window 16")
    assert plan_of([10] * 10, Lanes(10, lanes=6), 10).resume(state, 1, CATALOG).lanes == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"lanes": 0}, "lanes"),
        ({"lanes": True}, "lanes"),
        ({"lanes": None}, "lanes"),
        ({"lanes": MOST_LANES + 1}, "lanes"),
        ({"order": "lanes 3: 9 samples, window 16"}, "order"),
        ({"order": "lanes 1: 10 samples, window 16"}, "order"),
        ({"more": 1}, "unknown ones"),
    ],
)
def test_a_state_with_anything_else_in_it_is_refused(changes, says):
    plan = plan_of([10] * 10, Lanes(10), 5)
    state = plan.state(Cursor(1, 20, 2), 2, CATALOG)
    with pytest.raises(StateMismatch, match=says):
        plan.resume(state | changes, 2, CATALOG, allow_new_global_batch=True, allow_rereads=True)
    del state["lanes"]
    with pytest.raises(StateMismatch, match="lanes"):
        plan.resume(state, 2, CATALOG)


def test_states_with_and_without_lanes_are_mutually_rejected():
    lanes, shuffled = (plan_of([10] * 10, order_of(each), 5) for each in (Lanes(10), True))
    with pytest.raises(StateMismatch, match="order differs"):
        lanes.resume(shuffled.state(Cursor(), 2, CATALOG), 2, CATALOG)
    with pytest.raises(StateMismatch, match="order differs"):
        shuffled.resume(lanes.state(Cursor(), 2, CATALOG), 2, CATALOG)
    with pytest.raises(StateMismatch, match="has lanes"):
        shuffled.resume(shuffled.state(Cursor(), 2, CATALOG) | {"lanes": 2}, 2, CATALOG)


def test_ranks_that_cannot_share_the_lanes_are_refused_in_an_epoch_under_way():
    state = plan_of([10] * 12, Lanes(10), 6).state(Cursor(0, 24, 2), 2, CATALOG)
    other = plan_of([10] * 12, Lanes(10), 4)
    with pytest.raises(StateMismatch, match=r"3 ranks with batches of 4 cannot share the 2 lanes.*allow_rereads=True"):
        other.resume(state, 3, CATALOG)
    cursor = other.resume(state, 3, CATALOG, allow_rereads=True)
    assert cursor == Cursor(0, 24, 2)
    assert "several read the same blocks" in other.rereads(cursor, 3)
    assert other.lanes(Cursor(1, 0, 2), 3) == 3
    for position in (0, 120):  # between epochs there is nothing to read again
        assert other.resume(state | {"position": position}, 3, CATALOG).lanes == 2
    assert plan_of([10] * 12, Lanes(10), 12).resume(state, 1, CATALOG).lanes == 2


def test_lanes_that_ranks_cannot_share_are_refused_when_a_run_begins():
    plan = plan_of([10] * 12, Lanes(10, lanes=4), 2)
    plan.check_lanes(Cursor(), 1)
    plan.check_lanes(Cursor(), 4)
    for world in (2, 3, 4):
        if world == 4 or (world == 2 and plan.batch * 2 % 4 == 0):
            plan.check_lanes(Cursor(), world)
        else:
            with pytest.raises(Unusable, match=f"{world} ranks .* cannot share lanes=4.*lanes={world} would do"):
                plan.check_lanes(Cursor(), world)
    plan.check_lanes(Cursor(1, 0, 8), 3)  # a run that was allowed to


@given(layouts(), st.integers(1, 3))
def test_single_samples_are_dealt_by_lane_too(layout, workers):
    sizes, order, world, _ = layout
    plan = plan_of(sizes, order, 1)
    taken, reads = [], 0
    for rank in range(world):
        mine = [
            index
            for worker in range(workers)
            for index in sample_indices(plan, Cursor(0, 0, order.lanes), Place(rank, world, worker, workers))
        ]
        taken += mine
        reads += len(set(blocks_of(sizes, mine)))
    assert sorted(taken) == list(range(sum(sizes)))
    assert reads <= len(sizes) + order.lanes - 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"block_samples": 0}, "block_samples"),
        ({"block_samples": [2, -1]}, "sizes of blocks"),
        ({"block_samples": [1.5]}, "sizes of blocks"),
        ({"window_blocks": 0}, "window_blocks"),
        ({"lanes": 0}, "lanes"),
        ({"lanes": MOST_LANES + 1}, "lanes must be at most 1048576"),
        ({"lanes": 2.5}, "lanes"),
        ({"shuffle": "yes"}, "shuffle of Lanes"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(options, says):
    with pytest.raises(Unusable, match=says):
        Lanes(**{"block_samples": 4, **options})
    with pytest.raises(Unusable, match="hold 7 samples, and the dataset has 8"):
        plan_of([8], Lanes([3, 4]), 1)


def test_an_order_is_a_small_value():
    sizes = np.arange(1, 100_000)
    order = Lanes(sizes, 4, 8)
    assert isinstance(order, Order)
    assert isinstance(order, LaneOrder)
    assert not isinstance(BlockShuffle(4), LaneOrder)
    assert order_of(order) is order
    assert order == pickle.loads(pickle.dumps(order)) == Lanes(sizes.tolist(), 4, 8)
    assert len({order, Lanes(sizes, 4, 8), Lanes(sizes, 4), Lanes(sizes, 5, 8)}) == 3
    assert order != "lanes"
    assert len(repr(order)) < 200
    sizes[0] = 7
    assert order.block_samples[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        order.block_samples[0] = 2
    assert order.with_lanes(2) == Lanes(order.block_samples, 4, 2)


@settings(max_examples=examples(5))
@given(st.integers(0, 10**15 // 256 - 10))
def test_any_position_of_very_many_samples_is_found_at_once(at):
    plan = SamplingPlan(samples=10**15, batch=256, order=Lanes(10**7, 4, 64))
    position = at * 256
    first = next(batch_indices(plan, Cursor(0, position), Place()))
    assert len(set(first)) == 256
    assert len({index // 10**7 for index in first}) <= 4 * 64
