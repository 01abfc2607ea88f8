"""States of a mixture: a run goes on exactly; other weights, sources, ranks or batches lose and repeat no draw."""

import json
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order.lanes import Lanes
from penstock.data.order.mixture import MixedSource, MixtureStage, steps_of
from penstock.data.order.mixture_plan import LanedMixture, Mixture, MixturePlan
from penstock.data.order.orders import FullShuffle
from penstock.data.order.sampling import Cursor, Repeat, batch_indices
from penstock.errors import StateMismatch, Unusable
from penstock.values import Place
from tests.amounts import examples
from tests.data.order.mixtures import borders, endless, mixtures, source_of, weights

CATALOG = ""
SIZES = {"a": 50, "b": 17, "c": 5, "d": 90}


def source(name, lanes=1, size=None, digest=None):
    size = SIZES[name] if size is None else size
    order = Lanes(3, 2) if lanes > 1 else FullShuffle()
    return MixedSource(name, size, size, order, ord(name), digest or f"digest{name}")


def plan_of(shares, batch=8, kind=Mixture, width=1, **options):
    """Return the plan of a mixture with these weights, by name."""
    sources = tuple(source(name, width) for name in shares)
    options = {"epoch_samples": 100, "tail": "short"} | options
    tail = options.pop("tail")
    order = kind(sources=sources, steps=steps_of(shares, [*shares]), **options)
    return MixturePlan(samples=order.samples, batch=batch, order=order, seed=3, tail=tail)


def delivered(plan, cursor, world, batches=None, workers=1):
    """Return the samples of the next global batches, rank by rank."""
    found = []
    for rank in range(world):
        parts = [[*batch_indices(plan, cursor, Place(rank, world, worker, workers))] for worker in range(workers)]
        merged = [parts[number % workers][number // workers] for number in range(sum(map(len, parts)))]
        found.append(merged[:batches])
    return [sum(each, []) for each in zip(*found, strict=True)]


def go_on(plan, state, world, **options):
    """Return the plan and the cursor with which a run continues from ``state``."""
    allowed = {"allow_new_global_batch": True, "allow_rereads": True}
    adopted, given = plan.adopted(json.loads(json.dumps(state)), world, options.get("new_weights"))
    return adopted, adopted.resume(given, world, CATALOG, **allowed)


@given(made=mixtures(), seed=st.integers(0, 9), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_run_goes_on_with_what_it_would_have_delivered(made, seed, data):
    order, lanes = made
    world = data.draw(st.sampled_from([each for each in (1, 2, 4) if lanes % each == 0]))
    batch = lanes // world * data.draw(st.integers(1, 6))
    order = order.with_lanes(lanes) if lanes > 1 else order
    tail = data.draw(st.sampled_from(["short", "pad", "drop"]))
    plan = MixturePlan(samples=order.samples, batch=batch, order=order, seed=seed, tail=tail)
    epoch = data.draw(st.integers(0, 2))
    whole = delivered(plan, Cursor(epoch, lanes=lanes if lanes > 1 else 0), world)
    taken = data.draw(st.integers(0, len(whole)))
    state = plan.state(plan.after(Cursor(epoch, lanes=lanes if lanes > 1 else 0), taken, world), world, CATALOG)
    again, cursor = go_on(plan, state, world)
    assert again.stage == 0
    assert delivered(again, cursor, world, workers=data.draw(st.integers(1, 3))) == whole[taken:]


@given(
    seed=st.integers(0, 10**6),
    batches=st.sampled_from(["stratified", "random", "one-source"]),
    lanes=st.sampled_from([1, 4]),
)
@settings(max_examples=examples(15), deadline=None)
def test_ten_changes_of_ranks_batches_weights_and_sources_lose_and_repeat_no_draw(seed, batches, lanes):
    draw = random.Random(seed)
    kind = LanedMixture if lanes > 1 else Mixture
    options = {"batches": batches} | ({"lanes": lanes} if lanes > 1 else {})
    given, state, world, batch = {"a": 3, "b": 1}, None, 1, 4 * draw.randrange(1, 4)
    seen = defaultdict(list)
    for _ in range(11):
        plan = plan_of(given, batch, kind, lanes, tail=draw.choice(["short", "drop"]), **options)
        cursor = Cursor(lanes=lanes if lanes > 1 else 0)
        if state is not None:
            plan, cursor = go_on(plan, state, world, new_weights=True)
        for _ in range(draw.randrange(0, 3)):
            # Whole epochs, and then a part of one.
            for samples in delivered(plan, cursor, world):
                note(seen, plan.order, samples)
            cursor = Cursor(cursor.epoch + 1, 0, cursor.lanes, cursor.stage)
        some = delivered(plan, cursor, world)
        count = draw.randrange(0, len(some) + 1)
        for samples in some[:count]:
            note(seen, plan.order, samples)
        state = plan.state(plan.after(cursor, count, world), world, CATALOG)
        for name in plan.order.sources:
            mine = seen[name.name]
            assert sorted(mine) == sorted(endless(name, lanes, len(mine)))
        names = draw.sample("abcd", draw.randrange(1, 5))
        given = {name: draw.randrange(1, 6) for name in names}
        world = draw.choice([each for each in (1, 2, 4) if lanes % each == 0 or lanes == 1])
        batch = 4 * draw.randrange(1, 4)


@pytest.mark.parametrize(
    ("tails", "samples"), [(("drop", "short"), 72 + 6 + 60), (("short", "drop"), 90 + 72), (("drop", "drop"), 72 + 48)]
)
def test_another_tail_goes_on_with_the_next_draws_of_every_source(tails, samples):
    seen, state = defaultdict(list), None
    for tail in tails:
        plan, cursor = plan_of({"a": 3, "b": 1}, 8, epoch_samples=30, tail=tail), Cursor()
        if state is not None:
            plan, cursor = go_on(plan, state, 1)
        for _ in range(3):
            batches = delivered(plan, cursor, 1)
            for batch in batches:
                note(seen, plan.order, batch)
            state = plan.state(plan.after(cursor, len(batches), 1), 1, CATALOG)
            cursor = Cursor(cursor.epoch + 1, 0, 0, cursor.stage)
    assert sum(map(len, seen.values())) == samples
    for name, own in seen.items():
        assert sorted(own) == sorted(endless(source(name), 1, len(own)))


def note(seen, order, samples):
    samples = np.array(samples)
    numbers = source_of(order, samples)
    for number, each in enumerate(order.sources):
        seen[each.name] += (samples[numbers == number] - borders(order)[number]).tolist()


def test_a_source_that_was_removed_and_comes_back_goes_on_where_it_was():
    plan, cursor, seen = plan_of({"a": 1, "b": 1}), Cursor(), []
    for shares in ({"a": 1}, {"a": 1, "b": 1}):
        for samples in delivered(plan, cursor, 1, 3):
            seen += [sample - 50 for sample in samples if sample >= 50 and len(plan.order.sources) == 2]
        state = plan.state(plan.after(cursor, 3, 1), 1, CATALOG)
        plan, cursor = go_on(plan_of(shares), state, 1, new_weights=True)
    for samples in delivered(plan, cursor, 1, 2):
        seen += [sample - 50 for sample in samples if sample >= 50]
    assert sorted(seen) == sorted(endless(source("b"), 1, 12 + 8))


def test_the_same_new_weights_loaded_again_go_on_in_their_stage():
    plan = plan_of({"a": 3, "b": 1})
    state = plan.state(plan.after(Cursor(), 3, 1), 1, CATALOG)
    new = {"a": 1, "b": 9}
    changed, cursor = go_on(plan, state, 1, new_weights=new)
    assert changed.stage != 0
    assert cursor.stage == changed.stage
    whole = delivered(changed, cursor, 1)
    later = changed.state(changed.after(cursor, 4, 1), 1, CATALOG)
    for again in (go_on(plan, later, 1, new_weights=new), go_on(plan_of(new), later, 1)):
        assert again[0].stage == changed.stage
        assert delivered(*again, 1) == whole[4:]


@pytest.mark.parametrize("options", [{}, {"epoch_samples": None, "ends": "once"}])
@pytest.mark.parametrize("tail", ["short", "pad"])
@pytest.mark.parametrize("change", ["weights", "global batch"])
def test_an_epoch_whose_weights_changed_ends_with_repeats_of_what_came_since(options, tail, change):
    before = replace(plan_of({"a": 1, "b": 1}, batch=2, **options), tail=tail)
    state = before.state(Cursor(0, before.total - 3), 4, CATALOG)
    plan, new_weights = (before, {"a": 1, "b": 2}) if change == "weights" else (replace(before, batch=3), None)
    plan, cursor = go_on(plan, state, 4, new_weights=new_weights)
    every = [index for batch in delivered(plan, cursor, 4) for index in batch]
    repeats = {int(index) for index in every if isinstance(index, Repeat)}
    fresh = [index for index in every if not isinstance(index, Repeat)]
    assert len(fresh) == plan.total - cursor.position
    assert repeats
    assert repeats <= set(fresh)


def test_a_state_of_64_sources_and_a_thousand_million_samples_is_below_4_kilobytes():
    names = [f"source{number:03}" for number in range(64)]
    sources = tuple(MixedSource(name, 10**9, 10**9, FullShuffle(), 0, "01234567") for name in names)
    steps = steps_of({name: 1 / (number + 1) for number, name in enumerate(names)}, names)
    order = Mixture(sources=sources, steps=steps, epoch_samples=10**11, stage=MixtureStage(1, 0, 10**11, (10**9,) * 64))
    plan = MixturePlan(samples=order.samples, batch=1024, order=order, seed=3)
    state = plan.state(Cursor(30, 10**6 * 1024), 1, CATALOG)
    assert len(json.dumps(state)) < 4096


class TestRefusals:
    def state(self, plan=None, batches=3):
        plan = plan or plan_of({"a": 3, "b": 1})
        return plan.state(plan.after(Cursor(), batches, 1), 1, CATALOG)

    @pytest.mark.parametrize(
        ("shares", "options", "new", "error", "says"),
        [
            ({"a": 1, "b": 1}, {}, None, StateMismatch, "the weights.*differ: pass new_weights="),
            ({"a": 1, "c": 1}, {}, None, StateMismatch, r"differ \(added 'c', removed 'b'\): pass new_weights="),
            ({"a": 3, "b": 1}, {"epoch_samples": 99}, None, StateMismatch, "the length of an epoch"),
            ({"a": 3, "b": 1}, {"batches": "random"}, None, StateMismatch, "cannot change during a run"),
            ({"a": 3, "b": 1}, {}, {"a": 1, "b": 1, "x": 1}, Unusable, "unknown source 'x'"),
        ],
        ids=["weights", "sources", "length of an epoch", "batches", "weights of other sources"],
    )
    def test_changes_without_a_word(self, shares, options, new, error, says):
        with pytest.raises(error, match=says):
            go_on(plan_of(shares, **options), self.state(), 1, new_weights=new)

    def test_a_source_with_other_samples(self):
        plan = plan_of({"a": 3, "b": 1})
        sources = (plan.order.sources[0], source("b", digest="changed"))
        order = Mixture(sources=sources, steps=plan.order.steps, epoch_samples=100)
        other = MixturePlan(samples=order.samples, batch=8, order=order, seed=3)
        for new in (None, True, {"a": 1, "b": 2}):
            with pytest.raises(StateMismatch, match="source 'b' differs from the state in samples"):
                go_on(other, self.state(), 1, new_weights=new)

    def test_another_global_batch_without_a_word(self):
        plan, given = plan_of({"a": 3, "b": 1}, batch=4).adopted(self.state(), 1)
        with pytest.raises(StateMismatch, match="global batch"):
            plan.resume(given, 1, CATALOG)

    def test_another_seed(self):
        plan = plan_of({"a": 3, "b": 1})
        other = MixturePlan(samples=plan.samples, batch=8, order=plan.order, seed=4)
        with pytest.raises(StateMismatch, match="seed"):
            go_on(other, self.state(), 1)

    def test_sources_that_leave_an_epoch_in_its_middle(self):
        once = {"ends": "once", "epoch_samples": None}
        state = self.state(plan_of({"a": 3, "b": 1}, **once))
        for shares in ({"a": 1}, {"a": 1, "b": 0}, {"a": 1, "c": 1}):
            with pytest.raises(StateMismatch, match="between epochs only"):
                go_on(plan_of(shares, **once), state, 1, new_weights=True)
        for shares, left in (({"a": 1, "b": 1}, 67 - 24), ({"a": 1, "b": 1, "c": 1}, 72 - 24)):
            plan, cursor = go_on(plan_of(shares, **once), state, 1, new_weights=True)
            assert len({*sum(delivered(plan, cursor, 1), [])}) == left
        ended = plan.state(Cursor(0, plan.total, stage=plan.stage), 1, CATALOG)
        plan, cursor = go_on(plan_of({"a": 1, "c": 1}, **once), ended, 1, new_weights=True)
        assert cursor[:2] == (1, 0)
        assert sorted(sum(delivered(plan, cursor, 1), [])) == [*range(55)]

    def test_a_state_that_was_moved_needs_the_old_weights(self):
        moved = self.state() | {"position": 40}
        plan, cursor = go_on(plan_of({"a": 3, "b": 1}), moved, 1, new_weights={"a": 1, "b": 5})
        assert sum(plan.order.stage.draws) == plan.order.stage.delivered == cursor.position == 40
        with pytest.raises(StateMismatch, match="known to the old weights only"):
            go_on(plan_of({"a": 1, "b": 5}), moved, 1, new_weights=True)

    @given(data=st.data())
    @settings(max_examples=examples(200), deadline=None)
    def test_a_state_with_anything_in_it_is_refused_or_a_cursor_within_bounds(self, data):
        anything = st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=6,
        )
        state = self.state()
        state["mixture"]["parked"] = {"gone": ["digest", 7]}
        inside = data.draw(st.sampled_from([state, *(state["mixture"][name] for name in ("names", "draws", "parked"))]))
        inside = data.draw(st.sampled_from([inside, state["mixture"]]))
        places = range(len(inside)) if isinstance(inside, list) else [*inside, "x"]
        inside[data.draw(st.sampled_from(places))] = data.draw(anything)
        try:
            plan, given = plan_of({"a": 3, "b": 1}).adopted(state, 1, data.draw(st.sampled_from([None, True])))
            cursor = plan.resume(given, 1, CATALOG, allow_new_global_batch=True)
        except StateMismatch:
            return
        assert 0 <= cursor.position <= plan.total
        for samples in delivered(plan, cursor, 1, 2):
            assert all(0 <= sample < plan.samples for sample in samples)


def test_a_mixture_of_lanes_keeps_them_and_says_when_ranks_cannot_share_them():
    plan = plan_of({"a": 3, "b": 1}, 8, LanedMixture, 4, lanes=4)
    assert [plan.lanes(Cursor(epoch), 2) for epoch in range(3)] == [4, 4, 4]
    assert plan.lanes(Cursor(0, 8, lanes=2), 2) == 2
    assert plan.rereads(Cursor(0, 8), 2) == ""
    assert "cannot share the 4 lanes of this mixture" in plan.rereads(Cursor(1, 0), 3)


def test_weights_are_new_for_a_mixture_only():
    from penstock.data.order.sampling import SamplingPlan

    with pytest.raises(Unusable, match=r"new_weights= changes the weights of a ps\.Mix"):
        SamplingPlan(samples=5, batch=1).adopted({}, 1, {"a": 1})


@given(data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_weights_of_a_state_may_change_to_any_others(data):
    names = ["a", "b", "c"]
    plan = plan_of(data.draw(weights(names)))
    state = plan.state(plan.after(Cursor(), data.draw(st.integers(0, 12)), 1), 1, CATALOG)
    new = data.draw(weights(names))
    after, cursor = go_on(plan, state, 1, new_weights=new)
    total = sum(new.values())
    for samples in delivered(after, cursor, 1, 4)[:-1]:
        counts = np.bincount(source_of(after.order, np.array(samples)), minlength=3)
        assert np.abs(counts - np.array([new[name] / total * 8 for name in names])).max() < 1 + 1e-9
