"""Saving in the background: what was there when it was asked for, and no failure lost."""

from __future__ import annotations

import signal
import threading
from collections import deque
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.run.background import BackgroundJob
from penstock.errors import AlreadyExists, Forbidden, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.edges.launch import program


@pytest.fixture
def server():
    with FaultServer.start() as server:
        server.make("bucket")
        yield server


def test_async_save_keeps_values_of_the_call_while_training_continues(server):
    store = replace(server.store, transport=ps.TransportOptions(stall_timeout_s=1))
    run = ps.CheckpointManager("s3://bucket/run/", store=store)
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
    assert "running save failed" in caught.value.__notes__[0]
    with pytest.raises(Forbidden), ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {})


SCRIPT = """
import sys, torch, penstock as ps
checkpoints = ps.AsyncCheckpointer(ps.CheckpointManager(sys.argv[1]))
checkpoints.save(1, {"weights": torch.ones(3_000_000)})
"""


def _program(text, folder):
    """Run a program on a run in ``folder``."""
    (folder / "program.py").write_text(text)
    return program(folder / "program.py", folder / "run", limit_s=100)


def test_process_exits_after_pending_saves_and_reports_unseen_failures(tmp_path):
    done = _program(SCRIPT, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert ps.CheckpointManager(tmp_path / "run").restore()["weights"].sum() == 3_000_000
    done = _program(SCRIPT, tmp_path)
    assert "AlreadyExists" in done.stdout, "a failure that nobody was told is told at the end"


def test_no_failure_is_lost_of_several_and_of_ones_that_were_dropped(tmp_path):
    run = ps.CheckpointManager(tmp_path / "run")
    run.save(1, {})
    run.save(2, {})
    script = """
import sys, penstock as ps
for step in (1, 2):
    ps.AsyncCheckpointer(ps.CheckpointManager(sys.argv[1])).save(step, {})
"""
    done = _program(script, tmp_path)
    assert done.stdout.count("\npenstock.errors.AlreadyExists: ") == 2
    assert all(f"{step:012d}/checkpoint.json" in done.stdout for step in (1, 2))


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


class Cursor:
    """A loader whose state holds the very objects that it goes on changing."""

    def __init__(self):
        self.seen = [1, 2]

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_every_kind_of_value_is_saved_as_it_was_at_the_call(server):
    store = replace(server.store, transport=ps.TransportOptions(stall_timeout_s=1))
    run = ps.CheckpointManager("s3://bucket/run/", store=store)
    loader, loss = Cursor(), torch.tensor(0.5)
    state = {"seen": {1, 2}, "log": bytearray(b"ab"), "array": np.zeros(3), "recent": deque([1])}
    for step, weights_only in enumerate((True, False), 1):
        before = deepcopy(state)
        server.fail(FAULTS["stall"], when=Match(verb="head", times=None))  # the look that comes before the data
        with ps.AsyncCheckpointer(run) as checkpoints:
            checkpoints.save(step, state, loader=loader, metric=loss, weights_only=weights_only)
            state["seen"].add(3 * step)
            state["log"].extend(b"c")
            state["array"].fill(step)
            state["recent"].append(step)
            loader.seen.append(3 * step)
            loss.fill_(step)
            server.heal()
        assert repr(run.restore(step, weights_only=weights_only)) == repr(before)
    again = Cursor()
    assert [run.restore(step, loader=again, weights_only=False) and again.seen for step in (1, 2)] == [
        [1, 2],
        [1, 2, 3],
    ]
    assert [run.describe(step).metric for step in (1, 2)] == [0.5, 1.0]


def test_wrong_step_or_metric_is_refused_at_the_call(tmp_path):
    checkpoints = ps.AsyncCheckpointer(ps.CheckpointManager(tmp_path))
    with pytest.raises(Unusable, match="step must be"):
        checkpoints.save("7", {})
    with pytest.raises(Unusable, match="metric must be"):
        checkpoints.save(7, {}, metric=[1, 2])
    with pytest.raises(Unusable, match="staging_bytes must be"):
        ps.AsyncCheckpointer(ps.CheckpointManager(tmp_path), staging_bytes="1 GiB")
    checkpoints.wait()


def test_tied_weights_take_the_space_of_one(tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(500, 100), torch.nn.Linear(100, 500, bias=False))
    model[1].weight = model[0].weight
    run = ps.CheckpointManager(tmp_path)
    with ps.AsyncCheckpointer(run, staging_bytes=4 * 500 * 100) as checkpoints:
        checkpoints.save(1, model.state_dict())
    assert run.describe(1).size < 1.5 * 4 * 500 * 100
    found = run.restore()
    assert found["0.weight"].data_ptr() == found["1.weight"].data_ptr()
    assert torch.equal(found["0.weight"], model[0].weight)


def test_jobs_run_in_order_and_one_after_a_failed_one_fails_like_it_and_does_nothing():
    gate, done = threading.Event(), []
    first = BackgroundJob(lambda: gate.wait(60) and done.append(1))
    second = BackgroundJob(lambda: done.append(2) or 1 / 0, after=first)
    third = BackgroundJob(lambda: done.append(3), after=second)
    assert not third.complete
    gate.set()
    first.wait()
    for failed in (third, second, third):
        with pytest.raises(ZeroDivisionError):
            failed.wait()
    assert done == [1, 2]
    assert all(job.complete for job in (first, second, third))


def test_ctrl_c_ends_the_wait_for_a_job_and_not_the_job():
    gate, main = threading.Event(), threading.main_thread()
    job = BackgroundJob(lambda: gate.wait(60))
    threading.Timer(0.1, signal.pthread_kill, (main.ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        job.wait()
    assert not job.complete
    gate.set()
    job.wait()


def test_an_array_may_change_once_save_has_returned(tmp_path):
    run, array = ps.CheckpointManager(tmp_path), np.ones(10_000)
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, {"array": array}, loader=Position(array))
        array[:] = 7
    loader = Position(None)
    assert run.restore(1, loader=loader)["array"].tolist() == [1.0] * 10_000
    assert loader.array.tolist() == [1.0] * 10_000


class Position:
    def __init__(self, array):
        self.array = array

    def state_dict(self):
        return {"array": self.array}

    def load_state_dict(self, state):
        self.array = state["array"]


def test_async_checkpointer_refuses_a_url_instead_of_a_manager(tmp_path):
    with pytest.raises(Unusable, match=r"got a str; write AsyncCheckpointer\(CheckpointManager\(url\)\)"):
        ps.AsyncCheckpointer(str(tmp_path))
