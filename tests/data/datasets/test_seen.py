"""The batches between two states equal the log of a real run: over ranks, workers, restarts, mixtures and lanes."""

from __future__ import annotations

import time
from dataclasses import astuple
from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import StateMismatch, Unusable
from tests.amounts import examples
from tests.data.datasets.transforms import explode_number, number, numbered

COUNT = 40
ORDERS = [False, True, ps.order.BlockShuffle(5), ps.order.Lanes(4, 2), ps.order.Lanes(4, 2, 4)]
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated", "ignore:.*read the same blocks")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return ps.Catalog.scan(numbered(tmp_path_factory.mktemp("seen") / "data", COUNT))


def loaders(dataset, world, batch, **options):
    places = [ps.Place(rank, world) for rank in range(world)]
    return [ps.DataLoader(dataset, batch // world, place=place, collate_fn=list, **options) for place in places]


def train(ranks, batches):
    """Return the log of some global batches, also of several epochs, and the state after them."""
    log = []
    while True:
        iterators = [iter(rank) for rank in ranks]
        taken = [[*chain(*each)] for each in islice(zip(*iterators, strict=True), batches - len(log))]
        log += taken
        if len(log) == batches:
            if isinstance(ranks[0], ps.BatchSampler):
                return log, ranks[0].state_at(len(taken))
            states = [rank.state_dict() for rank in ranks]
            assert all(state == states[0] for state in states)
            return log, states[0]


def listed(seen):
    found = [each.tolist() for each in seen]
    assert len(found) == len(seen)
    assert [seen[k].tolist() for k in range(len(seen))] == found
    assert seen.samples == sum(map(len, found))
    return found


def samplers(samples, world, batch, **options):
    places = [ps.Place(rank, world) for rank in range(world)]
    return [ps.BatchSampler(range(samples), batch // world, place=place, **options) for place in places]


@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_batches_between_states_are_the_log_of_a_run_on_changing_ranks(data):
    samples = data.draw(st.integers(9, COUNT), "samples")
    options = {
        "shuffle": data.draw(st.sampled_from(ORDERS), "shuffle"),
        "seed": data.draw(st.integers(0, 3), "seed"),
        "tail": data.draw(st.sampled_from(["short", "pad", "drop"]), "tail"),
    }
    state, logs, states, worlds = None, [], [None], []
    for _ in range(data.draw(st.integers(1, 4), "legs")):
        world = data.draw(st.sampled_from([1, 2, 4]), "world")
        ranks = samplers(samples, world, 8, **options)
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state, allow_rereads=True)
        log, state = train(ranks, data.draw(st.integers(1, 6), "batches"))
        logs.append(log)
        states.append(state)
        worlds.append(world)
    asking = samplers(samples, 1, 8, **options)[0]
    for leg, log in enumerate(logs):
        seen = asking.seen(states[leg + 1], states[leg], ranks=worlds[leg])
        if not any("lanes" in note for note in seen.notes):
            assert listed(seen) == log
    if {*worlds} == {1}:
        assert listed(asking.seen(state)) == [*chain(*logs)]


@pytest.mark.parametrize("tail", ["short", "pad", "drop"])
@pytest.mark.parametrize("shuffle", [True, ps.order.Lanes(4, 2, 4)])
def test_batches_between_states_are_those_that_loaders_delivered(catalog, shuffle, tail):
    dataset, state = ps.MapDataset.from_catalog(catalog[:35], transform=number), None
    for world in 2, 4, 1:
        ranks = loaders(dataset, world, 8, shuffle=shuffle, tail=tail)
        for rank in ranks if state is not None else ():
            rank.load_state_dict(state)
        log, later = train(ranks, 3)
        assert listed(ranks[-1].seen(later, state)) == log
        state = later


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_ranks_log_the_batches_and_slices_that_are_seen(catalog, workers):
    dataset = ps.MapDataset.from_catalog(catalog, transform=number)
    ranks = loaders(dataset, 2, 8, shuffle=ps.order.Lanes(4, 2), num_workers=workers)
    slices = [[*islice(rank, 3)] for rank in ranks]
    seen = ranks[0].seen(ranks[0].state_dict())
    assert seen.notes == ()
    assert [[[each.index for each in seen.inspect(k, rank=rank)] for k in range(3)] for rank in range(2)] == slices
    first = seen.inspect(0)
    assert [each.url.rpartition("/")[2] for each in first] == [f"{each:03d}" for each in chain(*(s[0] for s in slices))]
    assert [astuple(each) for each in first[:4]] == [astuple(each) for each in ranks[0].inspect(0, epoch=0)]


def mixture(catalog, cats=3, **options):
    parts = {"a": catalog[:25], "b": catalog[25:]}
    sources = {name: ps.MapDataset.from_catalog(part, transform=number) for name, part in parts.items()}
    return ps.Mix(sources, weights={"a": cats, "b": 1}, **options)


@given(data=st.data())
@settings(max_examples=examples(8), deadline=None)
def test_batches_of_a_mixture_are_the_log_of_its_run(catalog, data):
    kind = data.draw(st.sampled_from(["stratified", "random", "one-source"]), "batches")
    ends = data.draw(st.sampled_from(["longest", "shortest", *(["once"] if kind != "one-source" else [])]), "ends")
    mix = mixture(catalog, batches=kind, ends=ends)
    options = {
        "shuffle": data.draw(st.sampled_from([False, True, ps.order.Lanes(4, 2, 4)]), "shuffle"),
        "tail": data.draw(st.sampled_from(["short", "pad", "drop"]), "tail"),
    }
    state, logs, states = None, [], [None]
    for _ in range(3):
        world = data.draw(st.sampled_from([1, 2, 4]), "world")
        ranks = loaders(mix, world, 8, **options)
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state)
        log, state = train(ranks, data.draw(st.integers(1, 7), "batches"))
        logs.append((log, world))
        states.append(state)
    asking = loaders(mix, 1, 8, **options)[0]
    for leg, (log, world) in enumerate(logs):
        seen = asking.seen(states[leg + 1], states[leg], ranks=world)
        assert listed(seen) == log
        if log:
            names = [(each.source, each.index + 25 * (each.source == "b")) for each in seen.inspect(-1)]
            assert [index for _, index in names] == log[-1]


def test_a_mixture_whose_weights_changed_is_seen_leg_by_leg_and_never_across(catalog):
    before, after = (loaders(mixture(catalog, weight), 1, 8, shuffle=True)[0] for weight in (3, 1))
    log, state = train([before], 2)
    after.load_state_dict(state, new_weights=True)
    later, end = train([after], 2)
    fresh = loaders(mixture(catalog, 1), 1, 8, shuffle=True)[0]
    assert listed(fresh.seen(end, state)) == later
    assert listed(before.seen(state)) == log
    with pytest.raises(StateMismatch, match="changed at epoch 0, position 16: pass a state from there"):
        fresh.seen(end)
    with pytest.raises(StateMismatch, match="new_weights"):
        before.seen(end, state)
    middle = before.sampler.state_at(1, epoch=0)
    with pytest.raises(StateMismatch, match="changed at epoch 0, position 16"):
        fresh.seen(end, middle)


@pytest.mark.parametrize("make", [lambda catalog: ps.MapDataset.from_catalog(catalog, transform=number), mixture])
def test_another_global_batch_is_seen_from_the_state_where_it_began(catalog, make):
    dataset = make(catalog)
    first, second = loaders(dataset, 1, 8, shuffle=True)[0], loaders(dataset, 2, 12, shuffle=True)
    log, state = train([first], 2)
    for rank in second:
        rank.load_state_dict(state, allow_new_global_batch=True)
    later, end = train(second, 1)
    for asking in first, second[1]:
        assert listed(asking.seen(end, state)) == later
        assert listed(asking.seen(state)) == log
        with pytest.raises(StateMismatch, match="global batch"):
            asking.seen(end)
    if not isinstance(dataset, ps.Mix):
        assert "12 after one of 8" in repr(first.seen(end, state))


def test_states_of_any_other_run_or_order_are_refused(catalog):
    dataset = ps.MapDataset.from_catalog(catalog, transform=number)
    loader, other = (loaders(dataset, 1, 8, shuffle=True, seed=seed)[0] for seed in (0, 1))
    early, late = loader.sampler.state_at(1, epoch=0), loader.sampler.state_at(3, epoch=0)
    with pytest.raises(Unusable, match=r"since= must not be later than the state of epoch 0, position 8"):
        loader.seen(early, late)
    with pytest.raises(StateMismatch, match="seed"):
        other.seen(late)
    with pytest.raises(StateMismatch, match="catalog differs"):
        loaders(ps.MapDataset.from_catalog(catalog[1:]), 1, 8, shuffle=True)[0].seen(late)
    for state in None, {}, {"model": 1}, late | {"global_batch": "8"}, late | {"global_batch": 0}:
        with pytest.raises(StateMismatch):
            loader.seen(state)
    with pytest.raises(Unusable, match=r"ranks must divide the global batch of 8, got 3"):
        loader.seen(late, ranks=3)
    seen = loader.seen(late, early)
    with pytest.raises(IndexError, match="batch 2 does not exist"):
        seen[2]
    with pytest.raises(Unusable, match="rank must be 0 to 0, got 1"):
        seen.inspect(0, rank=1)
    for each in late, loader.sampler.state_at(5, epoch=0):
        assert len(loader.seen(each, each)) == loader.seen(each, each).samples == 0
    lanes = [loaders(dataset, 1, 8, shuffle=ps.order.Lanes(4, 2, lanes))[0] for lanes in (2, 4)]
    states = [each.sampler.state_at(batch, epoch=0) for each, batch in zip(lanes, (1, 2), strict=True)]
    with pytest.raises(StateMismatch, match="different runs"):
        lanes[0].seen(states[1], states[0])


def test_notes_name_what_the_states_cannot_prove(catalog):
    dataset = ps.MapDataset.from_catalog(catalog[:35], transform=explode_number)
    loader = loaders(dataset, 1, 8, shuffle=True, on_error="skip")[0]
    _, early = train([loader], 3)
    seen = loader.seen(early)
    assert seen.notes == ('samples that on_error="skip" left out are included',)
    _, late = train([loader], 2)
    later = loader.seen(late)
    assert later.notes[0] == "epoch 0 is assumed to have been iterated to the end"
    wide = loaders(dataset, 1, 4, shuffle=True)[0].seen(late)
    assert any("pass ranks=" in note for note in wide.notes)
    assert repr(later).startswith("<SeenBatches: 51 samples in batches of 8; epoch 0 is assumed")


def test_a_sampler_of_any_dataset_lists_indices_without_urls():
    sampler = ps.BatchSampler(range(20), 4, shuffle=True)
    batches = [*islice(sampler, 3)]
    seen = sampler.seen(sampler.state_at(3))
    assert [each.tolist() for each in seen] == batches
    assert [astuple(each) for each in seen.inspect(2)] == [(index, "", False, "") for index in batches[2]]


@pytest.mark.parametrize("shuffle", [True, ps.order.BlockShuffle(1000), ps.order.Lanes(1000)])
def test_any_interval_of_a_billion_samples_takes_less_than_a_second(shuffle):
    sampler = ps.BatchSampler(range(10**9), 4096, shuffle=shuffle)
    states = [sampler.state_at(batches, epoch=3) for batches in (200_000, 200_010)]
    began = time.process_time()
    seen = sampler.seen(states[1], states[0])
    samples = np.concatenate([*seen])
    middle = sampler.seen(states[1])[700_000]
    assert time.process_time() - began < 1
    assert len(np.unique(samples)) == len(samples) == 10 * 4096
    assert len(middle) == 4096
