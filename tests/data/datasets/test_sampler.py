"""Batches of indices for torch's own loader and torchdata's, and a state of theirs made elastic."""

from __future__ import annotations

import copy
import json
import math
import warnings
from itertools import islice

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated", "ignore:This DataLoader will create")
COUNT = 61


class Numbers:
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return int(index)


def sampler(batch: int = 8, **options) -> ps.BatchSampler:
    return ps.BatchSampler(Numbers(), batch, **{"shuffle": True, "seed": 2, **options})


def epochs(count: int, **options) -> list[list[list[int]]]:
    of = sampler(**options)
    return [list(of) for _ in range(count)]


def stateful(of: ps.BatchSampler, workers: int, every: int = 1) -> StatefulDataLoader:
    return StatefulDataLoader(
        Numbers(), batch_sampler=of, num_workers=workers, snapshot_every_n_steps=every, collate_fn=list
    )


def test_each_iteration_is_the_next_epoch_each_index_once():
    first, second = epochs(2)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(COUNT))
    assert first != second
    assert [len(batch) for batch in first] == [8] * 7 + [5]
    assert list(sampler(shuffle=False))[:1] == [list(range(8))]


def test_the_order_is_the_loaders(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", COUNT), transform=number)
    of = ps.BatchSampler(dataset, 8, shuffle=True, seed=2)
    loader = ps.DataLoader(dataset, 8, shuffle=True, seed=2, collate_fn=list)
    assert list(of) == list(loader) == epochs(1)[0]
    loader.load_state_dict(of.state_at(3))
    assert list(loader) == epochs(1)[0][3:]


def test_sampler_exposes_length_and_attributes_expected_by_torch():
    of = sampler(4, tail="drop", place=ps.Place(1, 2))
    assert (len(of), of.batch_size, of.sampler) == (7, 4, of)
    assert (len(sampler()), len(DataLoader(Numbers(), batch_sampler=sampler()))) == (8, 8)
    with pytest.raises(Unusable):
        sampler(0)


def test_ranks_share_the_global_batch_and_repeats_say_so():
    ranks = [list(sampler(4, place=ps.Place(rank, 2))) for rank in range(2)]
    assert [one + two for one, two in zip(*ranks, strict=True)] == epochs(1)[0]
    padded = list(sampler(10, tail="pad"))
    assert [isinstance(index, ps.order.Repeat) for index in padded[-1]] == [False] + [True] * 9
    assert padded[-1][1:] == padded[0][:9]


@pytest.mark.parametrize("workers", [0, 2])
def test_sampler_state_counts_received_batches_under_torch_dataloader(workers):
    expected = epochs(2)
    of = sampler()
    loader = DataLoader(Numbers(), batch_sampler=of, num_workers=workers, collate_fn=list, timeout=60 if workers else 0)
    taken = list(islice(iter(loader), 3))
    state = of.state_at(3)
    assert taken == expected[0][:3]
    assert state["position"] == 24
    other = sampler(2, place=ps.Place(3, 4))
    other.load_state_dict(state)
    assert list(other)[:4] == [batch[6:8] for batch in expected[0][3:7]]
    of.load_state_dict(state)
    assert [list(loader), list(loader)] == [expected[0][3:], expected[1]]


def test_two_iterators_of_which_the_first_is_never_used_are_one_epoch():
    of = sampler()
    iter(of)
    assert list(of) == epochs(1)[0]
    of.set_epoch(0)
    assert list(of) == epochs(1)[0]


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (0, 3), (1, 1), (2, 1), (2, 3)])
def test_torchdata_state_resumes_and_its_elastic_state_counts_received_samples(workers, every):
    expected = epochs(2)
    of = sampler()
    loader = stateful(of, workers, every)
    for stop in (0, 1, 4, 8):
        of.set_epoch(0)
        iterator = iter(loader)
        taken = list(islice(iterator, stop))
        state = copy.deepcopy(loader.state_dict())
        del iterator
        again = stateful(sampler(), workers, every)
        again.load_state_dict(state)
        assert [taken + list(again), list(again)] == expected
        elastic = json.loads(json.dumps(ps.elastic_state(state)))
        assert (elastic["epoch"], elastic["position"]) == (0, min(COUNT, stop * 8))
        other = sampler(4, place=ps.Place(1, 2))
        other.load_state_dict(elastic)
        assert list(other) == [batch[4:] if len(batch) == 8 else batch[2:] for batch in expected[0][stop:]]


@pytest.mark.parametrize("workers", [0, 1])
def test_before_the_first_batch_and_after_the_last(workers):
    of = sampler()
    loader = stateful(of, workers)
    untouched = ps.elastic_state(loader.state_dict())
    assert (untouched["epoch"], untouched["position"]) == (0, 0)
    list(loader)
    ended = ps.elastic_state(loader.state_dict())
    assert (ended["epoch"], ended["position"]) == (1, 0)
    other = sampler()
    other.load_state_dict(ended)
    assert list(other) == epochs(2)[1]


def test_torchdatas_state_of_another_order_is_refused():
    loader = stateful(sampler(), 0)
    next(iter(loader))
    other = stateful(sampler(seed=3), 0)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(StateMismatch, match="seed"):
        list(other)


def real(workers: int = 0) -> dict:
    loader = stateful(sampler(), workers, 3)
    iterator = iter(loader)
    list(islice(iterator, 4))
    return copy.deepcopy(loader.state_dict())


HOSTILE = [
    *[None, 7, "state", b"state", [], [("a", 1)], object(), {}],
    {"_snapshot": None},
    {"_snapshot": [1]},
    {"_snapshot": {}},
    {"_snapshot": {"_main_snapshot": None}},
    *[
        {"_sampler_iter_state": inner, "_iterator_finished": False}
        for inner in (None, 5, "abc", ["abc"], [1], {}, [[1]])
    ],
]


@pytest.mark.parametrize("state", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_elastic_state_refuses_invalid_or_foreign_states(state):
    with pytest.raises(StateMismatch, match="BatchSampler"):
        ps.elastic_state(state)


@pytest.mark.parametrize("wrong", [None, "3", [], 1.5, math.nan, pytest.param(10**5000, id="huge"), True, -(2**70), {}])
@pytest.mark.parametrize("name", ["epoch", "position", "samples", "global_batch", "_steps_since_snapshot"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_damaged_state_is_refused_here_or_where_it_is_loaded(name, wrong, finished):
    state = {**real(), "_steps_since_snapshot": 2, "_iterator_finished": finished}
    (state if name.startswith("_") else state["_sampler_iter_state"])[name] = wrong
    if name == "_steps_since_snapshot" and isinstance(wrong, int) and wrong > 1:
        assert ps.elastic_state(state)["position"] in (0, COUNT), "further than an epoch is its end"
        return
    with pytest.raises(StateMismatch):
        sampler().load_state_dict(ps.elastic_state(state))


def test_making_a_state_elastic_changes_nothing():
    state = real()
    before = copy.deepcopy(state)
    assert ps.elastic_state(state) == ps.elastic_state(state)
    assert state == before
