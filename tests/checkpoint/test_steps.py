"""The checkpoints of a run: what is restored was saved, all of it together, whatever interrupted later saves."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    ChecksumMismatch,
    NotFound,
    PenstockError,
    Truncated,
    Unusable,
)
from penstock.protocols.driver import Attributes
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.checkpoint.saver import manager, state
from tests.faults.cases import PART_BYTES

# In all, over runs beside one another: each waits as much as it works. Read before the environment is made clean.
KILLS, RUNS = 1000 if os.environ.get("PENSTOCK_SOAK") == "1" else 200, 2
LATENCY_MS = 1  # so that a saver waits for the store about as much as it works, as savers do


def same(found, expected):
    assert found["step"] == expected["step"]
    assert all(torch.equal(*pair) for pair in zip(found["weights"], expected["weights"], strict=True))


def _objects(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_saved_is_restored_on_every_store(bucket):
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    assert (run.latest(), run.steps()) == (None, [])
    with pytest.raises(NotFound, match="no checkpoint is committed"):
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
    run.delete(100)
    assert run.steps() == [5, 20]


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
    with pytest.raises(CheckpointError, match="without the data's position"):
        run.restore(loader=other)


def test_superseded_steps_go_and_nothing_else_does(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=2, keep_every=30, keep_best=1)
    (tmp_path / "notes.txt").write_text("mine")
    for step, metric in ((10, 0.1), (20, 0.5), (30, 0.9), (40, None), (50, 0.4), (60, 0.3), (70, 0.2)):
        run.save(step, {"step": step}, metric=metric)
    assert run.steps() == [10, 30, 60, 70]
    assert len(_objects(tmp_path)) == 2 * 4 + 1


def test_orphans_go_once_they_are_old_by_the_stores_clock_and_not_before(bucket):
    run = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    run.save(1, state(1))
    orphans = [f"{bucket.url}run/{folder}/{'ab' * 16}/state.pt" for folder in ("000000000001", "000000000009")]
    theirs = f"{bucket.url}run/readme/notes.txt"
    for url in (*orphans, theirs):
        with ps.open(url, "wb", store=bucket.store) as file:
            file.write(b"half")
    assert run.clean(older_than_s=3600) == []
    assert run.clean(older_than_s=-5) == orphans
    same(run.restore(), state(1))
    assert [each.url for each in ps.list(f"{bucket.url}run/readme/", store=bucket.store)] == [theirs]
    fresh = ps.CheckpointManager(f"{bucket.url}run", store=bucket.store)
    assert fresh.clean(older_than_s=-5) == []
    same(fresh.restore(), state(1))


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


@pytest.mark.parametrize("wrong", [{"keep_last": 0}, {"keep_best": 1, "mode": "least"}])
def test_what_cannot_be_is_refused(tmp_path, wrong):
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path, **wrong)
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path).save(-1, {})


@pytest.fixture
def server(monkeypatch):
    with FaultServer.start(Settings(least_part_bytes=PART_BYTES, latency_ms=LATENCY_MS)) as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


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


def test_kill_9_at_any_moment_leaves_the_newest_whole_step_and_cleaning_leaves_no_orphan(server, seed):
    kills = KILLS // RUNS
    with ThreadPoolExecutor(RUNS) as pool:
        killed = list(pool.map(lambda number: _killed(f"s3://bucket/run{number}/", kills, seed + number), range(RUNS)))
    assert sum(killed) >= RUNS * kills // 3
    manifests = {key for key in server.objects("bucket") if key.endswith("checkpoint.json")}
    assert len(server.objects("bucket")) == 2 * len(manifests), "a manifest and its one object for each step"
    assert server.uploads("bucket") == []


def _killed(url, kills, seed):
    """Save step after step into one run, and have most of these saves killed; returns how many were, and cleans."""
    rng, run, pipe = random.Random(seed), manager(url), subprocess.PIPE
    command = [sys.executable, "-c", "from tests.checkpoint.saver import serve; serve()"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:

        def save(step, seconds=0.0):
            parent.stdin.write(f"{url} {step} {seconds}\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        took = []
        for step in range(1, 6):
            began = time.monotonic()
            assert save(step) == 0
            took.append(time.monotonic() - began)
        newest, killed = 5, 0
        for step in range(6, 6 + kills):
            status = save(step, rng.uniform(0.0, 1.2) * statistics.median(took))
            killed += status != 0
            latest = run.latest()
            assert latest == step or (status != 0 and latest == newest)
            newest = latest
            same(run.restore(), state(newest))
        parent.stdin.close()
    assert newest > 5, "some were killed after their commit, or not at all"
    run.clean(older_than_s=-5)
    same(run.restore(), state(newest))
    return killed


def test_an_upload_that_never_ended_is_aborted_by_cleaning(server):
    run = manager("s3://bucket/run/")
    source, key = run._source, f"run/000000000003/{'cd' * 16}/state.pt"
    fetcher = source._fetcher()
    fetcher.run(lambda: fetcher.driver.create(key, Attributes()))
    assert server.uploads("bucket") == [key]
    assert run.clean(older_than_s=3600) == []
    assert run.clean(older_than_s=-5) == [source.url(key)]
    assert server.uploads("bucket") == []
