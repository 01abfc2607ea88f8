"""The checkpoints of a run: what is restored was saved, all of it together, whatever interrupted later saves."""

from __future__ import annotations

import io
import math
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.commit import Saving
from penstock.checkpoint.run.steps import Retention, checked_metric, generator_states, set_generator_states
from penstock.checkpoint.run.store import checked_step
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    ChecksumMismatch,
    NotFound,
    PenstockError,
    StateMismatch,
    Truncated,
    Unusable,
)
from penstock.testing.faults import FAULTS, Match
from tests.amounts import SOAK
from tests.checkpoint.run.saver import manager, objects, same, state

# In all, over runs beside one another: each waits as much as it works.
KILLS, FEW, RUNS = 1000 if SOAK else 100, 20, 2
# Other dialects, and stores that ignore conditions or refuse them: few kills in the suite, as many in the soak.
ELSEWHERE = ("gcs-keys", "oss", "azure-key", "s3-careless", "s3-unable")


def test_saved_steps_are_restored_on_every_store(bucket):
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    assert (run.latest(), run.steps()) == (None, [])
    with pytest.raises(NotFound, match="no committed checkpoint"):
        run.restore()
    for step in (5, 100, 20):
        run.save(step, state(step))
    assert (run.latest(), run.steps()) == (100, [5, 20, 100])
    same(run.restore(), state(100))
    same(run.restore(5), state(5))
    assert [url.rpartition("/")[2] for url in run.verify(20)] == ["state.pt"]
    with pytest.raises(NotFound):
        run.restore(6)
    with pytest.raises(AlreadyExists):
        run.save(20, state(7))
    same(run.restore(20), state(20))
    with pytest.raises(NotFound, match="000000000006"):
        run.delete(5, 6)
    run.delete(100, 100)
    assert run.steps() == [5, 20]
    run.delete(5, 20)
    assert not list(ps.list(f"{bucket.url}run", store=bucket.store))


def test_the_datas_position_and_the_generators_come_back_with_the_model(tmp_path):
    for number in range(20):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{number:02d}").write_text(str(number))

    def loader():
        dataset = ps.IterableDataset.from_prefix(f"{tmp_path}/data/", transform=ps.Sample.read, shuffle=True)
        return ps.DataLoader(dataset, 3, collate_fn=list)

    def draws():
        return random.random(), np.random.random(), torch.rand(2).tolist()  # noqa: NPY002

    run, data = ps.CheckpointManager(tmp_path / "run"), loader()
    batches = iter(data)
    received = [next(batches) for _ in range(4)]
    run.save(4, {"step": 4}, loader=data)
    drawn, rest = draws(), list(batches)
    other = loader()
    assert run.restore(loader=other) == {"step": 4}
    assert draws() == drawn
    assert list(other) == rest
    assert sorted(sum(received + rest, [])) == sorted(str(number).encode() for number in range(20))
    run.save(5, {"step": 5})
    with pytest.raises(CheckpointError, match="no position in the data"):
        run.restore(loader=other)


def test_restore_passes_on_what_the_loader_may_accept(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(12):
        (tmp_path / f"data/{number:02d}").write_text(str(number))

    def loader(batch_size):
        return ps.DataLoader(ps.MapDataset.from_prefix(f"{tmp_path}/data/"), batch_size, collate_fn=list)

    run, data = ps.CheckpointManager(tmp_path / "run"), loader(2)
    first = next(batches := iter(data))
    run.save(1, {}, loader=data)
    with pytest.raises(StateMismatch, match="global batch"):
        run.restore(loader=loader(5))
    run.restore(loader=(other := loader(5)), allow_new_global_batch=True)
    assert [sample.key for batch in other for sample in batch] == [sample.key for batch in batches for sample in batch]
    assert len(first) == 2
    with pytest.raises(Unusable, match="new_weights= is for the loader"):
        run.restore(new_weights=True)
    with pytest.raises(Unusable, match="allow_rereads must be True or False"):
        run.restore(loader=other, allow_rereads="no")


def test_superseded_steps_go_and_nothing_else_does(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=2, keep_every=30, keep_best=1)
    (tmp_path / "notes.txt").write_text("mine")
    for step, metric in ((10, 0.1), (20, 0.5), (30, 0.9), (40, None), (50, 0.4), (60, 0.3), (70, 0.2)):
        run.save(step, {"step": step}, metric=metric)
    assert run.steps() == [10, 30, 60, 70]
    assert len(objects(tmp_path)) == 2 * 4 + 2, "a manifest and its object for each, the index, the notes"


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone", "swap", "manifest", "manifest gone", "other step"])
def test_damage_is_found_and_named(tmp_path, damage):
    run = ps.CheckpointManager(tmp_path)
    for step in (1, 2):
        run.save(step, state(step))
    (data,) = (tmp_path / "000000000002").glob("*/state.pt")
    (other,) = (tmp_path / "000000000001").glob("*/state.pt")
    manifest = tmp_path / "000000000002/checkpoint.json"
    body = bytearray(data.read_bytes())
    expected, named = ChecksumMismatch, data
    if damage == "flip":
        body[len(body) // 2] ^= 4
        data.write_bytes(body)
    elif damage in ("cut", "grow"):
        data.write_bytes(body[:-1] if damage == "cut" else body + b"\0")
        expected = Truncated
    elif damage == "gone":
        data.unlink()
        expected = NotFound
    elif damage == "swap":
        data.write_bytes(other.read_bytes())
    elif damage == "manifest":
        text = bytearray(manifest.read_bytes())
        text[len(text) // 2] ^= 1
        manifest.write_bytes(text)
        expected, named = CheckpointError, manifest
    elif damage == "manifest gone":
        manifest.unlink()
        same(run.restore(), state(1))
        expected, named = NotFound, manifest
    else:
        manifest.write_bytes((tmp_path / "000000000001/checkpoint.json").read_bytes())
        expected, named = CheckpointError, manifest.parent
    with pytest.raises(expected, match=str(named)):
        run.restore(2)
    if damage != "other step":  # its objects are missed, under their other names
        with pytest.raises(expected, match=str(named)):
            list(run.verify(2))
    same(run.restore(1), state(1))


def test_an_older_step_that_is_saved_again_stays_until_the_next_save(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=1)
    plain = ps.CheckpointManager(tmp_path)
    plain.save(20, {"from": "before"})
    plain.save(30, {"from": "before"})
    run.save(20, {"from": "again"}, overwrite=True)
    assert run.steps() == [20, 30]
    assert run.restore(20) == {"from": "again"}
    run.save(40, {})
    assert run.steps() == [40]


@pytest.mark.parametrize("wrong", [{"keep_last": 0}, {"keep_best": 1, "mode": "least"}])
def test_invalid_retention_options_and_negative_step_are_refused(tmp_path, wrong):
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path, **wrong)
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path).save(-1, {})


@pytest.mark.parametrize("times", [1, None], ids=["once", "from then on"])
def test_each_request_of_a_save_is_refused_in_turn_and_the_older_step_stands(server, times):
    run = manager("s3://bucket/run/")
    run.save(1, state(1))
    newest, failed = 1, 0
    for number in range(1, 100):
        server.fail(FAULTS["denied"], when=Match(nth=number, times=times))
        try:
            run.save(number + 1, state(number + 1))
            ended = True
        except PenstockError:
            ended = False
            failed += 1
        server.heal()
        latest = run.latest()
        assert latest in ((number + 1,) if ended else (newest, number + 1)), "what failed after the commit is committed"
        newest = latest
        same(run.restore(), state(newest))
        if ended:
            break
    assert failed >= 8, "a look, an upload of some parts and its look, and the manifest's three"
    assert manager("s3://bucket/run/").clean(older_than_s=-5)
    assert manager("s3://bucket/run/").clean(older_than_s=-5) == []
    same(run.restore(), state(newest))
    assert server.uploads("bucket") == []


@pytest.mark.parametrize(
    ("server", "times"),
    [
        ("s3", KILLS),
        *((name, FEW) for name in ELSEWHERE),
        *(pytest.param(name, KILLS, marks=pytest.mark.slow) for name in ELSEWHERE),
    ],
    indirect=["server"],
)
def test_kill_9_at_any_moment_leaves_the_newest_whole_step_and_cleaning_leaves_no_orphan(server, times, savers, seed):
    """Each store commits on its own condition; one that heeds none is safe for a single writer, as the manual says."""
    kills, url = times // RUNS, f"{server.scheme}://bucket/run"
    with ThreadPoolExecutor(RUNS) as pool:
        runs = [
            pool.submit(_killed, server, f"{url}{number}/", savers[number], kills, seed + number)
            for number in range(RUNS)
        ]
        killed = [run.result() for run in runs]
    assert sum(killed) >= RUNS * kills // 3
    manifests = {key for key in server.objects("bucket") if key.endswith("checkpoint.json")}
    assert len(server.objects("bucket")) == 2 * len(manifests) + RUNS, "for each step a manifest and its object"
    if server.scheme != "az":  # blocks that belong to no blob go by themselves, and cannot be listed
        assert server.uploads("bucket") == []


@pytest.fixture(scope="module")
def savers():
    """Start the processes that fork savers, once: each imports torch."""
    pipe, command = subprocess.PIPE, [sys.executable, "-c", "from tests.checkpoint.run.saver import serve; serve()"]
    with ExitStack() as running:
        parents = [
            running.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)) for _ in range(RUNS)
        ]
        yield parents
        for parent in parents:
            parent.stdin.close()


def _killed(server, url, parent, kills, seed):
    """Save step after step into one run, and have most of these saves killed; returns how many were, and cleans."""
    rng, run = random.Random(seed), manager(url)

    def save(step, seconds=0.0):
        parent.stdin.write(f"{server.settings.dialect},{server.endpoint},{url} {step} {seconds}\n")
        parent.stdin.flush()
        return int(parent.stdout.readline())

    took = deque(maxlen=5)  # the latest: the machine may become quicker while this runs
    for step in range(1, 6):
        began = time.monotonic()
        assert save(step) == 0
        took.append(time.monotonic() - began)
    newest, killed = 5, 0
    for step in range(6, 6 + kills * 10 // 9):  # all others are to be killed
        began = time.monotonic()
        alone = step % 10 == 0  # such a step is saved in peace: even of few some are committed
        status = save(step, 0.0 if alone else rng.uniform(0.001, 1.2 * statistics.median(took)))
        assert status == 0 or not alone
        if status == 0:
            took.append(time.monotonic() - began)
        killed += status != 0
        latest = run.latest()
        assert latest == step or (status != 0 and latest == newest)
        newest = latest
        same(run.restore(), state(newest))
    assert newest > 5, "some were killed after their commit, or not at all"
    run.clean(older_than_s=-5)
    same(run.restore(), state(newest))
    return killed


def test_loser_of_a_step_race_leaves_no_objects(tmp_path, monkeypatch):
    first, second = (ps.CheckpointManager(tmp_path) for _ in range(2))
    refuse_existing = Saving.refuse_existing

    def raced(saving):
        refuse_existing(saving)
        monkeypatch.setattr(Saving, "refuse_existing", refuse_existing)
        second.save(1, {"by": "second"})

    monkeypatch.setattr(Saving, "refuse_existing", raced)
    with pytest.raises(AlreadyExists):
        first.save(1, {"by": "first"})
    assert len(objects(tmp_path)) == 2
    assert first.restore() == {"by": "second"}


class Position:
    """A loader whose position is told as NumPy has it."""

    def __init__(self, state=None):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Custom:
    """Something that only code can make."""


def test_numpy_and_python_values_are_restored_with_weights_only(tmp_path):
    position = {"at": np.int64(3), "order": np.arange(5), "drawn": np.random.RandomState(1).get_state()}
    state = {"best": np.float32(0.5), "path": Path("/a"), "weights": torch.ones(2)}
    run, taken = ps.CheckpointManager(tmp_path), Position()
    run.save(1, state, loader=Position(position))
    assert repr(run.restore(loader=taken)) == repr(state)
    assert repr(taken.state) == repr(position)
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(2, state)
    assert repr(run.restore()) == repr(state)


def test_state_that_weights_only_cannot_restore_is_refused_on_save(tmp_path):
    run, odd = ps.CheckpointManager(tmp_path), {"x": [0, Custom()]}
    with ps.AsyncCheckpointer(run) as behind:
        for saver in (run, behind, run.across(None)):
            with pytest.raises(Unusable, match=r"state\['x'\]\[1\] is a .*Custom.*weights_only=False"):
                saver.save(1, odd)
            with pytest.raises(Unusable, match=r"loader\['x'\]\[1\] is a .*Custom"):
                saver.save(1, {}, loader=Position(odd))
    assert list(tmp_path.iterdir()) == []
    run.save(1, odd, weights_only=False)
    assert isinstance(run.restore(weights_only=False)["x"][1], Custom)


def test_a_position_that_is_more_than_weights_does_not_hide_the_state_that_ranks_saved(tmp_path):
    run, into = ps.CheckpointManager(tmp_path).across(None), {"a": torch.zeros(2)}
    run.save(1, {"a": torch.ones(2)}, loader=Position({"x": Custom()}), weights_only=False)
    with pytest.warns(UserWarning, match="are not restored"):
        assert run.restore(into=into)["a"].tolist() == [1, 1]
    with pytest.raises(Unusable, match="data's position is more than weights"):
        run.restore(into=into, loader=Position())
    taken = Position()
    run.restore(into=into, loader=taken, weights_only=False)
    assert isinstance(taken.state["x"], Custom)


@pytest.mark.parametrize("name", ["overwrite", "weights_only"])
def test_a_switch_given_as_text_is_refused_before_anything_is_sent(tmp_path, name):
    run = ps.CheckpointManager(tmp_path)
    saver = ps.AsyncCheckpointer(run)
    wrong = {name: "no"}
    for refused in (
        lambda: run.save(1, {"n": 1}, **wrong),
        lambda: saver.save(1, {"n": 1}, **wrong),
        lambda: run.restore(**wrong) if name == "weights_only" else run.save_folder(1, tmp_path, **wrong),
    ):
        with pytest.raises(Unusable, match=f"{name} must be True or False"):
            refused()
    saver.wait()
    assert run.steps() == []


# Which steps go: never the newest, never one that anything keeps.


_steps = st.dictionaries(st.integers(0, 500), st.none() | st.floats(), max_size=30)
_number = st.none() | st.integers(1, 8)


@given(_steps, _number, _number, _number, st.sampled_from(["min", "max"]))
def test_superseded_steps_never_include_steps_that_a_rule_keeps(steps, last, every, best, mode):
    gone = Retention(last=last, every=every, best=best, mode=mode).superseded(steps)
    assert gone == sorted(set(gone))
    assert set(gone) <= set(steps)
    kept = sorted(steps.keys() - set(gone))
    if steps:
        assert max(steps) in kept
    if (last, every, best) == (None, None, None):
        assert gone == []
    if last:
        assert kept[-last:] == sorted(steps)[-last:]
    if every:
        assert all(step % every for step in gone)
    if best:
        better = min if mode == "min" else max
        measured = {step: metric for step, metric in steps.items() if metric is not None and not math.isnan(metric)}
        if measured:
            assert any(steps[step] == better(measured.values()) for step in kept if step in measured)
            assert sum(step in measured for step in kept) >= min(best, len(measured))


def test_an_example_to_read():
    steps = {10: 0.5, 20: 0.1, 30: 0.4, 40: None, 50: math.nan, 60: 0.3}
    assert Retention(last=2).superseded(steps) == [10, 20, 30, 40]
    assert Retention(every=20).superseded(steps) == [10, 30, 50]
    assert Retention(best=1).superseded(steps) == [10, 30, 40, 50]
    assert Retention(best=1, mode="max").superseded(steps) == [20, 30, 40, 50]
    assert Retention(last=1, every=50, best=2).superseded(steps) == [10, 30, 40]
    assert Retention().superseded(steps) == []


def test_a_save_never_deletes_its_own_step_though_newer_ones_stand():
    steps = {10: 0.5, 20: 0.9, 30: 0.4}
    assert Retention(last=1).superseded(steps, saved=20) == [10]
    assert Retention(best=1).superseded(steps, saved=20) == [10]
    assert Retention(last=1).superseded(steps | {40: 0.3}, saved=40) == [10, 20, 30]


@pytest.mark.parametrize("wrong", [{"last": 0}, {"every": 0}, {"best": -1}, {"mode": "least"}])
def test_invalid_retention_rule_is_refused(wrong):
    with pytest.raises(Unusable):
        Retention(**wrong)


# The random generators of a training stand again where they stood, by way of a file without code.


def _draws():
    return random.random(), np.random.random(3).tolist(), np.random.normal(), torch.rand(3).tolist()  # noqa: NPY002


def test_every_random_generator_repeats_its_draws_after_restore():
    _draws()  # numpy keeps one normal number for later: also that comes back
    states = generator_states()
    first = _draws()
    assert _draws() != first
    set_generator_states(states)
    assert _draws() == first


def test_states_come_back_from_a_file_with_weights_only():
    states, file = generator_states(), io.BytesIO()
    first = _draws()
    torch.save(states, file)
    file.seek(0)
    set_generator_states(torch.load(file, weights_only=True))
    assert _draws() == first


def test_to_look_at_the_generators_draws_from_none():
    states = generator_states()
    generator_states()
    first = _draws()
    set_generator_states(states)
    assert _draws() == first


def test_generators_resume_whatever_device_the_state_is_restored_to(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, {"weight": torch.ones(2)})
    first = _draws()
    assert run.restore(map_location="meta")["weight"].is_meta
    assert _draws() == first


# A step is a whole number and a metric is one number, of whatever kind; anything else is refused by its type.


@pytest.mark.parametrize("step", [7, np.int64(7), torch.tensor(7)], ids=["int", "numpy", "torch"])
def test_any_whole_number_is_a_step(step):
    assert (checked_step(step), type(checked_step(step))) == (7, int)


@pytest.mark.parametrize("step", [7.0, "7", None, -1, 10**18], ids=repr)
def test_nothing_else_is_a_step(step):
    with pytest.raises(Unusable, match="step must be"):
        checked_step(step)


@pytest.mark.parametrize("metric", [0.5, np.float32(0.5), torch.tensor([0.5])], ids=["float", "numpy", "torch"])
def test_any_one_number_is_a_metric(metric):
    assert (checked_metric(metric), type(checked_metric(metric))) == (0.5, float)
    assert checked_metric(None) is None


@pytest.mark.parametrize("metric", ["low", [0.5, 1], torch.ones(2)], ids=["text", "list", "torch"])
def test_nothing_else_is_a_metric(metric):
    with pytest.raises(Unusable, match="metric must be one number, got a"):
        checked_metric(metric)


@pytest.mark.parametrize("name", ["keep_last", "keep_every", "keep_best"])
@pytest.mark.parametrize("number", [0, -1, 2.5, float("nan"), True, "2", [2]], ids=repr)
def test_a_retention_rule_must_be_a_whole_number(tmp_path, name, number):
    with pytest.raises(Unusable, match=f"{name} must be"):
        ps.CheckpointManager(tmp_path, **{name: number})


@pytest.mark.parametrize("number", [-1, 2.5, True, "1 GiB"], ids=repr)
def test_staging_memory_must_be_a_number_of_bytes(tmp_path, number):
    with pytest.raises(Unusable, match="staging_bytes must be"):
        ps.AsyncCheckpointer(ps.CheckpointManager(tmp_path), staging_bytes=number)
