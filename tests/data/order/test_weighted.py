"""Weighted shuffles: shares by class, each class through all its samples, or a weight for each sample."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order import weighted
from penstock.data.order.lanes import Lanes
from penstock.data.order.protocol import Order
from penstock.data.order.sampling import Cursor, SamplingPlan
from penstock.data.order.weighted import WeightedBlocks
from penstock.errors import Unusable
from tests.amounts import examples

CLASSES = np.array([0] * 60 + [2] * 30 + [1] * 10)[np.random.default_rng(0).permutation(100)]
NAMES = ["a", "b", "c"]


def epoch_of(order, epoch=0, samples=100, seed=3):
    return order.epoch(samples, seed, epoch)(np.arange(order.positions(samples)))


def shares(order, epochs=1):
    found = Counter(CLASSES[np.concatenate([epoch_of(order, epoch) for epoch in range(epochs)])].tolist())
    return [found[number] for number in range(3)]


def fitted(*arguments, **options):
    return ps.order.WeightedShuffle(*arguments, **options).fitted(CLASSES, NAMES)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [100, 100, 100]),
        ({"temperature": 1}, [180, 30, 90]),
        ({"weights": {"a": 1, "b": 4, "c": 1}}, [50, 200, 50]),
        ({"weights": {"a": 0, "b": 1, "c": 1}}, [0, 150, 150]),
    ],
)
def test_classes_have_their_shares(arguments, expected, replacement):
    found = shares(fitted(**arguments, replacement=replacement, epoch_samples=300))
    assert np.abs(np.array(found) - expected).max() <= 1


def test_a_class_goes_through_all_its_samples_before_one_comes_again():
    order = fitted(epoch_samples=45)
    counts = Counter(np.concatenate([epoch_of(order, epoch) for epoch in range(8)]).tolist())
    for number in range(3):
        members = np.flatnonzero(number == CLASSES).tolist()
        found = [counts[member] for member in members]
        assert max(found) - min(found) <= 1


def test_draws_with_replacement_are_as_independent_as_chance():
    counts = Counter(epoch_of(fitted(replacement=True, epoch_samples=30_000)).tolist())
    of_b = [counts[sample] for sample in np.flatnonzero(CLASSES == 1).tolist()]
    # Ten samples of which each is drawn 1,000 times, give or take 31.
    assert sum(of_b) == pytest.approx(10_000, abs=10)
    assert 900 < min(of_b) < 990
    assert 1010 < max(of_b) < 1100


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10)), min_size=1, max_size=50).filter(any),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(60))
def test_without_replacement_no_sample_comes_twice_and_none_of_weight_zero(weights, seed):
    order = ps.order.WeightedShuffle(weights)
    found = epoch_of(order, samples=len(weights), seed=seed).tolist()
    assert sorted(found) == np.flatnonzero(weights).tolist()
    if len(found) > 1:
        some = ps.order.WeightedShuffle(weights, epoch_samples=len(found) - 1)
        assert epoch_of(some, samples=len(weights), seed=seed).tolist() == found[:-1]


def test_heavy_samples_come_first_without_replacement_and_often_with_it():
    weights = np.r_[np.full(50, 9.0), np.full(50, 1.0)]
    first = np.concatenate(
        [epoch_of(ps.order.WeightedShuffle(weights, epoch_samples=20), epoch) for epoch in range(50)]
    )
    assert 0.80 < (first < 50).mean() < 0.92
    often = epoch_of(ps.order.WeightedShuffle(weights, replacement=True, epoch_samples=10_000))
    assert 0.88 < (often < 50).mean() < 0.92
    assert len(set(often.tolist())) == 100


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1e3)), min_size=1, max_size=400).filter(
        lambda weights: max(weights) > 1e-199
    ),
    at_once=st.sampled_from([64, 128, 1 << 16]),
    stretch=st.integers(1, 100),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(60))
def test_stretches_joined_are_the_order_of_all_arrivals(weights, at_once, stretch, seed):
    key, given_weights = weighted.key_of(seed, ""), np.array(weights)
    there = np.flatnonzero(given_weights)
    with np.errstate(over="ignore"):
        times = np.abs(np.log(1 - weighted.fractions(there, key))) / given_weights[there]
    expected = there[np.argsort(np.minimum(times, np.finfo(float).max), kind="stable")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "_AT_ONCE", at_once)
        patch.setattr(weighted, "_LEAST_STRETCH", stretch)
        patch.setattr(weighted, "_STRETCHES", 1000)
        race = weighted.Race(given_weights, key, len(there))
        assert race.samples(np.arange(len(there))).tolist() == expected.tolist()
        some = np.random.default_rng(seed).integers(len(there), size=30)
        assert race.samples(some).tolist() == expected[some].tolist()
        short = weighted.Race(given_weights, key, max(1, len(there) // 2))
        assert (
            short.samples(np.arange(max(1, len(there) // 2))).tolist() == expected[: max(1, len(there) // 2)].tolist()
        )


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-10, 1e3)), min_size=1, max_size=400).filter(any),
    at_once=st.sampled_from([64, 128, 1 << 16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(60))
def test_independent_draws_are_those_of_one_running_total(weights, at_once, seed):
    given_weights, key = np.array(weights), weighted.key_of(seed, "")
    running = np.cumsum(given_weights)
    numbers = weighted.fractions(np.arange(500), key) * running[-1]
    expected = np.searchsorted(running, numbers, side="right")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "_AT_ONCE", at_once)
        sums = weighted._running_sums(given_weights)
        found = weighted.independent(given_weights, sums, key, np.arange(500))
    assert found.tolist() == expected.tolist()
    assert (given_weights[found] > 0).all()


@pytest.mark.parametrize("samples", [10**5, 10**6, 4 * 10**6])
def test_an_epoch_with_replacement_begins_at_once_and_a_draw_costs_the_same(samples, counted):
    order = ps.order.WeightedShuffle(np.arange(samples) % 7, replacement=True)
    lookup = order.epoch(samples, 1, 2)
    assert not counted
    lookup(np.arange(1000))
    assert counted == {"fractions": 1000}
    assert order._running.nbytes <= samples / 7


@pytest.mark.parametrize("samples", [10**6, 4 * 10**6])
def test_an_epoch_without_replacement_begins_after_one_pass_and_sorts_a_sixteenth(samples, counted):
    weights = np.random.default_rng(0).pareto(1.5, samples)
    weights.setflags(write=False)
    order = ps.order.WeightedShuffle(weights)
    assert order.weights is weights
    tracemalloc.start()
    try:
        lookup = order.epoch(samples, 1, 2)
        lookup(np.arange(1000))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # All, and up to 65,536 from which the times of the first stretch are guessed.
    passed = counted["fractions"]
    assert samples < passed <= samples + 2**16
    lookup(np.arange(1000, 50_000))
    assert counted["fractions"] == passed
    [(_, found)] = [lookup.__self__._known]
    assert len(found) <= samples / 16 * 1.3 + 2**16
    assert kept <= samples + 2 * 2**20
    assert peak <= 4 * samples + 8 * 2**20
    lookup(np.array([samples - 1]))
    assert counted["fractions"] == passed + samples


@pytest.mark.parametrize("latest", [2.0, 1e300])
def test_times_that_differ_in_their_last_bits_keep_their_order(latest, seed):
    random = np.random.default_rng(seed)
    # Neighbouring floats, several of each, in a range that needs all bits of a number with the places of 5,001 samples.
    times = np.append(1 + random.integers(0, 2000, 5000) * np.finfo(float).eps, latest)
    samples = random.permutation(len(times))
    found = weighted._in_order([(samples[:2000], times[:2000]), (samples[2000:], times[2000:])])
    assert found.tolist() == samples[np.lexsort((samples, times))].tolist()


@pytest.mark.parametrize("kind", ["smooth", "heavy tail", "few classes", "alternating", "mostly zero"])
@pytest.mark.parametrize("part", [0, 0.2, 0.7, 0.999])
def test_a_resume_takes_one_pass_or_two_and_finds_the_same_samples(kind, part, counted):
    samples, random = 600_000, np.random.default_rng(5)
    weights = {
        "smooth": random.gamma(2, 1, samples),
        "heavy tail": random.pareto(0.3, samples),
        "few classes": random.choice([1.0, 1000.0], samples, p=[0.99, 0.01]),
        "alternating": np.arange(samples) % 10 + 0.1,
        "mostly zero": random.random(samples) * (np.arange(samples) % 3 == 1),
    }[kind]
    order = ps.order.WeightedShuffle(weights)
    position = int(part * order.positions(samples))
    begun = order.epoch(samples, 1, 2)
    begun(np.arange(10))
    counted.clear()
    resumed = order.epoch(samples, 1, 2)
    found = resumed(np.arange(position, position + 100))
    assert counted["fractions"] <= 2 * samples + 2**16
    assert begun(np.arange(position, position + 100)).tolist() == found.tolist()


@pytest.fixture
def counted(monkeypatch):
    """Count the weights whose hashes are computed."""
    counts: Counter[str] = Counter()
    inner = weighted.fractions

    def fractions(positions, key):
        counts["fractions"] += len(positions)
        return inner(positions, key)

    monkeypatch.setattr(weighted, "fractions", fractions)
    return counts


def test_only_an_array_that_nobody_can_change_is_not_copied(tmp_path):
    weights = np.arange(5.0)
    view = weights[:]
    view.setflags(write=False)
    order = ps.order.WeightedShuffle(view)
    weights[0] = 7
    assert order.weights[0] == 0
    np.save(tmp_path / "weights.npy", weights)
    mapped = np.load(tmp_path / "weights.npy", mmap_mode="r")
    order = ps.order.WeightedShuffle(mapped)
    assert np.shares_memory(order.weights, mapped)
    assert order.identity == ps.order.WeightedShuffle(weights.tolist()).identity
    assert ps.order.WeightedShuffle(mapped[::2]).weights.tolist() == [7, 2, 4]
    assert pickle.loads(pickle.dumps(order)).identity == order.identity


def test_epochs_and_seeds_differ_and_the_same_ones_are_the_same():
    by_sample = [ps.order.WeightedShuffle([1] * 100, replacement=each) for each in (False, True)]
    for order in (fitted(), fitted(replacement=True), *by_sample):
        assert isinstance(order, Order)
        again = pickle.loads(pickle.dumps(order))
        assert again.identity == order.identity
        assert epoch_of(order, 4).tolist() == epoch_of(again, 4).tolist()
        assert epoch_of(order, 4).tolist() != epoch_of(order, 5).tolist()
        assert epoch_of(order, 4).tolist() != epoch_of(order, 4, seed=4).tolist()
        some = np.array([7, 3, 50])
        assert order.epoch(100, 3, 1)(some).tolist() == epoch_of(order, 1)[some].tolist()


def test_identities_tell_arguments_and_classes_apart():
    options = ({}, {"temperature": 0.5}, {"replacement": True}, {"epoch_samples": 50})
    orders = [fitted(**each) for each in options]
    orders += [fitted({"a": 1, "b": 2, "c": 1}), ps.order.WeightedShuffle().fitted(CLASSES[::-1], NAMES)]
    orders += [ps.order.WeightedShuffle(np.full(100, each)) for each in (1, 2)]
    assert len({order.identity for order in orders}) == len(orders)


def test_equal_shares_are_the_same_order_however_the_weights_are_written():
    given = (
        {"a": 2, "b": 1, "c": 1},
        {"a": 0.5, "b": 0.25, "c": 0.25},
        dict(zip("abc", np.float64([4, 2, 2]), strict=True)),
    )
    first, *others = (fitted(each) for each in given)
    for other in others:
        assert other.identity == first.identity
        assert epoch_of(other, 1).tolist() == epoch_of(first, 1).tolist()


def test_a_class_without_samples_needs_no_weight():
    order = ps.order.WeightedShuffle({"a": 1, "c": 3}).fitted(np.array([0, 0, 2]), NAMES)
    assert set(epoch_of(order, samples=3).tolist()) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"replacement": 2}, "replacement must be"),
        ({"by": 3}, "by must be"),
        ({"epoch_samples": 0}, "epoch_samples"),
        ({"weights": "abc"}, "weights must be a mapping"),
        ({"weights": [[1, 2]]}, "weights must be a mapping"),
        ({"weights": 3}, "weights must be a mapping"),
        ({"weights": [1, -1]}, "finite, 0 or more"),
        ({"weights": [0, 0]}, "not all 0"),
        ({"weights": [1e308, 1e308]}, "the greatest weight must be between 1e-200 and 1e\\+200, got 1e\\+308"),
        ({"weights": [0, 1e-310]}, "the greatest weight must be between"),
        ({"weights": [1, float("nan")]}, "finite"),
        ({"weights": {"a": 1}, "temperature": 0}, "exclude one another"),
        ({"temperature": 3}, "temperature must be"),
    ],
)
def test_invalid_arguments_are_refused(arguments, words):
    with pytest.raises(Unusable, match=words):
        ps.order.WeightedShuffle(**arguments)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"a": 1, "b": 1}, "lacks the class 'c'"),
        ({"a": 1, "b": 1, "c": 1, "x": 1}, "unknown class 'x'"),
        ({"a": 0, "b": 0, "c": 0}, "not all be 0"),
    ],
)
def test_weights_that_do_not_fit_the_classes_are_refused(weights, words):
    with pytest.raises(Unusable, match=words):
        fitted(weights)


def test_an_order_that_no_dataset_has_fitted_is_refused():
    with pytest.raises(Unusable, match="needs a dataset with a catalog"):
        SamplingPlan(samples=10, batch=2, order=ps.order.WeightedShuffle())
    with pytest.raises(Unusable, match=r"weights must be 10, .* got 3"):
        SamplingPlan(samples=10, batch=2, order=ps.order.WeightedShuffle([1, 2, 3]))
    with pytest.raises(Unusable, match="only 2 samples have a weight above 0"):
        SamplingPlan(samples=3, batch=2, order=ps.order.WeightedShuffle([1, 0, 3], epoch_samples=3))


def blocks_of(weights, blocks=7, window=3, **arguments):
    return WeightedBlocks(Lanes(blocks, window, arguments.pop("lanes", None)), weights, **arguments)


def drawn_of(order, seed=0, epoch=0):
    samples = len(order.weights)
    return order.epoch(samples, seed, epoch)(np.arange(order.positions(samples)))


WEIGHTS = st.lists(st.sampled_from([0, 0.01, 0.5, 1, 2.5, 30]), min_size=5, max_size=60).filter(any)


@settings(max_examples=examples(60))
@given(WEIGHTS, st.none() | st.integers(1, 200), st.integers(0, 5), st.booleans(), st.sampled_from([1, 2, 4]))
def test_each_sample_comes_as_often_as_expected_rounded_down_or_up(weights, count, epoch, uneven, lanes):
    sizes = [3, *[4] * 20] if uneven else 4
    sizes = np.diff([0, *[end for end in np.cumsum(sizes) if end < len(weights)], len(weights)]) if uneven else 4
    order = blocks_of(weights, sizes, 2, epoch_samples=count, lanes=lanes)
    found = np.bincount(drawn_of(order, 1, epoch), minlength=len(weights))
    total = count or len(weights)
    expected = np.array(weights) / sum(weights) * total
    assert found.sum() == total
    assert (found >= np.floor(expected - 1e-6)).all()
    assert (found <= np.ceil(expected + 1e-6)).all()


@pytest.mark.parametrize("replacement", [True, False])
def test_shares_over_many_epochs_are_those_of_the_weights(replacement):
    weights = np.array([0, 0.2, 1, 3, 0.5] * 40)
    order = blocks_of(weights, replacement=replacement, epoch_samples=50)
    found = sum(np.bincount(drawn_of(order, 0, epoch), minlength=200) for epoch in range(400))
    expected = weights / weights.sum() * 50 * 400
    assert (np.abs(found - expected) <= 6 * np.sqrt(expected) + 1e-9).all()
    assert drawn_of(order, 0, 1).tolist() != drawn_of(order, 0, 2).tolist() != drawn_of(order, 1, 2).tolist()


@pytest.mark.parametrize("replacement", [True, False])
def test_a_block_is_begun_and_finished_within_its_window(replacement):
    weights = np.random.default_rng(0).pareto(1.5, 2000)
    order = blocks_of(weights, 50, 4, replacement=replacement, epoch_samples=3000)
    blocks = drawn_of(order) // 50
    first = {block: at for at, block in reversed([*enumerate(blocks.tolist())])}
    last = {block: at for at, block in enumerate(blocks.tolist())}
    open_blocks = [sum(first[each] <= at <= last[each] for each in first) for at in range(0, 3000, 10)]
    assert max(open_blocks) <= 4
    assert np.bincount(blocks).max() <= order.most


def test_lanes_are_those_of_the_ranks_and_a_state_names_the_weights():
    plans = [SamplingPlan(samples=40, batch=4, order=blocks_of(np.arange(40) + each)) for each in (0, 1)]
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
def test_invalid_arguments_of_weighted_blocks_are_refused(weights, arguments, words):
    with pytest.raises(Unusable, match=words):
        blocks_of(weights, **arguments)


def test_weights_of_another_number_of_samples_are_refused():
    with pytest.raises(Unusable, match="weights must be 3, one for each sample"):
        blocks_of([1, 2]).positions(3)
