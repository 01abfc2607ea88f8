"""A save of safetensors appears whole or not at all, and what it replaces stays until then and goes after."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch

import penstock as ps
from penstock.checkpoint.safetensors import verbs as save
from penstock.errors import AlreadyExists, Forbidden, PenstockError, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match

OLD = {name: torch.full((300,), 1.0) for name in "abcd"}
NEW = {name: torch.full((300,), 2.0) for name in "abce"}
LAYOUTS = {"one file": None, "several": 2000, "as many": 1200}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("before", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("after", LAYOUTS.values(), ids=LAYOUTS)
def test_model_folder_is_replaced_only_with_overwrite_and_old_files_removed(tmp_path, before, after):
    folder = f"{tmp_path}/model/"
    ps.save_safetensors(OLD, folder, max_shard_bytes=before)
    was = _files(folder)
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        ps.save_safetensors(NEW, folder, max_shard_bytes=after)
    assert _files(folder) == was
    assert same(ps.load_safetensors(folder), OLD)
    ps.save_safetensors(NEW, folder, max_shard_bytes=after, overwrite=True)
    assert same(ps.load_safetensors(folder), NEW)
    if after is None:
        assert _files(folder) == ["model.safetensors"]
    else:
        index = json.loads(Path(folder, "model.safetensors.index.json").read_text("utf-8"))
        assert _files(folder) == sorted({*index["weight_map"].values(), "model.safetensors.index.json"})
        assert index["metadata"]["total_size"] == 4800


def test_an_unreadable_index_is_replaced_too_and_its_files_are_left(tmp_path):
    ps.save_safetensors(OLD, tmp_path / "model", max_shard_bytes=1)
    (tmp_path / "model" / "model.safetensors.index.json").write_text("{")
    ps.save_safetensors(NEW, f"{tmp_path}/model/", overwrite=True)
    assert same(ps.load_safetensors(tmp_path / "model"), NEW)
    assert len(_files(tmp_path / "model")) == 5


def test_single_file_is_replaced_only_with_overwrite(bucket):
    url = f"{bucket.url}a.safetensors"
    ps.save_safetensors(OLD, url, store=bucket.store)
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        ps.save_safetensors(NEW, url, store=bucket.store)
    assert same(ps.load_safetensors(url, store=bucket.store), OLD)
    ps.save_safetensors(NEW, url, overwrite=True, store=bucket.store)
    assert same(ps.load_safetensors(url, store=bucket.store), NEW)


@pytest.mark.parametrize("sizes", [(1200, 2000), (None, 1200), (1200, None)], ids=["several", "more", "one"])
def test_each_request_of_a_save_may_be_refused_and_the_old_or_the_new_is_there(sizes):
    before, after = sizes
    told, nth = None, 0
    with FaultServer.start() as server:
        while told is not None or not nth:
            nth += 1
            server.make(f"bucket-{nth}")
            url, told = f"s3://bucket-{nth}/m/", None
            ps.save_safetensors(OLD, url, max_shard_bytes=before, store=server.store)
            server.fail(FAULTS["denied"], when=Match(nth=nth, times=None))
            try:
                ps.save_safetensors(NEW, url, max_shard_bytes=after, overwrite=True, store=server.store)
            except Forbidden as error:
                told = error
            server.heal()
            found = ps.load_safetensors(url, store=server.store)
            assert same(found, NEW) or (told is not None and same(found, OLD))
            if told is not None:
                ps.save_safetensors(NEW, url, max_shard_bytes=after, overwrite=True, store=server.store)
                assert same(ps.load_safetensors(url, store=server.store), NEW), "what it left is in nobody's way"
    assert nth > 5


def test_tensor_changed_during_save_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    tensors = {"a": torch.zeros(1000), "b": torch.zeros(1000)}
    encode = save.encode

    def changing(*arguments):
        if arguments[2]:  # the digests are made
            tensors["b"].add_(1)
        return encode(*arguments)

    monkeypatch.setattr(save, "encode", changing)
    with pytest.raises(Unusable, match="changed while they were saved"):
        ps.save_safetensors(tensors, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_two_saves_at_once_never_mix(tmp_path):
    """They may collide, and then one of them is told; what is there at the end is one of them, whole."""
    states = [{name: torch.full((50_000,), float(number)) for name in "abcdef"} for number in range(2)]
    start, told = threading.Barrier(2), []

    def save(state):
        start.wait(60)
        try:
            ps.save_safetensors(state, f"{tmp_path}/model/", max_shard_bytes=1)
        except PenstockError as error:
            told.append(error)

    threads = [threading.Thread(target=save, args=(state,)) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if len(told) < 2:
        found = ps.load_safetensors(tmp_path / "model")
        assert any(same(found, state) for state in states)


@pytest.mark.parametrize(
    ("url", "options", "what"),
    [
        ("a.pt", {}, "ends in '.safetensors'"),
        ("a.safetensors", {"max_shard_bytes": 5}, "need a folder"),
        ("a/", {"max_shard_bytes": 0}, "must be 1 or more"),
        ("a/", {"max_shard_bytes": "5GB"}, "must be a whole number"),
        ("a/", {"max_shard_bytes": 5e9}, "must be a whole number"),
        ("a/", {"max_shard_bytes": True}, "must be a whole number"),
        ("a.safetensors", {"metadata": {"a": 1}}, "must map str to str"),
        ("a/", {"metadata": {"penstock.blocks": ""}}, "reserved for Penstock"),
    ],
)
def test_calls_that_cannot_work_are_refused_and_leave_nothing(tmp_path, url, options, what):
    with pytest.raises(Unusable, match=what):
        ps.save_safetensors(NEW, f"{tmp_path}/{url}", **options)
    assert list(tmp_path.iterdir()) == []
