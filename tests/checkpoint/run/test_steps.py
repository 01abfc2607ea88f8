"""The checkpoints of a run: what is restored was saved, all of it together, whatever interrupted later saves."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.commit.saving import CommittedCheckpoint, Saving
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.integrity.checksums import BlockChecksums
from penstock.checkpoint.integrity.manifest import Manifest
from penstock.checkpoint.run import store
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
from penstock.source import Source
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.checkpoint.run.saver import manager, state
from tests.faults.cases import PART_BYTES, small_limits

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
    with pytest.raises(CheckpointError, match="without the data's position"):
        run.restore(loader=other)


def test_superseded_steps_go_and_nothing_else_does(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=2, keep_every=30, keep_best=1)
    (tmp_path / "notes.txt").write_text("mine")
    for step, metric in ((10, 0.1), (20, 0.5), (30, 0.9), (40, None), (50, 0.4), (60, 0.3), (70, 0.2)):
        run.save(step, {"step": step}, metric=metric)
    assert run.steps() == [10, 30, 60, 70]
    assert len(_objects(tmp_path)) == 2 * 4 + 2, "a manifest and its object for each, the index, the notes"


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
def test_what_cannot_be_is_refused(tmp_path, wrong):
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path, **wrong)
    with pytest.raises(Unusable):
        ps.CheckpointManager(tmp_path).save(-1, {})


@pytest.fixture
def server(monkeypatch):
    settings = Settings(least_part_bytes=PART_BYTES, latency_ms=LATENCY_MS)
    with FaultServer.start(settings) as server, small_limits():
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


@pytest.mark.soak
def test_kill_9_at_any_moment_leaves_the_newest_whole_step_and_cleaning_leaves_no_orphan(server, seed):
    kills = KILLS // RUNS
    with ThreadPoolExecutor(RUNS) as pool:
        killed = list(pool.map(lambda number: _killed(f"s3://bucket/run{number}/", kills, seed + number), range(RUNS)))
    assert sum(killed) >= RUNS * kills // 3
    manifests = {key for key in server.objects("bucket") if key.endswith("checkpoint.json")}
    assert len(server.objects("bucket")) == 2 * len(manifests) + RUNS, "for each step a manifest and its object"
    assert server.uploads("bucket") == []


def _killed(url, kills, seed):
    """Save step after step into one run, and have most of these saves killed; returns how many were, and cleans."""
    rng, run, pipe = random.Random(seed), manager(url), subprocess.PIPE
    command = [sys.executable, "-c", "from tests.checkpoint.run.saver import serve; serve()"]
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


@pytest.fixture
def kept(server):
    """Prepare a run of 1,000 steps, as if their data were there; return what opens it as a new process would."""
    for step in range(1, 1001):
        save = f"{step:032x}"
        content = {"step": step, "metric": abs(step - 500.5)}
        manifest = Manifest(save, "state", {f"{save}/state.pt": BlockChecksums(1, b"digested")}, content)
        server.put("bucket", f"run/{step:012d}/checkpoint.json", manifest.encode())

    def opened(**rules):
        rules = {"keep_last": 400, "keep_best": 400, "keep_every": 2} | rules
        return ps.CheckpointManager("s3://bucket/run/", store=server.store, **rules)

    return opened


def _requests(server, act):
    before = len(server.seen())
    act()
    return len(server.seen()) - before


def test_a_save_takes_ten_requests_whatever_is_kept_and_by_whom(server, kept):
    run = kept()
    first = _requests(server, lambda: run.save(1001, {"step": 1001}, metric=7.0))
    assert first > 1000, "nothing says yet what the steps are: each manifest is read, once in the life of the run"
    left = run.steps()
    assert len(left) > 700
    assert all(step % 2 == 0 or step > 300 for step in left), "the even ones, the newest, and the best, around 500"
    for step in range(1002, 1012):
        run = kept() if step % 4 == 0 else run  # a process that begins anew
        assert _requests(server, lambda: run.save(step, {"step": step}, metric=9_000.0 - step)) <= 12, "two of the data"  # noqa: B023  at once
    assert kept().latest() == 1011
    assert kept().steps()[-12:] == [1000, *range(1001, 1012)]
    gone = kept(keep_last=1, keep_best=None, keep_every=None)
    gone.save(1012, {"step": 1012})
    assert gone.steps() == [1012]
    assert len(server.objects("bucket")) == 3, "its manifest, its object, the index"
    assert server.opened() > 16, "deletions go side by side"


def test_the_index_of_steps_spares_looks_and_is_never_believed_against_the_store(tmp_path):
    def run():
        return ps.CheckpointManager(tmp_path, keep_last=2, keep_best=1)

    for step, metric in ((1, 0.1), (2, 0.5), (3, 0.6)):
        run().save(step, {"step": step}, metric=metric)
    shutil.rmtree(tmp_path / "000000000001")  # by hand: what the index says of it counts no more
    run().save(4, {"step": 4}, metric=0.9)
    assert run().steps() == [2, 3, 4]
    run().save(2, {"step": 2}, metric=5.0, overwrite=True)  # no longer the best
    run().save(5, {"step": 5}, metric=0.7)
    assert run().steps() == [3, 4, 5]
    ps.CheckpointManager(tmp_path).save(6, {"step": 6}, metric=0.2)  # a process without rules writes no index
    run().save(7, {"step": 7}, metric=1.0)
    assert run().steps() == [6, 7]
    for damage in (b"", b"{", b"[]", b'{"penstock_steps":2}', b'{"penstock_steps":1,"steps":{"7":["",0.1,"../../x"]}}'):
        (tmp_path / "penstock-steps.json").write_bytes(damage)
        run().save(8, {"step": 8}, metric=3.0, overwrite=True)
        assert run().steps() == [6, 7, 8]
        run().delete(8)
    run().clean(older_than_s=-5)
    assert run().steps() == [6, 7]


def _orphan(folder, step):
    """Leave what a save that died leaves."""
    (folder / f"{step:012d}" / ("ab" * 16)).mkdir(parents=True)
    (folder / f"{step:012d}" / ("ab" * 16) / "state.pt").write_bytes(b"half")


@pytest.mark.parametrize("large", [False, True], ids=["listed", "looked at"])
def test_a_deleted_step_takes_no_kept_one_s_place_where_something_lies_in_its_folder(tmp_path, monkeypatch, large):
    monkeypatch.setattr(store, "_FEW", 1000 if large else 16)
    if large:
        for number in range(1000):  # so that a listing has more than a page
            (tmp_path / f"z{number}").write_bytes(b"")
    _orphan(tmp_path, 10)
    run = ps.CheckpointManager(tmp_path, keep_last=1, keep_best=1)
    run.save(10, {}, metric=0.0)
    run.save(20, {}, metric=0.5)
    run.delete(10)
    run.save(30, {}, metric=0.9)
    assert run.steps() == [20, 30]


def test_a_step_whose_deletion_was_interrupted_takes_no_kept_one_s_place(tmp_path, monkeypatch):
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2):
        run.save(step, {})
    delete = Source.delete

    def interrupted(source, keys):
        delete(source, keys)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Source, "delete", interrupted)
        run.delete(2)
    run.save(3, {})
    assert run.steps() == [1, 3]


def test_a_step_that_a_manager_without_rules_replaced_is_known_by_what_it_is_now(tmp_path):
    ruled, plain = ps.CheckpointManager(tmp_path, keep_last=1, keep_best=1), ps.CheckpointManager(tmp_path)
    ruled.save(1, {}, metric=0.1)
    ruled.save(2, {}, metric=0.5)
    plain.save(1, {}, metric=9.0, overwrite=True)
    ruled.save(3, {}, metric=0.7)
    assert ruled.steps() == [2, 3], "the best is 2 by now"
    plain.delete(2)
    plain.save(2, {}, metric=8.0)
    ruled.save(4, {}, metric=0.6)
    assert ruled.steps() == [4]
    assert len(_objects(tmp_path)) == 3, "its manifest, its object, the index: what went was deleted by its own names"


def test_a_step_that_goes_while_manifests_are_read_is_left_out_and_one_replaced_is_read_again(tmp_path, monkeypatch):
    run = ps.CheckpointManager(tmp_path)
    for step in (1, 2, 3):
        run.save(step, {}, metric=float(step))
    begin = Source.lookahead

    def meanwhile(source, spans):
        spans = list(spans)
        with monkeypatch.context() as patch:
            patch.setattr(Source, "lookahead", begin)
            run.delete(1)
            run.save(2, {}, metric=20.0, overwrite=True)
        monkeypatch.setattr(Source, "lookahead", begin)
        return begin(source, iter(spans))

    monkeypatch.setattr(Source, "lookahead", meanwhile)
    assert [(step, said.metric) for step, said in run.described()] == [(2, 20.0), (3, 3.0)]
    run.save(1, {}, metric=1.0)
    monkeypatch.setattr(Source, "lookahead", meanwhile)
    ps.CheckpointManager(tmp_path, keep_last=3).save(4, {})
    assert run.steps() == [2, 3, 4]
    run.save(1, {}, metric=1.0)
    monkeypatch.setattr(Source, "lookahead", meanwhile)
    run.clean(older_than_s=3600)
    assert run.steps() == [2, 3, 4]


def test_an_index_beyond_all_bounds_counts_as_none_and_a_user_s_steps_json_stays(tmp_path):
    (tmp_path / "steps.json").write_bytes(b"mine")
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    with (tmp_path / "penstock-steps.json").open("wb") as file:
        file.truncate(1 << 40)
    for step in (1, 2, 3):
        run.save(step, {}, metric=1.0)
    for damage in (b"[" + b"[]," * (1 << 22), b'{"penstock_steps":1,"steps":{"3":["",1%s]}}' % (b"0" * 400)):
        (tmp_path / "penstock-steps.json").write_bytes(damage)
        run.save(4, {}, overwrite=True)
    assert run.steps() == [3, 4]
    assert (tmp_path / "steps.json").read_bytes() == b"mine"


def test_what_a_save_that_died_left_is_no_kept_step(tmp_path):
    run = ps.CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2):
        run.save(step, {"step": step})
    (tmp_path / "000000000005" / ("ab" * 16)).mkdir(parents=True)
    (tmp_path / "000000000005" / ("ab" * 16) / "state.pt").write_bytes(b"half")
    for step in (3, 4):
        ps.CheckpointManager(tmp_path, keep_last=2).save(step, {"step": step})
    assert run.steps() == [3, 4]
    run.save(5, {"step": 5})
    assert run.restore() == {"step": 5}


def test_the_newest_is_looked_for_again_where_it_is_superseded_meanwhile(tmp_path, monkeypatch):
    saver = ps.CheckpointManager(tmp_path, keep_last=1)
    saver.save(1, {"step": 1})
    run, look, step = ps.CheckpointManager(tmp_path), Source.head, [1]

    def superseded(source, key):
        """Supersede what is looked at, a few times, before it is."""
        if key.endswith("checkpoint.json") and f"/{step[0]:012d}/" in key and step[0] < 6:
            step[0] += 1
            with monkeypatch.context() as alone:
                alone.setattr(Source, "head", look)
                saver.save(step[0], {"step": step[0]})
        return look(source, key)

    monkeypatch.setattr(Source, "head", superseded)
    assert run.latest() == 6
    step[0] = 4
    assert run.restore() == {"step": 6}
    with pytest.raises(NotFound):
        run.restore(5)


def test_the_newest_is_read_again_where_its_data_goes_meanwhile(tmp_path, monkeypatch):
    saver, run = ps.CheckpointManager(tmp_path, keep_last=1), ps.CheckpointManager(tmp_path)
    saver.save(1, {"step": 1})
    objects, left = CommittedCheckpoint.objects, [2, 3]

    def going(committed, names):
        if left:
            saver.save(left.pop(0), {"step": 3 - len(left)})
        return objects(committed, names)

    monkeypatch.setattr(CommittedCheckpoint, "objects", going)
    assert run.restore() == {"step": 3}
    left.append(4)
    with pytest.raises(NotFound, match="000000000003"):
        run.restore(3)


def test_who_loses_a_race_for_a_step_leaves_nothing(tmp_path, monkeypatch):
    first, second = (ps.CheckpointManager(tmp_path) for _ in range(2))
    refuse_existing = Saving.refuse_existing

    def raced(saving):
        refuse_existing(saving)
        monkeypatch.setattr(Saving, "refuse_existing", refuse_existing)
        second.save(1, {"by": "second"})

    monkeypatch.setattr(Saving, "refuse_existing", raced)
    with pytest.raises(AlreadyExists):
        first.save(1, {"by": "first"})
    assert len(_objects(tmp_path)) == 2
    assert first.restore() == {"by": "second"}


def test_what_is_no_save_s_is_left_by_cleaning_also_in_a_whole_bucket(tmp_path):
    url = f"memory://{tmp_path.name}"
    run, mine = ps.CheckpointManager(url), f"000000000001/{'ab' * 16}/state.pt"
    folder, torchs = f"{url}/000000000007", {"a": torch.zeros(2)}
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.save(torchs, storage_writer=StorageWriter(folder, layout="torch"), no_dist=True)
    theirs = ["clock/notes", "000000000001/notes.txt", "000000000001/other/notes", "cd" * 16 + "/x", "steps.json"]
    for key in (*theirs, mine):
        with ps.open(f"{url}/{key}", "wb") as file:
            file.write(b"x")
    assert run.clean(older_than_s=-5) == [f"{url}/{mine}"]
    assert {each.key for each in ps.list(url)} > set(theirs)
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.load(torchs, storage_reader=StorageReader(folder), no_dist=True)


def test_cleaning_goes_on_where_a_store_does_not_list_uploads_and_says_so(server, caplog):
    run = manager("s3://bucket/run/")
    server.put("bucket", f"run/000000000003/{'cd' * 16}/state.pt", b"half")
    lacking = replace(FAULTS["denied"], status=501, code="NotImplemented")
    server.fail(lacking, when=Match(verb="uploads", times=None))
    with caplog.at_level("WARNING", "penstock"):
        assert len(run.clean(older_than_s=-5)) == 1
    assert "unfinished uploads are left as they are" in caplog.text


def test_an_upload_that_never_ended_is_aborted_by_cleaning(server):
    run = manager("s3://bucket/run/")
    source, key = run._source, f"run/000000000003/{'cd' * 16}/state.pt"
    fetcher = source._fetcher()
    fetcher.run(lambda: fetcher.driver.create(key, Attributes()))
    assert server.uploads("bucket") == [key]
    assert run.clean(older_than_s=3600) == []
    assert run.clean(older_than_s=-5) == [source.url(key)]
    assert server.uploads("bucket") == []


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


def test_what_numpy_and_python_count_in_comes_back_with_weights_only(tmp_path):
    position = {"at": np.int64(3), "order": np.arange(5), "drawn": np.random.RandomState(1).get_state()}
    state = {"best": np.float32(0.5), "path": Path("/a"), "weights": torch.ones(2)}
    run, taken = ps.CheckpointManager(tmp_path), Position()
    run.save(1, state, loader=Position(position))
    assert repr(run.restore(loader=taken)) == repr(state)
    assert repr(taken.state) == repr(position)
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(2, state)
    assert repr(run.restore()) == repr(state)


def test_what_could_not_be_restored_with_weights_only_is_refused_when_it_is_saved(tmp_path):
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
    with pytest.warns(UserWarning, match="stay as they are"):
        assert run.restore(into=into)["a"].tolist() == [1, 1]
    with pytest.raises(Unusable, match="data's position is more than weights"):
        run.restore(into=into, loader=Position())
    taken = Position()
    run.restore(into=into, loader=taken, weights_only=False)
    assert isinstance(taken.state["x"], Custom)
