"""Saving in the background: what was there when it was asked for, and no failure lost."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading
from collections import deque
from typing import NamedTuple

import pytest
import torch

import penstock as ps
from penstock.checkpoint.run.background import Stage, staged_bytes
from penstock.errors import AlreadyExists, Forbidden, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match


class Pair(NamedTuple):
    left: torch.Tensor
    right: str


@pytest.fixture
def server():
    with FaultServer.start() as server:
        server.make("bucket")
        yield server


def test_what_is_saved_is_what_was_there_and_training_goes_on(server):
    run = ps.CheckpointManager("s3://bucket/run/", store=server.store)
    weights = torch.zeros(100_000)
    server.fail(FAULTS["stall"], when=Match(verb="put"))
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {"weights": weights})
        assert run.latest() is None, "the store stalls, and nobody here waits"
        weights.fill_(7)
        server.heal()
        checkpoints.save(2, {"weights": weights})
        weights.fill_(9)
    assert run.steps() == [1, 2]
    assert run.restore(1)["weights"].eq(0).all()
    assert run.restore(2)["weights"].eq(7).all()
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-checkpoint"]


def test_the_datas_position_is_that_of_the_call(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(9):
        (tmp_path / f"data/{number}").write_text(str(number))
    loader = ps.DataLoader(ps.MapDataset.from_prefix(f"{tmp_path}/data/", transform=ps.Sample.read), 2)
    run = ps.CheckpointManager(tmp_path / "run")
    batches = iter(loader)
    next(batches)
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {}, loader=loader)
        rest = list(batches)
    run.restore(loader=loader)
    assert list(loader) == rest


def test_a_failure_is_raised_at_the_next_call_once(server):
    run = ps.CheckpointManager("s3://bucket/run/", store=server.store)
    checkpoints = ps.AsyncCheckpointer(run)
    server.fail(FAULTS["denied"], when=Match(verb="put", times=None))
    checkpoints.save(1, {"weights": torch.zeros(10)})
    with pytest.raises(Forbidden):
        checkpoints.save(2, {})
    server.heal()
    checkpoints.save(3, {})
    checkpoints.wait()
    checkpoints.wait()
    assert run.steps() == [3]
    checkpoints.save(3, {})
    with pytest.raises(AlreadyExists):
        checkpoints.wait()


def test_leaving_a_block_by_an_error_keeps_that_error_and_notes_the_other(server):
    run = ps.CheckpointManager("s3://bucket/run/", store=server.store)
    server.fail(FAULTS["denied"], when=Match(verb="put", times=None))
    with pytest.raises(ZeroDivisionError) as caught, ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {})
        raise ZeroDivisionError
    assert "checkpoint under way failed" in caught.value.__notes__[0]
    with pytest.raises(Forbidden), ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {})


SCRIPT = """
import sys, torch, penstock as ps
checkpoints = ps.AsyncCheckpointer(ps.CheckpointManager(sys.argv[1]))
checkpoints.save(1, {"weights": torch.ones(3_000_000)})
"""


def test_the_process_ends_once_what_is_under_way_is_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ps.CheckpointManager(tmp_path).restore()["weights"].sum() == 3_000_000
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert "AlreadyExists" in done.stderr, "a failure that nobody was told is told at the end"


def test_no_failure_is_lost_of_several_and_of_ones_that_were_dropped(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, {})
    run.save(2, {})
    script = """
import sys, penstock as ps
for step in (1, 2):
    ps.AsyncCheckpointer(ps.CheckpointManager(sys.argv[1])).save(step, {})
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr.count("\npenstock.errors.AlreadyExists: ") == 2
    assert all(f"{step:012d}/checkpoint.json" in done.stderr for step in (1, 2))


def test_staging_copies_tensors_and_keeps_the_rest():
    tied = torch.rand(3, requires_grad=True)
    module = torch.nn.BatchNorm1d(3)
    state = {
        "tied": [tied, tied],
        "pair": Pair(torch.ones(2), "text"),
        "module": module.state_dict(),
        "counts": collections.defaultdict(int, {"a": 1}),
        "number": 3,
    }
    found = Stage().copy(state)
    assert torch.equal(found["tied"][0], tied)
    assert found["tied"][0] is found["tied"][1] is not tied
    assert not found["tied"][0].requires_grad
    assert isinstance(found["pair"], Pair)
    assert found["pair"].left is not state["pair"].left
    assert found["module"]._metadata == module.state_dict()._metadata
    assert found["counts"]["missing"] == 0
    assert found["number"] == 3
    assert staged_bytes(state) == 4 * (3 + 2 + 4 * 3) + 8


def test_the_next_copy_takes_the_memory_of_the_one_before():
    stage = Stage()
    first = {"a": torch.ones(1000), "b": torch.ones(3, 5).T, "c": torch.ones(1000), "d": torch.ones(1).expand(7)}
    memory = {stage.copy(first)[name].data_ptr() for name in "abc"}
    second = {name: tensor * 2 for name, tensor in first.items()} | {"e": torch.ones(1000)}
    found = stage.copy(second)
    assert all(torch.equal(found[name], second[name]) for name in second)
    places = [found[name].data_ptr() for name in "abce"]
    assert {places[0], places[2]} < memory
    assert len(set(places)) == 4, "none is taken twice"


def test_a_state_beyond_the_budget_is_refused_before_anything_is_sent(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    with ps.AsyncCheckpointer(run, staging_bytes=1000) as checkpoints, pytest.raises(Unusable, match="4,000 bytes"):
        checkpoints.save(1, {"weights": torch.zeros(1000)})
    assert run.latest() is None


def test_a_tensor_in_a_queue_is_copied_too(tmp_path):
    run, tensor = ps.CheckpointManager(tmp_path), torch.ones(3)
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {"queue": deque([tensor])})
        tensor.zero_()
    assert run.restore()["queue"][0].tolist() == [1, 1, 1]
