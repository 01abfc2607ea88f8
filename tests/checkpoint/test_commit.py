"""A commit is one request: who reads sees the checkpoint before it or the one after it, on every store."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
import torch
from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException

import penstock as ps
from penstock.checkpoint.commit import CommittedCheckpoint, Saving
from penstock.checkpoint.dcp import StorageWriter
from penstock.checkpoint.integrity import MANIFEST, BlockChecksums
from penstock.checkpoint.run.steps import CheckpointManager
from penstock.errors import AlreadyExists, Changed, Conflict, Denied, NotFound, PreconditionFailed
from penstock.source import Source, open_source
from penstock.testing.faults import FaultServer, Settings
from tests.checkpoint.run.saver import state
from tests.checkpoint.run.test_steps import same
from tests.faults.cases import PART_BYTES, small_limits, small_parts, store

KINDS = ["heeded", "bare", "ignored", "refused"]
FOLDER = "run/"


@pytest.fixture(autouse=True)
def _small():
    with small_limits():
        yield


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.ceph), "local", "memory", "gcs", *KINDS])
def place(request, tmp_path, monkeypatch):
    """Return the URL of an empty run, and options that reach its store."""
    if request.param in KINDS:
        settings = Settings(conditions=request.param, least_part_bytes=PART_BYTES)
        with FaultServer.start(settings) as server:
            server.make("bucket")
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield "s3://bucket/run/", store(server)
    elif request.param == "gcs":
        settings = Settings(dialect="gcs", tokens=("good",), least_part_bytes=PART_BYTES)
        with FaultServer.start(settings) as server:
            server.make("bucket")
            yield "gs://bucket/run/", store(server)
    elif request.param in ("moto", "ceph"):
        server, name = request.getfixturevalue(f"{request.param}_server"), f"commit-{request.param}-{hash(tmp_path)}"
        server.client().create_bucket(Bucket=name)
        yield f"s3://{name}/run/", server.store
    else:
        yield f"{tmp_path}/run/" if request.param == "local" else f"memory://{tmp_path.name}/run/", ps.StoreOptions()


def _save(source, folder, word, replacing=""):
    saving = Saving(source, folder, "words")
    with saving.open("word") as writer:
        writer.write(word)
    saving.add("word", writer.checksums())
    saving.commit({"word": word.decode()}, replacing)
    return saving.id


def _read(committed):
    (name,) = committed.manifest.objects
    with committed.open(name) as reader:
        return reader.read()


def test_a_commit_replaces_the_checkpoint_that_it_names_and_no_other(place):
    url, options = place
    source, folder = open_source(url, options)
    with pytest.raises(NotFound):
        CommittedCheckpoint(source, folder)
    assert Saving(source, folder, "words").current_etag() == ""
    _save(source, folder, b"first")
    first = CommittedCheckpoint(source, folder)
    assert Saving(source, folder, "words").current_etag() == first.etag
    for refused in (lambda: _save(source, folder, b"x"), Saving(source, folder, "words").refuse_existing):
        with pytest.raises(AlreadyExists):
            refused()
    _save(source, folder, b"second", replacing=first.etag)
    assert _read(first) == b"first", "who has begun with it reads on"
    second = CommittedCheckpoint(source, folder)
    assert _read(second) == b"second"
    first.delete_objects()
    with pytest.raises(NotFound):
        _read(first)
    assert list(second.verify())
    with pytest.raises(PreconditionFailed):
        _save(source, folder, b"third", replacing=first.etag)
    second.delete()
    with pytest.raises(PreconditionFailed):
        _save(source, folder, b"fourth", replacing=second.etag)
    with pytest.raises(NotFound):
        CommittedCheckpoint(source, folder)


def test_manifest_is_written_with_a_single_conditional_put_at_any_size():
    with FaultServer.start(Settings(least_part_bytes=PART_BYTES)) as server, small_limits():
        server.make("bucket")
        source, _ = open_source("s3://bucket/", replace(server.store, write=small_parts()))
        for replacing in (False, True):
            saving = Saving(source, FOLDER, "words")
            for number in range(2000):
                saving.add(f"{number:050}", BlockChecksums(0, b""))
            saving.commit({}, saving.current_etag() if replacing else "")
        assert len(server.objects("bucket")[FOLDER + MANIFEST]) > 2 * PART_BYTES
        assert (len(server.seen("put")), server.seen("create")) == (2, [])
        conditions = [{"if-none-match", "if-match"} & seen.headers.keys() for seen in server.seen("put")]
        assert conditions == [{"if-none-match"}, {"if-match"}]


def test_a_step_is_saved_again_only_when_asked_to(place):
    url, options = place
    run = CheckpointManager(url, store=options)
    run.save(1, state(1), overwrite=True)
    with pytest.raises(AlreadyExists):
        run.save(1, state(2))
    same(run.restore(), state(1))
    run.save(1, state(2), overwrite=True)
    same(run.restore(1), state(2))
    with ps.AsyncCheckpointer(run) as checkpoints:
        checkpoints.save(1, state(3), overwrite=True)
    same(run.restore(1), state(3))
    assert len(list(ps.list(url, store=options))) == 2, "of those before nothing is left"
    assert run.steps() == [1]


def test_a_step_with_a_damaged_manifest_can_be_saved_again_or_deleted(place):
    url, options = place
    run = CheckpointManager(url, store=options, keep_best=2)
    for step in (1, 2, 3):
        run.save(step, state(step), metric=float(step))
    for step in (2, 3):
        with ps.open(f"{url}{step:012}/{MANIFEST}", "wb", store=options) as file:
            file.write(b"{}")
    fresh = CheckpointManager(url, store=options)
    assert fresh.clean(older_than_s=-5) == [], "what it named nobody knows"
    run.save(2, state(4), overwrite=True, metric=0.0)
    same(run.restore(2), state(4))
    run.delete(3)
    assert run.steps() == [1, 2]
    assert len(CheckpointManager(url, store=options).clean(older_than_s=-5)) == 2
    assert len(list(ps.list(url, store=options))) == 5, "two manifests, their objects, the index"


@pytest.mark.parametrize("kind", ["heeded", "refused"])
def test_restore_during_a_repeated_save_returns_one_consistent_version(kind, monkeypatch):
    with FaultServer.start(Settings(conditions=kind, least_part_bytes=PART_BYTES)) as server, small_limits():
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        run = CheckpointManager("s3://bucket/run", store=store(server))
        run.save(1, state(0))
        ended, restored = threading.Event(), []

        def restore():
            while not ended.is_set():
                found = run.restore(1)
                same(found, state(found["step"]))
                restored.append(found["step"])

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(restore) for _ in range(2)]
            try:
                for number in range(1, 25):
                    run.save(1, state(number), overwrite=True)
            finally:
                ended.set()
            for reader in readers:
                reader.result(60)
        assert len(set(restored)) > 3
        assert len(server.objects("bucket")) == 2


def test_of_many_that_save_one_step_again_one_counts_and_nothing_is_left(monkeypatch):
    with FaultServer.start(Settings(least_part_bytes=PART_BYTES)) as server, small_limits():
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        CheckpointManager("s3://bucket/run", store=store(server)).save(1, {"number": 0})
        told = []

        def save(number):
            for _ in range(8):
                with suppress(Conflict):
                    run = CheckpointManager("s3://bucket/run", store=store(server))
                    run.save(1, number, overwrite=True)
                    told.append(number)

        with ThreadPoolExecutor(4) as pool:
            for saving in [pool.submit(save, number) for number in range(4)]:
                saving.result(60)
        assert told, "one at least is told that it counts"
        run = CheckpointManager("s3://bucket/run", store=store(server))
        run.clean(older_than_s=-5)
        assert len(server.objects("bucket")) == 2
        assert run.restore(1) in range(4)


@pytest.mark.parametrize("stands", ["ours", "unreadable", "theirs", "none"])
@pytest.mark.parametrize("how", ["penstock", "dcp", "dcp in torch's layout"])
def test_a_commit_that_a_store_denies_loses_no_data_unless_another_s_stands(tmp_path, monkeypatch, how, stands):
    url = f"memory://{tmp_path.name}-{how[-6:-4]}{len(how)}-{stands}/"
    source, _ = open_source(url)
    publish, read = Source.publish, Source.read

    def refused(*_):
        raise Denied("not to be read just now")

    def denied(source, key, data, *, replaces=""):
        if stands != "none":
            publish(source, key, b"{" if stands == "theirs" else data, replaces=replaces)
        if stands == "unreadable":
            monkeypatch.setattr(Source, "read", refused)
        raise Changed("another writer has replaced it")

    def save():
        if how == "penstock":
            _save(source, FOLDER, b"word")
            return
        layout = "penstock" if how == "dcp" else "torch"
        writer = StorageWriter(url + FOLDER, layout=layout)
        try:
            with warnings.catch_warnings(action="ignore"):
                distributed.checkpoint.save({"word": torch.ones(3)}, storage_writer=writer, no_dist=True)
        except CheckpointException as failed:
            raise failed.failures[0][0] from None

    monkeypatch.setattr(Source, "publish", denied)
    with nullcontext() if stands == "ours" else pytest.raises(Changed):
        save()
    monkeypatch.setattr(Source, "read", read)
    left = {"ours": 2, "unreadable": 2, "theirs": 1, "none": 0}[stands]
    left += how == "dcp" and stands in ("ours", "unreadable")  # its index
    assert len([entry for page in source.pages(FOLDER) for entry in page.entries]) == left
    if (how, stands) == ("penstock", "ours"):
        with CommittedCheckpoint(source, FOLDER).open(
            next(iter(CommittedCheckpoint(source, FOLDER).manifest.objects))
        ) as file:
            assert file.read() == b"word"
