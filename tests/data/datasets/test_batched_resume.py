"""A state says what was received, on every rank the same, and any layout goes on from it."""

from __future__ import annotations

import json
import threading

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.data.order.shuffle import Permutation
from penstock.errors import StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

COUNT = 61


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    folder = numbered(tmp_path_factory.mktemp("resumable") / "data", COUNT)
    return ps.MapDataset.from_prefix(folder).catalog


def opened(catalog, **options) -> ps.IterableDataset:
    return ps.IterableDataset.from_catalog(catalog, transform=number, **{"shuffle": True, "seed": 2, **options})


def batches(catalog, batch=8, tail="short", **options):
    return opened(catalog, **options).batched(batch, list, tail=tail)


def of_epoch(catalog, epoch: int, batch=8, **options) -> list[list[int]]:
    of = batches(catalog, batch, **options)
    of.set_epoch(epoch)
    return list(of)


def test_a_state_is_a_few_numbers_with_the_catalogs_digest(catalog):
    of = batches(catalog)
    list(of)
    assert of.state_at(3) == {
        "penstock": 1,
        "epoch": 0,
        "position": 24,
        "samples": COUNT,
        "global_batch": 8,
        "seed": 2,
        "catalog": catalog.digest,
    }
    assert len(json.dumps(of.state_at(3))) < 1024


def test_state_at_uses_the_latest_iteration_or_the_given_epoch(catalog):
    of = batches(catalog)
    assert (of.state_at(0)["epoch"], of.state_at(0)["position"]) == (0, 0)
    list(of)
    list(of)
    assert (of.state_at(2)["epoch"], of.state_at(2)["position"]) == (1, 16)
    assert (of.state_at(1, epoch=7)["epoch"], of.state_at(1, epoch=7)["position"]) == (7, 8)
    assert of.state_at(8)["position"] == COUNT
    for wrong in (-1, 2.5, True, "2", 9, 10**9):
        with pytest.raises(Unusable, match="number of received batches must be"):
            of.state_at(wrong)
    with pytest.raises(Unusable, match="an epoch must be a whole number"):
        of.state_at(1, epoch=0.5)


@pytest.mark.parametrize("name", ["allow_new_global_batch", "allow_rereads"])
def test_a_text_allows_nothing(catalog, name):
    of = batches(catalog)
    with pytest.raises(Unusable, match=f"{name} must be True or False"):
        of.load_state_dict(of.state_at(1), **{name: "no"})


def test_after_a_resume_batches_count_from_there(catalog):
    of = batches(catalog)
    of.load_state_dict(of.state_at(3, epoch=4))
    assert of.state_at(0) == of.state_at(3, epoch=4)
    assert list(of) == of_epoch(catalog, 4)[3:]
    assert of.state_at(2) == of.state_at(5, epoch=4)
    assert list(of) == of_epoch(catalog, 5)


def test_taking_a_state_changes_nothing(catalog):
    of = batches(catalog)
    for at in (0, 3, 8):
        of.state_at(at)
        of.state_at(at, epoch=9)
    assert list(of) == of_epoch(catalog, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_under_a_different_batch_layout_with_torch_loader(catalog, workers):
    """Two ranks of batches of four stop after three; one of eight goes on, its workers unaware of theirs."""
    halves = [batches(catalog, 4, place=ps.Place(rank, 2)) for rank in range(2)]
    taken = [[next(iterator) for _ in range(3)] for iterator in map(iter, halves)]
    states = [half.state_at(3) for half in halves]
    assert states[0] == states[1]
    whole = batches(catalog)
    whole.load_state_dict(json.loads(json.dumps(states[1])))
    loader = DataLoader(whole, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    rest = list(loader)
    assert [one + two for one, two in zip(*taken, strict=True)] + rest == of_epoch(catalog, 0)
    assert list(loader) == of_epoch(catalog, 1)
    whole.load_state_dict(states[0])
    assert list(loader) == rest


def test_naming_the_states_own_epoch_keeps_its_position_and_another_does_not(catalog):
    of = batches(catalog)
    state = of.state_at(3, epoch=4)
    of.load_state_dict(state)
    of.set_epoch(4)
    assert list(of) == of_epoch(catalog, 4)[3:]
    of.load_state_dict(state)
    of.set_epoch(5)
    assert list(of) == of_epoch(catalog, 5)
    of.set_epoch(4)
    assert list(of) == of_epoch(catalog, 4)


@pytest.mark.parametrize("wrong", [1 << 63, -(1 << 63), "3", 0.5, None])
def test_invalid_epoch_is_refused_and_the_order_is_unchanged(catalog, wrong):
    of = batches(catalog)
    with pytest.raises(Unusable, match="epoch"):
        of.set_epoch(wrong)
    assert list(of) == of_epoch(catalog, 0)


def test_another_global_batch_only_when_asked_for_and_nothing_is_lost_then(catalog):
    state = batches(catalog).state_at(2)
    other = batches(catalog, 5)
    with pytest.raises(StateMismatch, match="allow_new_global_batch"):
        other.load_state_dict(state)
    other.load_state_dict(state, allow_new_global_batch=True)
    taken = sum(of_epoch(catalog, 0)[:2], [])
    rest = list(other)
    assert sorted(taken + sum(rest, [])) == list(range(COUNT))
    assert [len(batch) for batch in rest] == [5] * 9
    assert other.state_at(1)["position"] == 21


@pytest.mark.parametrize("tail", ["drop", "short", "pad"])
def test_the_length_is_a_whole_epochs_on_every_rank(catalog, tail):
    for world in (1, 2, 3):
        ranks = [batches(catalog, 4, tail=tail, place=ps.Place(rank, world)) for rank in range(world)]
        assert {len(of) for of in ranks} == {len(list(of)) for of in ranks}
    ranks[0].load_state_dict(ranks[0].state_at(2))
    assert len(list(ranks[0])) == len(ranks[0]) - 2


def test_a_set_of_nothing_has_epochs_all_the_same(catalog):
    of = batches(catalog[:0])
    assert (len(of), list(of), list(of)) == (0, [], [])
    assert (of.state_at(0)["epoch"], of.state_at(0)["position"]) == (1, 0)
    of.load_state_dict(of.state_at(0))
    assert list(of) == []


def test_a_refused_state_leaves_everything_as_it_was(catalog):
    of = batches(catalog)
    list(of)
    for state in ({}, None, {**of.state_at(1), "seed": 3}, {**of.state_at(1), "penstock": 2}):
        with pytest.raises(StateMismatch):
            of.load_state_dict(state)
    assert list(of) == of_epoch(catalog, 1)


def test_states_taken_from_many_threads_at_once_are_the_same(catalog):
    of = batches(catalog)
    list(of)
    found = []
    threads = [threading.Thread(target=lambda: found.append(of.state_at(4))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [of.state_at(4)] * 8


class Long:
    """A dataset of 10^8 samples that takes no room."""

    def __len__(self) -> int:
        return 10**8


def test_going_on_at_sample_ninety_million_computes_a_block_and_reads_nothing(monkeypatch):
    computed = []
    of = Permutation.of

    def counted(self, positions):
        computed.append(len(positions))
        return of(self, positions)

    monkeypatch.setattr(Permutation, "of", counted)
    sampler = ps.BatchSampler(Long(), 256, shuffle=True)
    sampler.load_state_dict({**sampler.state_at(0), "position": 9 * 10**7})
    first = next(iter(sampler))
    assert 256 <= sum(computed) <= 4096
    assert first == Permutation(10**8, 0, 0).block(9 * 10**7, 9 * 10**7 + 256).tolist()


def test_a_state_of_another_catalog_is_refused_with_how_to_keep_one(catalog, tmp_path):
    state = batches(catalog).state_at(2)
    text = r"the catalog differs .*save the catalog once \(dataset\.catalog\.save\(url\)\).*from_catalog\(url\)"
    for other in (catalog[1:], catalog.filter(exclude="000")):
        with pytest.raises(StateMismatch, match=text):
            batches(other).load_state_dict(state)
    catalog.save(tmp_path / "train.catalog")
    batches(tmp_path / "train.catalog").load_state_dict(state)
    with pytest.raises(StateMismatch, match="seed") as caught:
        batches(catalog, seed=3).load_state_dict(state)
    assert "save" not in str(caught.value)
