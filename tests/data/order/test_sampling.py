"""A state names a position of an order, and only of that one: whatever else it may be, it is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.order.orders import CatalogOrder, FullShuffle, order_of
from penstock.data.order.sampling import Cursor, SamplingPlan
from penstock.errors import StateMismatch, Unusable
from penstock.values import Place

PLAN = SamplingPlan(samples=100, batch=6, order=FullShuffle(), seed=7)
WORLD, CATALOG = 2, "c0ffee" * 10
STATE = PLAN.state(Cursor(3, 24), WORLD, CATALOG)

_plans = st.builds(
    SamplingPlan,
    samples=st.integers(0, 10**9),
    batch=st.integers(1, 10**4),
    order=st.sampled_from([CatalogOrder(), FullShuffle(), BlockShuffle(7)]),
    seed=st.integers(-(2**128), 2**128),
    tail=st.sampled_from(["drop", "short", "pad"]),
)


@given(_plans, st.integers(0, 2**40), st.integers(0, 10**6), st.integers(1, 5000))
def test_a_state_comes_back_from_json_as_the_cursor_it_was_made_of(plan, epoch, batches, world):
    cursor = plan.after(Cursor(epoch), batches, world)
    text = json.dumps(plan.state(cursor, world, "f" * 64))
    assert len(text) < 1024
    assert plan.resume(json.loads(text), world, "f" * 64) == cursor
    assert type(plan.resume(json.loads(text), world, "f" * 64)) is Cursor


def test_numbers_of_numpy_are_as_good_as_pythons():
    plan = SamplingPlan(samples=np.int64(100), batch=np.int32(6), order=order_of(np.True_), seed=np.int64(7))
    state = json.loads(json.dumps(plan.state(Cursor(np.int64(3), np.int64(24)), np.int64(2), CATALOG)))
    assert state == STATE
    assert plan.resume(state, 2, CATALOG) == Cursor(3, 24)


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 4), st.integers(0, 40), st.integers(0, 40))
def test_received_batches_add_up(total, batch, world, first, then):
    plan = SamplingPlan(samples=total, batch=batch)
    cursor = plan.after(plan.after(Cursor(1), first, world), then, world)
    assert cursor == plan.after(Cursor(1), first + then, world)
    assert cursor == Cursor(1, min(total, (first + then) * batch * world))


@given(st.integers(0, 200), st.integers(1, 9), st.integers(1, 4), st.sampled_from(["drop", "short", "pad"]))
def test_after_so_many_batches_the_others_are_left(total, batch, world, tail):
    plan = SamplingPlan(samples=total, batch=batch, tail=tail)
    for rank in range(world):
        place = Place(rank, world)
        whole = list(plan.batches(Cursor(), place))
        for received in range(len(whole) + 1):
            assert list(plan.batches(plan.after(Cursor(), received, world), place)) == whole[received:]


def test_a_negative_count_of_batches_is_refused():
    with pytest.raises(Unusable, match="0 or more, got -1"):
        PLAN.after(Cursor(), -1, 1)


def test_shuffled_order_differs_per_epoch_and_catalog_order_is_constant():
    every = np.arange(100)
    orders = [PLAN.indices(Cursor(epoch), 1)(every).tolist() for epoch in range(3)]
    assert all(sorted(order) == every.tolist() for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert SamplingPlan(samples=100, batch=6).indices(Cursor(5), 1)(every).tolist() == every.tolist()


@pytest.mark.parametrize(
    ("plan", "world", "catalog", "says"),
    [
        (PLAN, WORLD, "another", "catalog"),
        (SamplingPlan(samples=101, batch=6, order=FullShuffle(), seed=7), WORLD, CATALOG, "length"),
        (SamplingPlan(samples=100, batch=6, order=FullShuffle(), seed=8), WORLD, CATALOG, "seed"),
        (SamplingPlan(samples=100, batch=6, seed=7), WORLD, CATALOG, "not shuffled"),
        (SamplingPlan(samples=100, batch=5, order=FullShuffle(), seed=7), WORLD, CATALOG, "allow_new_global_batch=T"),
        (PLAN, 1, CATALOG, "allow_new_global_batch=True"),
    ],
)
def test_state_of_a_different_plan_is_refused_with_the_reason(plan, world, catalog, says):
    with pytest.raises(StateMismatch, match=says):
        plan.resume(STATE, world, catalog)


def test_same_global_batch_resumes_on_other_ranks_and_new_one_needs_option():
    assert SamplingPlan(samples=100, batch=3, order=FullShuffle(), seed=7).resume(STATE, 4, CATALOG) == Cursor(3, 24)
    assert PLAN.resume(STATE, 1, CATALOG, allow_new_global_batch=True) == Cursor(3, 24)
    for name in ("catalog", "seed", "samples", "penstock"):
        with pytest.raises(StateMismatch):
            PLAN.resume({**STATE, name: "another"}, WORLD, CATALOG, allow_new_global_batch=True)


def test_the_tail_may_change_for_it_moves_no_position():
    assert SamplingPlan(samples=100, batch=6, order=FullShuffle(), seed=7, tail="pad").resume(
        STATE, WORLD, CATALOG
    ) == Cursor(3, 24)


HUGE = 10**5000  # repr() of it raises


HOSTILE = [
    *[None, 7, "state", b"state", [], [1, 2], {}, object(), {"epoch": 1}, SamplingPlan, np.zeros(3)],
    *[{**STATE, "penstock": version} for version in (0, 2, "1", None, 1.5, [1], HUGE)],
    *[{**STATE, "position": at} for at in (-1, 101, 24.0, "24", None, True, [], math.nan, math.inf, HUGE, -HUGE)],
    *[{**STATE, "epoch": at} for at in (0.5, "3", None, True, [3], math.nan, HUGE, 1 << 63, -(1 << 63))],
    *[{**STATE, "samples": count} for count in (-1, 99, "100", None, math.nan, HUGE, [100])],
    *[{**STATE, "global_batch": batch} for batch in (12.0, "12", None, math.nan, [12])],
    *[{**STATE, "seed": seed} for seed in (8, "7", None, math.nan, [])],
    *[{**STATE, "catalog": digest} for digest in ("", None, 1, CATALOG.upper(), CATALOG * 10**5)],
    *[{**STATE, name: np.array([1, 2])} for name in STATE],
    *[{key: value for key, value in STATE.items() if key != name} for name in STATE],
    {**STATE, "more": 1},
    {**STATE, 5: 1},
]


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("state", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_no_other_state_is_taken_and_no_other_error_raised(state, allowed):
    with pytest.raises(StateMismatch) as caught:
        PLAN.resume(state, WORLD, CATALOG, allow_new_global_batch=allowed)
    assert len(str(caught.value)) < 500


@given(
    st.dictionaries(
        st.sampled_from([*STATE, "x"]),
        st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=4),
    )
)
def test_a_state_with_anything_in_it_is_a_cursor_within_bounds_or_refused(changes):
    try:
        epoch, position, *_ = PLAN.resume({**STATE, **changes}, WORLD, CATALOG, allow_new_global_batch=True)
    except StateMismatch:
        return
    assert type(epoch) is type(position) is int
    assert 0 <= position <= PLAN.total


def test_the_cost_of_going_on_does_not_depend_on_where():
    """Of 10^8 samples, at sample 9 * 10^7, only the blocks that are read are computed."""
    plan = SamplingPlan(samples=10**8, batch=256, order=FullShuffle())
    state = plan.state(plan.after(Cursor(), 9 * 10**7 // 256, 1), 1, "")
    left = plan.batches(plan.resume(state, 1, ""), Place())
    assert next(iter(left)) == (9 * 10**7 // 256 * 256, 9 * 10**7 // 256 * 256 + 256)
    assert len(left) == math.ceil(10**8 / 256) - 9 * 10**7 // 256


_OLD = {"penstock": 1, "epoch": 3, "position": 24, "samples": 100, "global_batch": 12, "catalog": CATALOG}
OLD = {
    "shuffled": (SamplingPlan(samples=100, batch=6, order=FullShuffle(), seed=7), _OLD | {"seed": 7}),
    "in catalog order": (SamplingPlan(samples=100, batch=6), _OLD | {"seed": None}),
}


@pytest.mark.parametrize("name", OLD)
def test_a_state_saved_before_orders_had_names_resumes_and_is_still_written(name):
    plan, state = OLD[name]
    assert plan.resume(state, WORLD, CATALOG) == Cursor(3, 24)
    assert plan.state(Cursor(3, 24), WORLD, CATALOG) == state


@pytest.mark.parametrize("name", OLD)
def test_a_state_saved_before_orders_had_names_is_refused_by_another_order(name):
    for order in (BlockShuffle(7), BlockShuffle([50, 50])):
        with pytest.raises(StateMismatch, match="order differs"):
            SamplingPlan(samples=100, batch=6, order=order, seed=7).resume(OLD[name][1], WORLD, CATALOG)


BLOCKS = [BlockShuffle(7), BlockShuffle(8), BlockShuffle(7, 3), BlockShuffle([50, 50]), BlockShuffle([49, 51])]


@pytest.mark.parametrize("ours", BLOCKS, ids=repr)
@pytest.mark.parametrize("theirs", [FullShuffle(), CatalogOrder(), *BLOCKS], ids=repr)
def test_a_state_resumes_under_the_order_that_made_it_and_no_other(theirs, ours):
    state = SamplingPlan(samples=100, batch=6, order=theirs, seed=7).state(Cursor(3, 24), WORLD, CATALOG)
    plan = SamplingPlan(samples=100, batch=6, order=ours, seed=7)
    if ours == theirs:
        assert plan.resume(json.loads(json.dumps(state)), WORLD, CATALOG) == Cursor(3, 24)
        return
    with pytest.raises(StateMismatch, match="order differs"):
        plan.resume(state, WORLD, CATALOG)


class Given:
    """An order of a stranger's making: ``found`` is what it returns."""

    def __init__(self, found, identity="a stranger's", positions=None):
        self.identity, self._found, self._positions = identity, found, positions

    def positions(self, samples):
        return samples if self._positions is None else self._positions

    def epoch(self, *_):
        return self._found


def test_an_order_may_draw_samples_repeatedly():
    plan = SamplingPlan(samples=10, batch=4, order=Given(lambda positions: positions % 3, positions=25))
    assert plan.total == 25
    assert len(list(plan.batches(Cursor(), Place()))) == 7
    assert plan.indices(Cursor(), 1)(np.arange(5)).tolist() == [0, 1, 2, 0, 1]
    state = plan.state(plan.after(Cursor(), 5, 1), 1, CATALOG)
    assert (state["position"], state["samples"], plan.resume(state, 1, CATALOG)) == (20, 25, Cursor(0, 20))


@pytest.mark.parametrize(
    "found",
    [
        lambda positions: positions - 1,
        lambda positions: positions + 1,
        lambda positions: positions[1:],
        lambda positions: positions / 2,
        lambda _: 0,
    ],
    ids=["below", "beyond", "fewer", "halves", "one for all"],
)
def test_indices_that_no_sample_has_are_refused(found):
    with pytest.raises(Unusable, match="a stranger's"):
        SamplingPlan(samples=10, batch=4, order=Given(found)).indices(Cursor(), 1)(np.arange(10))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("batch", 0), ("samples", -1), ("tail", "even")),
        *(("identity", each) for each in ("", "x" * 201, None, 7, "catalog", "permutation")),
        *(("positions", each) for each in (-1, 2.5, None)),
    ],
)
def test_invalid_sampling_plan_arguments_are_refused_by_the_constructor(name, value):
    order = Given(None, value) if name == "identity" else Given(None)
    if name == "positions":
        order.positions = lambda _: value
    wrong = {"order": order} if name in ("identity", "positions") else {name: value}
    with pytest.raises(Unusable, match=name if "order" in wrong else None):
        SamplingPlan(**{"samples": 10, "batch": 2, **wrong})
