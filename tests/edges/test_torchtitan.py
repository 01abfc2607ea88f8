"""The loader in examples/torchtitan, over torchtitan's base class, or one with its methods where it is not installed.

`make torchtitan` runs this file with torchtitan, and then its trainer.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module, util
from types import ModuleType

import numpy as np
import pytest
import torch

import penstock as ps

LENGTH = 16


class BaseDataLoader(ABC):
    """What the loader takes from torchtitan's: an abstract ``__iter__``, and a ``Config`` that builds its owner."""

    @dataclass(kw_only=True, slots=True)
    class Config:
        dataset_path: str | None = None
        dataset: str = ""

        def build(self, **given):
            return sys.modules["examples.torchtitan.loader"].PenstockLoader(self, **given)

    @abstractmethod
    def __iter__(self): ...


@pytest.fixture
def loader_class(monkeypatch):
    """Return the class of the example."""
    if util.find_spec("torchtitan") is None:
        assert not os.environ.get("PENSTOCK_REQUIRE_TORCHTITAN"), "torchtitan is not installed"
        module = ModuleType("torchtitan.components.dataloader")
        module.BaseDataLoader = BaseDataLoader
        for name in ("torchtitan", "torchtitan.components"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        # Imported anew, and forgotten after the test: no other test may find the stand-in.
        monkeypatch.delitem(sys.modules, "examples.torchtitan.loader", raising=False)
    return import_module("examples.torchtitan.loader").PenstockLoader


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Return a folder with documents of 2 to 16 tokens, of which no two begin alike."""
    folder = tmp_path_factory.mktemp("tokens")
    lengths = np.random.default_rng(0).integers(2, LENGTH + 1, 137)
    whole = np.arange(1, lengths.sum() + 1, dtype=np.uint16)
    for name in ("windows", "packed"):
        (folder / name).mkdir()
    np.save(folder / "windows" / "a.npy", whole)
    (folder / "packed" / "a.ds").write_bytes(whole.tobytes())
    (folder / "packed" / "a.ds.index").write_bytes(np.cumsum(lengths).astype(np.uint64).tobytes())
    return folder


def build(loader_class, tokens, rank=0, world=1, *, local_batch_size=2, **config):
    folder = f"{tokens}/{'packed' if config.get('pack') else 'windows'}/"
    config = loader_class.Config(dataset_path=folder, **{"infinite": False, "tail": "short"} | config)
    given = {"tokenizer": None, "snapshot_every_n_steps": None}
    return config.build(dp_world_size=world, dp_rank=rank, seq_len=LENGTH, local_batch_size=local_batch_size, **given)


def rows_of(batches):
    """Return the rows of batches, each as its tokens, positions and labels."""
    return [
        tuple(map(tuple, (row.tolist(), places.tolist(), wanted.tolist())))
        for inputs, labels in batches
        for row, places, wanted in zip(inputs["input"], inputs["positions"], labels, strict=True)
    ]


def test_windows_predict_each_token_once(loader_class, tokens):
    found = rows_of(build(loader_class, tokens))
    count = len(np.load(tokens / "windows" / "a.npy"))
    targets = sorted(label for _, _, labels in found for label in labels)
    assert targets == [*range(2, 2 + (count - 1) // LENGTH * LENGTH)]
    assert all(labels == tuple(each + 1 for each in row) for row, _, labels in found)
    assert {places for _, places, _ in found} == {tuple(range(LENGTH))}


def test_positions_and_labels_of_packed_rows_begin_and_end_with_documents(loader_class, tokens):
    found = rows_of(build(loader_class, tokens, pack="best-fit"))
    ends = {*np.fromfile(tokens / "packed" / "a.ds.index", np.uint64).tolist()}
    seen = []
    for row, places, labels in found:
        for token, place, label in zip(row, places, labels, strict=True):
            if token:
                seen.append(token)
                assert (token - 1 in {0, *ends}) == (place == 0)
                assert label == (-100 if token in ends else token + 1)
            else:
                assert label == -100
    assert sorted(seen) == [*range(1, max(ends) + 1)]


@pytest.mark.filterwarnings("ignore:.*cannot share the 2 lanes:UserWarning")
@pytest.mark.parametrize("pack", [None, "best-fit"])
def test_epochs_that_are_resumed_by_two_three_and_one_ranks_have_each_row_once(loader_class, tokens, pack):
    def ranks(world, state):
        made = [build(loader_class, tokens, rank, world, pack=pack, epochs=2) for rank in range(world)]
        for each in made if state else ():
            each.load_state_dict(state)
        return made

    once = sorted(rows_of(build(loader_class, tokens, pack=pack)))
    found, state = [], {}
    for world, steps in ((2, 3), (3, 4), (1, 10_000)):
        loaders = ranks(world, state)
        begun = [*map(iter, loaders)]
        for _ in range(steps):
            step = [next(each, None) for each in begun]
            if step[0] is None:
                assert step == [None] * world
                break
            found += rows_of(step)
        states = [each.state_dict() for each in loaders]
        assert all(each == states[0] for each in states)
        assert {*states[0]} == {"penstock"}
        state = states[0]
    assert sorted(found) == sorted(once * 2)
    assert rows_of(ranks(3, state)[2]) == []


@pytest.mark.parametrize("pack", [None, "best-fit"])
def test_loader_resumed_after_any_batch_continues_with_the_next(loader_class, tokens, pack):
    whole, states, undisturbed = [], [], build(loader_class, tokens, 1, 3, pack=pack, epochs=2)
    for batch in undisturbed:
        whole.append(rows_of([batch]))
        states.append(undisturbed.state_dict())
    for number, state in enumerate(states):
        resumed = build(loader_class, tokens, 1, 3, pack=pack, epochs=2)
        resumed.load_state_dict(state)
        assert [rows_of([each]) for each in resumed] == whole[number + 1 :]


def test_batches_have_one_shape_by_default(loader_class, tokens):
    batches = [*build(loader_class, tokens, 0, 2, tail="drop")]
    assert {tuple(labels.shape) for _, labels in batches} == {(2, LENGTH)}
    assert all(each.dtype == torch.int64 for inputs, labels in batches for each in (*inputs.values(), labels))


def test_infinite_loader_permutes_each_epoch_anew(loader_class, tokens):
    endless = build(loader_class, tokens, infinite=True)
    once = rows_of(build(loader_class, tokens))
    begun, found = iter(endless), []
    while len(found) < 3 * len(once):
        found += rows_of([next(begun)])
    parts = [found[at : at + len(once)] for at in range(0, len(found), len(once))]
    assert [sorted(each) for each in parts] == [sorted(once)] * 3
    assert parts[0] != parts[1] != parts[2]


def test_lanes_give_the_same_global_batches_on_one_two_and_three_ranks(loader_class, tokens):
    def steps(world):
        given = {"lanes": 6, "epochs": 2, "tail": "drop", "local_batch_size": 6 // world}
        made = [build(loader_class, tokens, rank, world, **given) for rank in range(world)]
        return [sorted(rows_of(each)) for each in zip(*made, strict=True)]

    assert steps(1) == steps(2) == steps(3)


def test_state_of_other_rows_is_refused(loader_class, tokens):
    state = build(loader_class, tokens).state_dict()
    with pytest.raises(ps.errors.StateMismatch):
        build(loader_class, tokens, pack="best-fit").load_state_dict(state)


def test_rows_that_fill_no_batch_are_refused_in_place_of_an_endless_search(loader_class, tokens):
    with pytest.raises(ValueError, match="must have rows for a batch on each rank"):
        build(loader_class, tokens, 0, 64, tail="drop", infinite=True)
