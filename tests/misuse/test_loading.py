"""What a hurried user writes of the loader: it does what was meant, or is refused with a word on what to do."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler, Subset, TensorDataset

import penstock as ps
from penstock.errors import StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

COUNT = 10


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("misuse") / "data", COUNT)).catalog


def mapped(catalog) -> ps.MapDataset:
    return ps.MapDataset.from_catalog(catalog, transform=number)


def loader(catalog, batch_size=4, **options) -> ps.DataLoader:
    return ps.DataLoader(mapped(catalog), batch_size, **options)


def mixed(catalog, **options) -> ps.Mix:
    return ps.Mix({"a": mapped(catalog), "b": mapped(catalog)}, **options)


# The call, a word of the error, and its kind where it is not Unusable.
REFUSED = {
    "batches": (lambda c: ps.DataLoader(mapped(c).batched(4), batch_size=4), "forms the batches itself"),
    "torch's dataset": (lambda _: ps.DataLoader(TensorDataset(torch.ones(3)), 4), "BatchSampler"),
    "torch's subset of something else": (lambda _: ps.DataLoader(Subset([1, 2], [1]), 4), "BatchSampler"),
    "a list": (lambda _: ps.DataLoader([1, 2, 3], 4), "BatchSampler"),
    "a catalog": (lambda c: ps.DataLoader(c, 4), "BatchSampler"),
    "a class": (lambda _: ps.DataLoader(ps.MapDataset, 4), "write MapDataset.from_prefix"),
    "a class of iterable datasets": (
        lambda _: ps.DataLoader(ps.IterableDataset, 4),
        "write IterableDataset.from_prefix",
    ),
    "a URL": (lambda _: ps.DataLoader("s3://bucket/train/", 4), "write penstock.MapDataset.from_prefix"),
    "a loader": (lambda c: ps.DataLoader(loader(c), 4), "give its dataset here"),
    "a state's file": (
        lambda c: loader(c).load_state_dict("state.json"),
        "pass what state_dict() returned",
        StateMismatch,
    ),
    "no batch size": (lambda c: loader(c, None), "batch_size"),
    "a batch size that looks whole": (lambda c: loader(c, 4.0), "batch_size"),
    "a batch size of True": (lambda c: loader(c, batch_size=True), "batch_size"),
    "a batch size of none": (lambda c: loader(c, 0), "batch_size"),
    "True workers": (lambda c: loader(c, num_workers=True), "num_workers"),
    "half a worker": (lambda c: loader(c, num_workers=0.5), "num_workers"),
    "workers below none": (lambda c: loader(c, num_workers=-1), "num_workers"),
    "no number of workers": (lambda c: loader(c, num_workers=None), "num_workers"),
    "workers by the million": (lambda c: loader(c, num_workers=10**30), "num_workers must be 0 to 4,096"),
    "threads by the million": (lambda c: loader(c, decode_threads=10**30), "decode_threads must be 1 to"),
    "arrays as words": (lambda c: loader(c, on_error=np.ones(2)), "on_error must be 'raise' or 'skip'"),
    "an array as a tail": (lambda c: loader(c, tail=np.ones(2)), "tail must be 'drop', 'short' or 'pad'"),
    "an array as drop_last": (lambda c: loader(c, drop_last=np.ones(2)), "drop_last must be True or False"),
    "a device without an end": (lambda c: loader(c, device=10**30), "device must be one of"),
    "a mixture's weights, later": (lambda c: setattr(mixed(c), "weights", {"a": 1}), "create a new one"),
    "one weight, later": (lambda c: mixed(c).weights.update(a=1), "update", AttributeError),
    "a word of a mixture as a list": (lambda c: mixed(c, ends=[]), "ends must be 'longest'"),
    "nothing prefetched": (lambda c: loader(c, prefetch=0), "prefetch"),
    "half a batch prefetched": (lambda c: loader(c, prefetch=0.5), "prefetch"),
    "no threads": (lambda c: loader(c, decode_threads=0), "decode_threads"),
    "threads and workers": (lambda c: loader(c, decode_threads=2, num_workers=2), "num_workers=0"),
    "shuffle by a word": (lambda c: loader(c, shuffle="yes"), "True, False or an order"),
    "a seed of True": (lambda c: loader(c, shuffle=True, seed=True), "seed"),
    "a seed that looks whole": (lambda c: loader(c, shuffle=True, seed=0.0), "seed"),
    "a seed as text": (lambda c: loader(c, shuffle=True, seed=""), "seed"),
    "tail in capitals": (lambda c: loader(c, tail="Pad"), "'pad'"),
    "drop_last by a word": (lambda c: loader(c, drop_last="no"), "True or False"),
    "drop_last and a tail": (lambda c: loader(c, drop_last=True, tail="pad"), 'tail="drop"'),
    "on_error in capitals": (lambda c: loader(c, on_error="Skip"), "'skip'"),
    "a rank and a world as a place": (lambda c: loader(c, place=(0, 2)), "ps.Place"),
    "a result as a collate_fn": (lambda c: loader(c, collate_fn={}), "collate_fn"),
    "a sampler": (lambda c: loader(c, sampler=RandomSampler(mapped(c))), "by itself"),
    "a batch sampler": (lambda c: loader(c, batch_sampler=ps.BatchSampler(mapped(c), 4)), "by itself"),
    "a generator": (lambda c: loader(c, generator=torch.Generator()), "seed"),
    "torch's prefetching": (lambda c: loader(c, num_workers=2, prefetch_factor=2), "write prefetch=2"),
    "a misspelt argument": (lambda c: loader(c, worker=2), "worker is not an argument"),
    "a misspelt word of the loader": (lambda c: loader(c, shufle=True), "did you mean 'shuffle'?"),
    "a number of epochs": (lambda c: loader(c, epochs=3), "write `for epoch in range(3):` around the loop"),
    "a transform": (lambda c: loader(c, transform=number), "pass it to the dataset"),
    "persistent threads": (lambda c: loader(c, persistent_workers=True), "num_workers is 0"),
    "an iterable dataset's order": (
        lambda c: ps.DataLoader(ps.IterableDataset.from_catalog(c), 4, shuffle=True),
        "has its own shuffle",
    ),
    "an iterable dataset's seed": (
        lambda c: ps.DataLoader(ps.IterableDataset.from_catalog(c), 4, seed=1),
        "shuffle=True, seed=",
    ),
    "a sampler's rank": (lambda c: ps.BatchSampler(mapped(c), 4, rank=0), "write place=ps.Place(", TypeError),
    "a sampler's remainder": (lambda c: ps.BatchSampler(mapped(c), 4, drop_last=True), 'write tail="drop"', TypeError),
    "versions of a dataset": (
        lambda _: ps.MapDataset.from_prefix("a", versions=True),
        "pass it to ps.Catalog.scan or ps.Catalog.from_shards, save the catalog",
        TypeError,
    ),
    "a dataset's rank": (lambda _: ps.MapDataset.from_prefix("a", num_replicas=2), "pass place=ps.Place(", TypeError),
    "a dataset's workers": (lambda _: ps.MapDataset.from_prefix("a", timeout=2), "it is ps.DataLoader's", TypeError),
    "more batches than an epoch has": (
        lambda c: ps.BatchSampler(mapped(c), 4).state_at(10**9),
        "must be 0 to 3, as many as epoch 0 has from position 0 on, got 1000000000",
    ),
    "batches out of order": (lambda c: loader(c, in_order=False), "always come in order"),
    "a device for pinned memory": (lambda c: loader(c, pin_memory_device="cuda"), "write device='cuda'"),
    "a device that is none": (lambda c: loader(c, device="gpu"), '"cuda"'),
    "pinned memory by a word": (lambda c: loader(c, pin_memory="yes"), "True or False"),
    "a start method that is none": (lambda c: loader(c, num_workers=1, multiprocessing_context="frok"), "forkserver"),
    "a timeout as text": (lambda c: loader(c, num_workers=1, timeout="3"), "seconds"),
    "a result as worker_init_fn": (lambda c: loader(c, num_workers=1, worker_init_fn=3), "function"),
    "persistent by a word": (lambda c: loader(c, num_workers=1, persistent_workers="yes"), "True or False"),
    "an epoch below none": (lambda c: loader(c).set_epoch(-1), "an epoch must be 0 or more, got -1"),
    "an epoch as text": (lambda c: loader(c).set_epoch("1"), "whole number"),
    "nothing as a state": (lambda c: loader(c).load_state_dict(None), "not a state", StateMismatch),
    "an optimizer's state": (lambda c: loader(c).load_state_dict({"state": {}}), "not a state", StateMismatch),
    "another loader's state": (
        lambda c: loader(c).load_state_dict(loader(c[1:]).state_dict()),
        "catalog",
        StateMismatch,
    ),
    "another batch size's state": (
        lambda c: loader(c).load_state_dict(loader(c, 5).state_dict()),
        "allow_new_global_batch",
        StateMismatch,
    ),
    "a state of tensors": (
        lambda c: loader(c).load_state_dict({k: torch.tensor(1) for k in loader(c).state_dict()}),
        "version",
        StateMismatch,
    ),
}


def test_epoch_without_a_batch_is_logged_once(catalog, caplog):
    empty = loader(catalog, 400, tail="drop")
    assert [list(empty), list(empty)] == [[], []]
    assert [each for each in caplog.messages if "pass a smaller batch_size" in each] == [caplog.messages[0]]
    caplog.clear()
    assert list(ps.DataLoader(mapped(catalog)[:0], 4)) == []
    assert not caplog.messages


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_loader_call_raises_with_advice(catalog, name):
    misuse, word, kind = (*REFUSED[name], Unusable)[:3]
    with pytest.raises(kind) as caught:
        misuse(catalog)
    assert word in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_first_look_at_a_loader_disturbs_no_loop_after_it(catalog, workers):
    made = loader(catalog, num_workers=workers)
    look = iter(made)
    assert next(look).tolist() == [0, 1, 2, 3]
    assert torch.cat(list(made)).tolist() == list(range(COUNT))  # while the first one lives
    assert made.state_dict()["epoch"] == 2


def test_a_state_through_json_or_torch_is_the_same(catalog, tmp_path):
    made = loader(catalog, np.int64(4), shuffle=True, seed=np.int64(7))
    next(iter(made))
    state = made.state_dict()
    torch.save(state, tmp_path / "state")
    rest = []
    for again in (state, json.loads(json.dumps(state)), torch.load(tmp_path / "state")):
        after = loader(catalog, 4, shuffle=np.True_, seed=7)
        after.load_state_dict(again)
        rest.append(torch.cat(list(after)).tolist())
    assert rest[0] == rest[1] == rest[2]
    assert len(rest[0]) == COUNT - 4


def test_arguments_with_torchs_defaults_say_nothing_and_are_accepted(catalog):
    defaults = {
        "sampler": None,
        "batch_sampler": None,
        "generator": None,
        "prefetch_factor": None,
        "pin_memory_device": "",
        "in_order": True,
        "persistent_workers": False,
        "worker_init_fn": None,
        "multiprocessing_context": None,
        "timeout": 0,
    }
    for workers in (0, 1):
        made = loader(catalog, num_workers=workers, **defaults)
        assert torch.cat(list(made)).tolist() == list(range(COUNT))


def test_every_argument_of_torchs_loader_is_taken_or_refused_with_what_to_write(catalog):
    taken = inspect.signature(ps.DataLoader).parameters
    for name in list(inspect.signature(torch.utils.data.DataLoader).parameters)[1:]:
        if name not in taken:
            with pytest.raises(Unusable, match=f"^{name} is (not an argument of this loader: |for worker processes)"):
                loader(catalog, **{name: 3})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(catalog):
    with pytest.raises(Unusable, match="no CUDA device here"):
        loader(catalog, device="cuda")


@pytest.mark.parametrize("workers", [0, 1])
def test_uncollatable_samples_error_suggests_collate_fn_list(catalog, workers):
    made = ps.DataLoader(ps.MapDataset.from_catalog(catalog, transform=growing), 4, num_workers=workers)
    with pytest.raises(RuntimeError) as caught:
        list(made)
    assert "collate_fn=list" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def growing(sample) -> torch.Tensor:
    return torch.zeros(number(sample) + 1)


def test_transform_that_yields_gets_the_advice_to_return(catalog):
    def spread(sample):
        yield number(sample)

    with pytest.raises(TypeError) as caught:
        next(iter(ps.DataLoader(ps.MapDataset.from_catalog(catalog, transform=spread), 4)))
    assert "transform yields its value, and makes a generator: return the value instead" in caught.value.__notes__
