"""Random states that ranks save: each value comes back equal and of its type, or the save refuses it by name."""

from __future__ import annotations

import random
import sys
from collections import Counter, OrderedDict
from copy import copy
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

import penstock as ps
from penstock.errors import Unusable
from tests.checkpoint.run.nested import blank, difference, holds_tensors, state
from tests.edges.launch import ranks

HERE = Path(__file__)


def carry(run, seed):
    """Save a random state, restore it into another, and return what differs; nothing if it was refused by name."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    saved = state(draw)
    try:
        run.save(seed, saved)
    except Unusable as error:
        return "" if "state" in str(error) else f"seed {seed}: {error}"
    into = {key: blank(each, draw) for key, each in saved.items() if holds_tensors(each) or draw.random() < 0.8}
    given = dict(into)
    try:
        found = run.restore(seed, into=into)
    # Into a tuple of another length, for example.
    except Unusable as error:
        return "" if "into" in str(error) else f"seed {seed}: {error}"
    assert all(found[key] is each for key, each in given.items() if isinstance(each, torch.Tensor))
    # Top-level keys without a place are left out.
    return difference(found, {key: saved[key] for key in given}, f"seed {seed}: ", filled=True)


def differences(run, seeds):
    return [found for seed in seeds if (found := carry(run, seed))]


@pytest.fixture
def alone():
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def test_random_states_of_one_process_come_back_equal_or_are_refused(seed, tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=1)
    assert differences(run, range(seed, seed + 100)) == []


def test_restore_without_into_returns_equal_values_of_the_same_types(seed, tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=1)
    for each in range(seed, seed + 100):
        saved = state(random.Random(each))
        run.save(each, saved)
        assert difference(run.restore(each), saved) == ""


def test_random_states_of_a_group_come_back_equal_or_are_refused(alone, seed, tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=1).across(alone)
    assert differences(run, range(seed, seed + 40)) == []


def test_random_states_of_two_ranks_come_back_equal_or_are_refused(seed, tmp_path):
    ended = ranks(2, HERE, str(tmp_path), str(seed))
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({0: {"step": 7}, 1: {"step": 8}}, {0: {"step": 1}, 1: {"step": 1}}),
        ({0: {"step": 7, "m": torch.ones(2)}, 1: 3}, {0: {"step": 1, "m": torch.zeros(2)}}),
        (Counter({30: 1, 80: 1}), {}),
        ([1, {}], None),
        ({"a": {}, "b": [], "c": OrderedDict()}, {}),
        ([{"lr": 0.5, "params": [0]}], [{"lr": 0.1, "params": [0]}, {"lr": 0.1, "params": [1]}]),
        ((1, [torch.ones(2)]), (0, [torch.zeros(2)])),
    ],
    ids=repr,
)
def test_values_below_other_keys_and_in_other_containers_are_restored(alone, tmp_path, value, place):
    for run in (ps.CheckpointManager(tmp_path), ps.CheckpointManager(tmp_path).across(alone)):
        run.save(1, {"top": value}, overwrite=True)
        into = {"top": copy(place)}
        assert difference(run.restore(into=into), {"top": value}, filled=True) == ""


def test_names_and_tensors_that_ranks_cannot_save_are_refused_by_name(alone, tmp_path):
    run = ps.CheckpointManager(tmp_path).across(alone)
    mesh = init_device_mesh("cpu", (1,))
    for state_, message in (
        ({"a": {0: torch.ones(1), "0": torch.ones(1)}}, r"state\['a'\]\['0'\] cannot be saved: .* 'a\.0'"),
        ({"a.b": 1, "a": {"b": 2}}, r"state\['a'\]\['b'\] cannot be saved"),
        ({"a": (distribute_tensor(torch.ones(1), mesh, [Replicate()]),)}, r"state\['a'\] holds a tensor .* spread"),
        ({"a": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])}, r"state\['a'\] is nested"),
        ({"a": [1, {"b": {2: object()}}]}, r"state\['a'\]\[1\]\['b'\]\[2\] is a builtins.object"),
    ):
        with pytest.raises(Unusable, match=message):
            run.save(1, state_)
    assert run.steps() == []


def test_places_that_do_not_fit_are_refused_by_name(alone, tmp_path):
    run = ps.CheckpointManager(tmp_path).across(alone)
    run.save(1, {"a": torch.ones(2), "b": {"n": 1, "t": torch.ones(2)}, "c": torch.tensor([0.5])})
    for into, message in (
        ({"a": torch.zeros(3)}, r"'a' of the shape \(3,\), and the checkpoint's is \(2,\)"),
        ({"a": torch.zeros(1).expand(2)}, "'a', which has several elements in one place"),
        ({"a": torch.zeros(2).to_sparse()}, "'a' of another form"),
        ({"c": torch.zeros(1, dtype=torch.int64)}, r"'c', which has the dtype torch\.int64"),
        ({"a": 5}, "lacks 1 of the checkpoint's tensors"),
        ({"b": {"n": torch.zeros(2), "t": torch.zeros(2)}}, r"tensor 'b\.n', and the checkpoint has none"),
        ({"b": {"t": torch.zeros(2), "m": 1}}, r"into\['b'\] has the key 'm', which the checkpoint lacks"),
        ({"d": 1}, "the checkpoint has no 'd'"),
    ):
        with pytest.raises(Unusable, match=message):
            run.restore(into=into)


def main() -> None:
    """Carry random states on each of several ranks."""
    torch.distributed.init_process_group("gloo")
    run = ps.CheckpointManager(sys.argv[1], keep_last=1).across(torch.distributed.group.WORLD)
    assert differences(run, range(int(sys.argv[2]), int(sys.argv[2]) + 25)) == []
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
