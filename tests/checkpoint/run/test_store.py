"""The steps of a run in the store: which are there, which are orphans, and what an index may say of them."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace

import pytest
import torch

import penstock as ps
from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.integrity import BlockChecksums, Manifest
from penstock.checkpoint.run import store
from penstock.engine.contracts.driver import Attributes
from penstock.source import Source
from penstock.testing.faults import FAULTS, Match
from tests.checkpoint.run.saver import manager, objects, same, state


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


def test_request_count_of_a_save_stays_bounded_with_many_kept_steps(server, kept):
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


def test_step_replaced_without_rules_is_ranked_by_its_new_metric(tmp_path):
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
    assert len(objects(tmp_path)) == 3, "its manifest, its object, the index: what went was deleted by its own names"


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


def test_leftovers_of_a_killed_save_are_excluded_from_retention(tmp_path):
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


def test_clean_removes_only_orphaned_save_objects_even_in_an_entire_bucket(tmp_path):
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


def test_clean_continues_with_a_warning_without_upload_listing_support(server, caplog):
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
