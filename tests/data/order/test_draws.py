"""Draws of a mixture: at any batch, the first draws of each source have come, each once, and shares are exact."""

import sys
from bisect import bisect_right
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.order import shares
from penstock.data.order.draws import Draws
from penstock.data.order.lanes import Lanes
from penstock.data.order.mixture import MixedSource, MixtureStage, Schedule, WeightCurve, steps_of
from penstock.data.order.mixture_plan import LanedMixture, Mixture
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.errors import Unusable
from tests.amounts import examples
from tests.data.order.mixtures import borders, endless, mixtures, source_of, weights

EPOCHS = 3


def epochs_of(draws, mixture, first=0, position=0, count=EPOCHS):
    return [
        draws.lookup(epoch)(np.arange(position if epoch == first else 0, mixture.total))
        for epoch in range(first, first + count)
    ]


def assert_first_draws(mixture, lanes, samples):
    """Assert that ``samples`` are the first draws of every source, in any order."""
    sources = source_of(mixture, samples)
    for number, source in enumerate(mixture.sources):
        mine = samples[sources == number] - borders(mixture)[number]
        assert sorted(mine.tolist()) == sorted(endless(source, lanes, len(mine)))


@given(made=mixtures(), units=st.integers(1, 12), seed=st.integers(0, 9))
@settings(max_examples=examples(80), deadline=None)
def test_before_each_batch_the_counts_are_those_of_what_was_delivered(made, units, seed):
    mixture, lanes = made
    batch, draws = lanes * units, Draws(mixture, lanes * units, lanes, seed)
    before = np.zeros(len(mixture.sources), dtype=np.int64)
    for epoch, samples in enumerate(epochs_of(draws, mixture)):
        sources = source_of(mixture, samples)
        for position in range(0, mixture.total, batch):
            counted = np.bincount(sources[:position], minlength=len(before))
            assert draws.at(epoch, position) == tuple((counted + (0 if mixture.once else before)).tolist())
        before += np.bincount(sources, minlength=len(before))


def test_threads_share_the_draws_of_a_source_of_few_samples():
    sources = tuple(MixedSource(name, size, size, CatalogOrder(), 3, "") for name, size in (("a", 1000), ("b", 1)))
    order = Mixture(sources=sources, steps=steps_of({"a": 1, "b": 1}, ["a", "b"]), epoch_samples=100_000)
    look, every = Draws(order, 16, 1, 0).lookup(0), np.arange(order.total).reshape(-1, 400)
    expected = Draws(order, 16, 1, 0).lookup(0)(every.ravel()).reshape(every.shape)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = [*threads.map(look, [*every] * 4)]
    finally:
        sys.setswitchinterval(interval_s)
    assert all((some == other).all() for some, other in zip(found, [*expected] * 4, strict=True))


@given(made=mixtures(), batch=st.integers(1, 64), seed=st.integers(0, 9), epoch=st.integers(0, 3))
@settings(max_examples=examples(80), deadline=None)
def test_dropped_batches_take_no_draw_of_a_source(made, batch, seed, epoch):
    mixture, lanes = made
    if mixture.once:
        return
    draws = Draws(mixture, batch * lanes, lanes, seed, drop=True)
    kept = mixture.total - mixture.total % (batch * lanes)
    found = [draws.lookup(number)(np.arange(kept)) for number in range(EPOCHS)]
    assert_first_draws(mixture, lanes, np.concatenate(found))
    assert draws.delivered(epoch, kept) == (epoch + 1) * kept
    counts = np.bincount(source_of(mixture, np.concatenate(found)), minlength=len(mixture.sources))
    assert draws.at(EPOCHS - 1, kept) == draws.at(EPOCHS, 0) == tuple(counts.tolist())


@given(made=mixtures(), units=st.integers(1, 12), seed=st.integers(0, 9))
@settings(max_examples=examples(80), deadline=None)
def test_every_source_goes_through_its_own_order(made, units, seed):
    mixture, lanes = made
    found = epochs_of(Draws(mixture, lanes * units, lanes, seed), mixture)
    if not mixture.once:
        for count in range(1, EPOCHS + 1):
            assert_first_draws(mixture, lanes, np.concatenate(found[:count]))
        return
    sizes = zip(borders(mixture), borders(mixture)[1:], mixture.steps[0].weights, strict=False)
    every = [sample for start, stop, weight in sizes if weight for sample in range(start, stop)]
    assert all(sorted(samples.tolist()) == every for samples in found)


@given(made=mixtures(("stratified",), scheduled=False, laned=False), batch=st.integers(1, 64))
@settings(max_examples=examples(80), deadline=None)
def test_a_stratified_batch_has_each_share_to_less_than_one_sample(made, batch):
    mixture, _ = made
    shares = WeightCurve(mixture.steps).table[0]
    for samples in epochs_of(Draws(mixture, batch, 1, 0), mixture):
        sources, left = source_of(mixture, samples), np.array([source.samples for source in mixture.sources])
        for position in range(0, mixture.total, batch):
            some = sources[position : position + batch]
            counts = np.bincount(some, minlength=len(shares))
            left = left - counts
            if mixture.once and (left[shares > 0] < batch).any():
                break
            assert (np.abs(counts - shares * len(some)) < 1 + 1e-9).all()


@given(made=mixtures(("one-source",)), units=st.integers(1, 12))
@settings(max_examples=examples(60), deadline=None)
def test_a_batch_of_one_source_is_pure(made, units):
    mixture, lanes = made
    batch = lanes * units
    for samples in epochs_of(Draws(mixture, batch, lanes, 0), mixture):
        sources = source_of(mixture, samples)
        for position in range(0, mixture.total, batch):
            assert len(set(sources[position : position + batch].tolist())) == 1


@given(made=mixtures(("random",), scheduled=False, laned=False))
@settings(max_examples=examples(30), deadline=None)
def test_random_batches_hold_the_draws_of_each_source_in_order(made):
    mixture, _ = made
    if mixture.once:
        return
    [samples] = epochs_of(Draws(mixture, 1, 1, 0), mixture, count=1)
    for number, source in enumerate(mixture.sources):
        mine = samples[source_of(mixture, samples) == number] - borders(mixture)[number]
        assert mine.tolist() == endless(source, 1, len(mine))


@given(made=mixtures(), data=st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_stage_with_other_weights_and_batches_goes_on_where_each_source_was(made, data):
    mixture, lanes = made
    batch = lanes * data.draw(st.integers(1, 12))
    draws = Draws(mixture, batch, lanes, 1)
    epoch = data.draw(st.integers(0, EPOCHS - 1))
    position = data.draw(st.sampled_from(range(0, mixture.total, batch)))
    before = [samples for number, samples in enumerate(epochs_of(draws, mixture)) if number < epoch]
    before.append(epochs_of(draws, mixture)[epoch][:position])
    stage = MixtureStage(epoch, position, draws.delivered(epoch, position), draws.at(epoch, position))
    assert stage.delivered == sum(map(len, before))
    names = [source.name for source in mixture.sources]
    changed = data.draw(weights(names))
    if mixture.once:
        changed = {
            name: max(changed[name], 1) * bool(old) for name, old in zip(names, mixture.steps[0].weights, strict=True)
        }
    values = {name: getattr(mixture, name) for name in ("sources", "batches", "ends")}
    length = {} if mixture.once else {"epoch_samples": mixture.total}
    after = type(mixture)(**values, **length, steps=steps_of(changed, names), stage=stage)
    other = Draws(after, lanes * data.draw(st.integers(1, 12)), lanes, 1)
    found = epochs_of(other, after, epoch, position)
    if mixture.once:
        whole = np.concatenate([before[-1], found[0]])
        assert sorted(whole.tolist()) == sorted(epochs_of(draws, mixture, count=1)[0].tolist())
        return
    assert_first_draws(mixture, lanes, np.concatenate([*before, *found]))


@pytest.fixture
def sums(monkeypatch):
    """Return a counter of sums over blocks, and of their cells: a cell is a source of a period."""
    counted = Counter()
    of_floors, of_sides = shares._floor_sums, shares._scaled

    def count(name, function, *given):
        counted[name] += 1
        counted["cells"] += given[-1].size
        return function(*given)

    monkeypatch.setattr(shares, "_floor_sums", partial(count, "sums", of_floors))
    monkeypatch.setattr(shares, "_scaled", partial(count, "sides", of_sides))
    return counted


def costs(sums, mixture, epoch, position):
    """Return the counts of making a mixture's draws with a first batch of 16, and of a state after it."""
    sums.clear()
    draws = Draws(mixture, 16, 1, 0)
    draws.lookup(epoch)(np.arange(position, position + 16))
    first = sums.copy()
    draws.at(epoch, position + 16)
    sums.clear()
    draws.at(epoch, position + 32)
    return first, sums.copy()


def of_many(count, weights, size=1000, **options):
    names = [f"s{number}" for number in range(count)]
    sources = tuple(MixedSource(name, size, size, FullShuffle(), 0, "") for name in names)
    return Mixture(sources=sources, steps=steps_of(weights(names), names), **options)


def staged(stages, names, every=160):
    return Schedule(
        [(number * every, {name: 1 + (number + at) % 7 for at, name in enumerate(names)}) for number in range(stages)]
    )


def test_batches_and_states_take_as_many_sums_with_a_thousand_stages_as_with_ten(sums):
    begin, deep = [], []
    for stages in (10, 100, 1000):
        mixture = of_many(4, partial(staged, stages), epoch_samples=1000)
        begin.append(costs(sums, mixture, 0, 0))
        deep.append(costs(sums, mixture, (stages - 1) * 160 // 1000, 64))
    assert begin == [begin[0]] * 3
    assert [state for _, state in deep] == [deep[0][1]] * 3
    assert max(first["sums"] for first, _ in deep) <= 12
    # Each period before is summed up once, its whole blocks and its incomplete ones.
    assert [first["cells"] <= 5 * 3 * stages + 60 for (first, _), stages in zip(deep, (10, 100, 1000), strict=True)]


def test_blocks_before_each_stage_are_counted_once_where_a_run_resumes(monkeypatch):
    counted, count_blocks = [], Draws._blocks_before
    monkeypatch.setattr(Draws, "_blocks_before", lambda *given: counted.append(given[1]) or count_blocks(*given))
    mixture = of_many(4, partial(staged, 100), epoch_samples=1000)
    Draws(mixture, 16, 1, 0).lookup(99 * 160 // 1000)(np.arange(64, 80))
    assert len(counted) <= 100 + 10


@pytest.mark.parametrize("ends", ["longest", "once"])
def test_batches_and_states_take_as_many_sums_with_many_sources_as_with_few(ends, sums):
    for count in (8, 64, 512):
        mixture = of_many(count, lambda names: {name: 1 / (at + 1) for at, name in enumerate(names)}, ends=ends)
        for position in (0, mixture.total // 3 // 16 * 16, mixture.total - 48 - mixture.total % 16):
            first, state = costs(sums, mixture, 2, position)
            assert first["sums"] <= 32, "until the first source ends is found by halves"
            assert state["sums"] <= 2
            assert first["sides"] + state["sides"] <= 4 * (np.log2(count) + 4)
            assert state["cells"] <= 16 * (count + 1)


def test_an_epoch_with_stages_within_a_batch_and_beyond_any_run_is_divided():
    stages = [(0, {"s0": 1, "s1": 0}), *((40, {"s0": at, "s1": 1}) for at in range(5)), (1 << 80, {"s0": 0, "s1": 1})]
    mixture = of_many(2, lambda _: Schedule(stages), epoch_samples=100)
    found = Draws(mixture, 16, 1, 0).lookup(0)(np.arange(100))
    counts = [np.bincount(source_of(mixture, found[at : at + 16]), minlength=2).tolist() for at in range(0, 96, 16)]
    assert counts[0] == [16, 0]
    assert all(count[1] in (3, 4) for count in counts[3:])
    assert_first_draws(mixture, 1, found)


@given(units=st.integers(1, 5), lanes=st.sampled_from([1, 2]), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_batches_of_a_schedule_have_the_weights_of_their_positions(units, lanes, data):
    names, batch = ["s0", "s1", "s2"], units * lanes
    positions = [0, *sorted(data.draw(st.lists(st.integers(0, 900), min_size=1, max_size=20)))]
    steps = Schedule([(position, data.draw(weights(names))) for position in positions]).steps(names)
    total, rest = batch * data.draw(st.integers(1, 40)), data.draw(st.integers(0, batch - 1))
    order = FullShuffle() if lanes == 1 else Lanes(3, 2)
    mixture = (Mixture if lanes == 1 else LanedMixture)(
        sources=tuple(MixedSource(name, 50, 50, order, 0, "") for name in names),
        steps=steps,
        epoch_samples=total + rest,
        stage=data.draw(
            st.sampled_from([MixtureStage(), MixtureStage(1, 0, data.draw(st.integers(0, 500)), (5, 6, 7))])
        ),
    )
    draws, curve = Draws(mixture, batch, lanes, 0), WeightCurve(steps)
    for epoch in range(mixture.stage.epoch, mixture.stage.epoch + 3):
        found = source_of(mixture, draws.lookup(epoch)(np.arange(mixture.total)))
        for position in range(0, mixture.total, batch):
            counts = np.bincount(found[position : position + batch], minlength=3)
            at = draws.delivered(epoch, position)
            wanted = curve.at([at])[0] * counts.sum()
            if not rest:
                assert (np.abs(counts - wanted) < lanes + 1e-6).all()
            elif position == total:
                # Lanes that are whole, and the rest of one.
                assert (np.abs(counts - wanted) < lanes + 1 + 1e-6).all()
            else:
                ends = [*curve.starts, 10**9][(period := bisect_right(curve.starts, at)) - 1 : period + 1]
                around = curve.at([max(ends[0], mixture.stage.delivered), ends[1] - 1]) * batch
                assert (counts > around.min(axis=0) - lanes - 1e-6).all()
                assert (counts < around.max(axis=0) + lanes + 1e-6).all()


def test_shares_of_ranks_are_alike():
    sources = tuple(MixedSource(f"s{number}", 1000, 1000, FullShuffle(), number, "") for number in range(3))
    mixture = Mixture(sources=sources, steps=steps_of({"s0": 8, "s1": 4, "s2": 4}, ["s0", "s1", "s2"]))
    found = source_of(mixture, Draws(mixture, 256, 1, 0).lookup(0)(np.arange(256)))
    for part in found.reshape(4, 64):
        assert np.abs(np.bincount(part, minlength=3) - [32, 16, 16]).max() <= 4


def test_a_source_of_weight_zero_is_never_drawn_and_needs_no_samples_of_its_epoch():
    sources = tuple(MixedSource(f"s{number}", 10, 10, FullShuffle(), number, "") for number in range(3))
    mixture = Mixture(sources=sources, steps=steps_of({"s0": 1, "s1": 0, "s2": 1}, ["s0", "s1", "s2"]))
    assert mixture.total == 20
    assert set(source_of(mixture, Draws(mixture, 8, 1, 0).lookup(5)(np.arange(20))).tolist()) == {0, 2}


def test_an_epoch_before_the_present_stage_is_refused():
    source = MixedSource("s0", 10, 10, FullShuffle(), 0, "")
    mixture = Mixture(sources=(source,), steps=steps_of({"s0": 1}, ["s0"]), stage=MixtureStage(3, 0, 30, (30,)))
    draws = Draws(mixture, 2, 1, 0)
    assert draws.at(3, 0) == (30,)
    with pytest.raises(Unusable, match="epoch 2 is before the current weights"):
        draws.lookup(2)


def test_lanes_that_do_not_divide_the_batch_are_refused():
    source = MixedSource("s0", 10, 10, FullShuffle(), 0, "")
    mixture = Mixture(sources=(source,), steps=steps_of({"s0": 1}, ["s0"]))
    with pytest.raises(Unusable, match="3 lanes must divide the global batch of 8"):
        Draws(mixture, 8, 3, 0)


class _Wrong:
    identity = "wrong"

    def positions(self, samples):
        return samples

    def epoch(self, samples, _seed, _epoch):
        return lambda positions: positions + samples


def test_an_order_of_a_source_that_returns_samples_of_another_is_refused():
    sources = (MixedSource("s0", 10, 10, _Wrong(), 0, ""), MixedSource("s1", 10, 10, FullShuffle(), 0, ""))
    mixture = Mixture(sources=sources, steps=steps_of({"s0": 1, "s1": 1}, ["s0", "s1"]))
    with pytest.raises(Unusable, match="outside"):
        Draws(mixture, 4, 1, 0).lookup(0)(np.arange(8))
