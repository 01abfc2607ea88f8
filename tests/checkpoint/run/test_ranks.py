"""A run's steps, saved by all ranks together: whole for any number of ranks, or an error on every one of them."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, OrderedDict, defaultdict
from copy import copy
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

import penstock as ps
from penstock.errors import CheckpointError, Unusable
from penstock.testing.faults import FAULTS, Match
from tests.checkpoint.run.nested import blank, difference, holds_tensors, state
from tests.edges.launch import ranks

TOGETHER = Path(__file__).with_name("together.py")
FULL = torch.arange(4000.0).reshape(100, 40)


def _told(count, verb, url, folder, **environment):
    ended = ranks(count, TOGETHER, verb, url, f"{folder}/data/", folder, **environment)
    assert ended.returncode == 0, ended.stdout
    return [json.loads((folder / f"{verb}-{rank}.json").read_text()) for rank in range(count)]


def _data(folder):
    (folder / "data").mkdir()
    for number in range(32):
        (folder / f"data/{number:02d}").write_text(str(number))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save on two ranks, once."""
    folder = tmp_path_factory.mktemp("together")
    _data(folder)
    return folder, _told(2, "save", folder / "run", folder)


def test_model_data_and_generators_come_back_on_every_rank_and_server(bucket, tmp_path):
    _data(tmp_path)
    where = bucket.server.environment
    before = _told(2, "save", f"{bucket.url}run", tmp_path, **where)
    assert _told(2, "load", f"{bucket.url}run", tmp_path, **where) == before
    assert ps.CheckpointManager(f"{bucket.url}run", store=bucket.store).steps() == [2, 3]


def test_other_rank_counts_continue_with_the_same_remaining_samples(saved):
    folder, before = saved
    (alone,) = _told(1, "load", folder / "run", folder)
    assert alone["drawn"] == before[0]["drawn"]
    rest = sorted(sum((each["rest"] for each in before), []))
    assert sorted(alone["rest"]) == rest
    assert len(rest) == 32 - 3 * 4
    four = _told(4, "load", folder / "run", folder)
    assert [each["drawn"] for each in four[:2]] == [each["drawn"] for each in before]
    assert sorted(sum((each["rest"] for each in four), [])) == rest


def test_single_process_restores_and_verifies_a_checkpoint_of_two_ranks(saved):
    folder, _ = saved
    run = ps.CheckpointManager(folder / "run")
    assert run.describe(3).objects == 3
    assert len(list(run.verify(3))) == 3
    with pytest.raises(Unusable, match="into="):
        run.restore()
    random.seed(5)
    into = {"model": {"weight": torch.zeros(100, 40), "bias": torch.zeros(3)}}
    run.restore(into=into)
    assert torch.equal(into["model"]["weight"], FULL + 3)


def test_values_that_the_state_lacks_are_restored_and_tensors_are_refused(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    run = ps.CheckpointManager(tmp_path).across(None)
    metrics = {"best": {"accuracy": 0.5}, "losses": [3, 2]}
    run.save(1, {"optimizer": optimizer.state_dict(), "metrics": metrics, "epoch": 7})
    fresh = torch.optim.Adam(model.parameters()).state_dict()
    with pytest.raises(Unusable, match=r"lacks 6 of the checkpoint's tensors, such as 'optimizer\.state\.0\.exp_avg'"):
        run.restore(into={"optimizer": fresh})
    into = {"optimizer": optimizer.state_dict(), "metrics": {"best": {}}}
    assert run.restore(into=into) is into
    assert into["metrics"] == metrics
    assert "epoch" not in into


def test_rank_failure_raises_on_all_ranks_and_restore_takes_superseding_step(saved, tmp_path):
    folder, _ = saved
    _data(tmp_path)
    assert [each["latest"] for each in _told(2, "fail", folder / "run", tmp_path)] == [3, 3]


def test_a_plain_distributed_checkpoint_in_a_steps_place_is_refused(tmp_path):
    from torch.distributed.checkpoint.state_dict_saver import save

    from penstock.checkpoint.dcp import StorageWriter

    with pytest.warns(UserWarning, match="disabled"):
        save({"a": torch.ones(2)}, storage_writer=StorageWriter(tmp_path / "000000000001"))
    with pytest.raises(CheckpointError, match="a dcp of step None"):
        ps.CheckpointManager(tmp_path).restore(1, into={})


class App:
    """As torch's tutorials have it: the objects themselves are in the state."""

    def __init__(self, rate, since):
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate)
        self.since = since

    def state_dict(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "since": self.since}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.since = state["since"]


class Marked(torch.Tensor):
    """Another library's: of it torch's distributed checkpoints write the elements."""


def test_stateful_objects_are_saved_and_restored_as_plain_values(alone, tmp_path):
    run = ps.CheckpointManager(tmp_path).across(alone)
    app, bare = App(np.float64(5e-4), date(2026, 1, 2)), torch.nn.Linear(3, 1)
    run.save(1, {"app": app, "bare": bare, "counts": defaultdict(App, {np.int64(2): Marked([2.0])})})
    into = {"app": App(1.0, None), "bare": torch.nn.Linear(3, 1), "counts": {"2": torch.zeros(1)}}
    given = dict(into)
    run.restore(into=into)
    assert (into["app"], into["bare"]) == (given["app"], given["bare"])
    assert torch.equal(into["app"].model.weight, app.model.weight)
    assert torch.equal(into["bare"].weight, bare.weight)
    rate = into["app"].optimizer.param_groups[0]["lr"]
    assert (type(rate), rate, into["app"].since) == (np.float64, 5e-4, date(2026, 1, 2))
    assert into["counts"] == {"2": torch.tensor([2.0])}
    app.since = [App]
    with pytest.raises(Unusable, match=r"state\['app'\]\['since'\]\[0\] is a builtins.type"):
        run.save(2, {"app": app})
    assert run.steps() == [1]


# Random states that ranks save: each value comes back equal and of its type, or the save refuses it by name.


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


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_names_and_tensors_that_ranks_cannot_save_are_refused_by_name(alone, tmp_path):
    run = ps.CheckpointManager(tmp_path).across(alone)
    mesh = init_device_mesh("cpu", (1,))
    for state_, message in (
        ({"a": {0: torch.ones(1), "0": torch.ones(1)}}, r"state\['a'\]\['0'\] cannot be saved: .* 'a\.0'"),
        ({"a.b": 1, "a": {"b": 2}}, r"state\['a'\]\['b'\] cannot be saved"),
        ({"a": (distribute_tensor(torch.ones(1), mesh, [Replicate()]),)}, r"state\['a'\] holds a tensor .* sharded"),
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
        ({"b": {"n": torch.zeros(2), "t": torch.zeros(2)}}, r"tensor 'b\.n', but the checkpoint has no tensor"),
        ({"b": {"t": torch.zeros(2), "m": 1}}, r"into\['b'\] has the key 'm', which the checkpoint lacks"),
        ({"d": 1}, "the checkpoint has no 'd'"),
    ):
        with pytest.raises(Unusable, match=message):
            run.restore(into=into)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("fault", ["denied", "503"])
def test_a_manifest_that_cannot_be_read_raises_the_store_s_error_on_a_restore(alone, server, fault, nth):
    store = replace(server.store, retry=ps.RetryOptions(attempts=2))
    run = ps.CheckpointManager("s3://bucket/run", store=store).across(alone)
    run.save(1, {"a": torch.ones(2)})
    server.fail(FAULTS[fault], when=Match(key="run/000000000001/checkpoint.json", nth=nth, times=None))
    with pytest.raises(ps.errors.Denied if fault == "denied" else ps.errors.Transient):
        run.restore(1, into={"a": torch.zeros(2)})


def main() -> None:
    """Carry random states on each of several ranks."""
    torch.distributed.init_process_group("gloo")
    run = ps.CheckpointManager(sys.argv[1], keep_last=1).across(torch.distributed.group.WORLD)
    assert differences(run, range(int(sys.argv[2]), int(sys.argv[2]) + 25)) == []
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
