"""torchdata's loader goes on from its own state in any epoch: each sample comes once, in the same order."""

from __future__ import annotations

import json
import warnings
from itertools import chain, islice

import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import Cancelled, StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchdata.nodes import IterableWrapper
    from torchdata.stateful_dataloader import StatefulDataLoader

COUNT, BATCH = 61, 4
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than processors: meant
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("stateful") / "data", COUNT)).catalog


def streamed(catalog, **options) -> ps.IterableDataset:
    return ps.IterableDataset.from_catalog(catalog, transform=number, shuffle=True, **{"seed": 3, **options})


def formed(catalog, **options):
    return StatefulDataLoader(streamed(catalog).batched(BATCH), batch_size=None, **options)


def by_torch(catalog, **options):
    return StatefulDataLoader(streamed(catalog), batch_size=BATCH, **options)


def listed(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (formed, {}),
        (formed, {"num_workers": 2, "snapshot_every_n_steps": 5}),
        (formed, {"num_workers": 3, "persistent_workers": True}),
        (formed, {"num_workers": 1, "multiprocessing_context": "forkserver"}),
        (by_torch, {}),
        (by_torch, {"num_workers": 2, "persistent_workers": True, "snapshot_every_n_steps": 3}),
    ],
)
def test_a_stop_in_the_second_epoch_loses_and_repeats_no_sample(catalog, make, options):
    loader = make(catalog, **options)
    first, second, third = (listed(loader) for _ in range(3))
    assert sorted(chain(*second)) == list(range(COUNT))
    assert len({str(first), str(second), str(third)}) == 3
    stopped = make(catalog, **options)
    listed(stopped)
    before = listed(islice(stopped, 7))
    again = make(catalog, **options)
    again.load_state_dict(stopped.state_dict())
    assert before + listed(again) == second
    ended = again.state_dict()
    assert listed(again) == third
    after = make(catalog, **options)
    after.load_state_dict(ended)
    assert listed(after) == third


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (2, 1), (2, 100), (3, 3)])
def test_the_state_of_all_workers_together_is_good_for_any_layout(catalog, workers, every):
    whole = listed(ps.DataLoader(streamed(catalog), BATCH))
    loader = formed(catalog, num_workers=workers, snapshot_every_n_steps=every)
    for at, batch in enumerate(loader):
        assert batch.tolist() == whole[at]
        state = json.loads(json.dumps(ps.elastic_state(loader.state_dict())))
        assert state == streamed(catalog).batched(BATCH).state_at(at + 1)
    assert (ps.elastic_state(loader.state_dict())["epoch"], ps.elastic_state(loader.state_dict())["position"]) == (1, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_torch_formed_have_no_state_for_other_layouts(catalog, workers):
    loader = by_torch(catalog, num_workers=workers)
    next(iter(loader))
    with pytest.raises(StateMismatch, match=r"batched\(…\)"):
        ps.elastic_state(loader.state_dict())


@pytest.mark.parametrize("other", [{"seed": 4}, {"place": ps.Place(0, 2)}])
def test_a_state_of_another_order_or_world_is_refused(catalog, other):
    state = iter(streamed(catalog)).state_dict()
    with pytest.raises(StateMismatch):
        iter(streamed(catalog, **other)).load_state_dict(state)
    with pytest.raises(StateMismatch, match="batched"):
        iter(streamed(catalog)).load_state_dict(state | {"workers": 2})
    with pytest.raises(StateMismatch, match="batched"):
        iter(streamed(catalog)).load_state_dict(None)


def test_torchdata_node_resumes_from_its_state(catalog):
    def node(state=None):
        made = IterableWrapper(streamed(catalog).batched(BATCH))
        made.reset(state)
        return made

    begun = node()
    before = listed(islice(begun, 3))
    assert before + listed(node(begun.state_dict())) == listed(streamed(catalog).batched(BATCH))


def test_batches_tell_their_state_wherever_they_know_it(catalog):
    batches = streamed(catalog).batched(BATCH)
    assert batches.state_dict() == batches.state_at(0)
    for _ in islice(batches, 3):
        pass
    assert batches.state_dict() == batches.state_at(3)
    for received, _ in enumerate(batches, 1):
        assert batches.state_dict() == batches.state_at(received)
    assert batches.state_dict() == batches.state_at(0, epoch=2)
    batches.set_epoch(7)
    assert batches.state_dict() == batches.state_at(0, epoch=7)


def test_an_interrupted_epoch_has_not_ended(catalog):
    pressed = iter([False] * 8 + [True] + [False] * COUNT)

    def interrupted(sample):
        if next(pressed):
            raise KeyboardInterrupt
        return number(sample)

    dataset = ps.IterableDataset.from_catalog(catalog, transform=interrupted, shuffle=True, seed=3)
    batches, before = dataset.batched(BATCH), []
    iterator = iter(batches)
    with pytest.raises(KeyboardInterrupt):
        before += map(torch.Tensor.tolist, iterator)
    with pytest.raises(Cancelled, match=r"load_state_dict\(state_dict\(\)\)"):
        next(iterator)
    batches.load_state_dict(batches.state_dict())
    assert before + listed(batches) == listed(streamed(catalog).batched(BATCH))


def test_batches_that_workers_read_do_not_make_up_a_state(catalog):
    batches = streamed(catalog).batched(BATCH)
    next(iter(DataLoader(batches, batch_size=None, num_workers=1)))
    with pytest.raises(Unusable, match=r"state_at\(received\)"):
        batches.state_dict()
    next(iter(batches))
    assert batches.state_dict()["epoch"] == 1


def test_an_iteration_that_has_failed_never_looks_complete(catalog):
    def fussy(samples):
        if 9 in samples:
            raise ValueError("nine")
        return samples

    batches = ps.IterableDataset.from_catalog(catalog, transform=number).batched(BATCH, fussy)
    iterator = iter(batches)
    assert [next(iterator), next(iterator)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for _ in range(3):
        with pytest.raises(ValueError, match="nine"):
            next(iterator)
        assert iterator.state_dict() == batches.state_dict() == batches.state_at(2)
    iterator.load_state_dict(batches.state_at(3, epoch=0))
    assert next(iterator) == [12, 13, 14, 15]


def test_a_look_at_the_dataset_meanwhile_does_not_spoil_the_state(catalog):
    whole = listed(formed(catalog))
    dataset = streamed(catalog)
    batches = dataset.batched(BATCH)
    loader = StatefulDataLoader(batches, batch_size=None)
    iterator = iter(loader)
    seen = listed(islice(iterator, 3))
    next(iter(dataset))
    state = json.loads(json.dumps(batches.state_dict()))
    assert (state["epoch"], state["position"]) == (0, 3 * BATCH)
    saved = loader.state_dict()
    assert seen + listed(iterator) == whole

    again = formed(catalog)
    again.load_state_dict(saved)
    assert listed(again) == whole[3:]
    ours = streamed(catalog).batched(BATCH)
    ours.load_state_dict(state)
    assert listed(ours) == whole[3:]


def test_state_dict_is_refused_after_iteration_in_a_worker_process(catalog):
    dataset = streamed(catalog)
    batches = dataset.batched(BATCH)
    next(iter(batches))
    next(iter(dataset))
    assert len(listed(islice(DataLoader(batches, batch_size=None, num_workers=1), 2))) == 2
    with pytest.raises(Unusable, match="state_at"):
        batches.state_dict()
