"""Lightning's plugins without a trainer: what is saved is loaded and removed, now and in the background."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from penstock.checkpoint.commit import Saving
from penstock.checkpoint.lightning import AsyncCheckpointIO, CheckpointIO
from penstock.errors import InvalidURL, NotFound, Unusable
from penstock.source import open_source
from tests.test_secrets import STORE, check_hidden


def _names(bucket):
    found = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="run/").get("Contents", [])
    return sorted(each["Key"].removeprefix("run/") for each in found)


@pytest.mark.parametrize("url", ["bucket", "disk"])
def test_lightning_checkpoint_is_saved_loaded_and_removed(bucket, tmp_path, url):
    io = CheckpointIO(bucket.store)
    path = f"{bucket.url}run/a.ckpt" if url == "bucket" else tmp_path / "run/a.ckpt"
    io.save_checkpoint({"state": torch.arange(5)}, path)
    assert torch.equal(io.load_checkpoint(path)["state"], torch.arange(5))
    with pytest.raises(Unusable, match="cannot be pickled"):  # a state that cannot be saved leaves what there was
        io.save_checkpoint({"state": lambda: None}, path)
    assert io.load_checkpoint(path, map_location="meta")["state"].is_meta
    io.remove_checkpoint(path)
    io.remove_checkpoint(path)
    with pytest.raises(NotFound):
        io.load_checkpoint(path)


def test_code_in_a_checkpoint_runs_only_where_it_is_trusted(bucket):
    io, path = CheckpointIO(bucket.store), f"{bucket.url}a.ckpt"
    io.save_checkpoint({"path": Path("x")}, path)
    with pytest.raises(Exception, match="weights_only"):
        io.load_checkpoint(path)
    assert io.load_checkpoint(path, weights_only=False) == {"path": Path("x")}


def test_a_folder_is_removed_whole_and_its_neighbours_are_not(bucket, tmp_path):
    io = CheckpointIO(bucket.store)
    source, _ = open_source(bucket.url, bucket.store)
    saving = Saving(source, "run/a.ckpt/", "dcp")
    with saving.open("data") as file:
        file.write(b"x")
    saving.add("data", file.checksums())
    saving.commit({})
    source.put("run/a.ckpt2", b"")
    io.remove_checkpoint(f"{bucket.url}run/a.ckpt")
    assert _names(bucket) == ["a.ckpt2"]
    (tmp_path / "a.ckpt").mkdir()
    (tmp_path / "a.ckpt/.metadata").write_bytes(b"x")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidURL):
        io.remove_checkpoint(bucket.url)
    with pytest.raises(Unusable, match="store="):
        io.save_checkpoint({}, f"{bucket.url}a", storage_options={})


class _Gated(CheckpointIO):
    """Saves once it is let."""

    def __init__(self, store):
        super().__init__(store)
        self.let = threading.Event()

    def save_checkpoint(self, *args, **kwargs):
        assert self.let.wait(120)
        super().save_checkpoint(*args, **kwargs)


def test_superseded_checkpoint_is_removed_only_after_its_successor_is_saved(bucket):
    gated = _Gated(bucket.store)
    io = AsyncCheckpointIO(gated)
    CheckpointIO(bucket.store).save_checkpoint({}, f"{bucket.url}run/old")
    state = {"weights": torch.zeros(2)}
    io.save_checkpoint(state, f"{bucket.url}run/new")
    io.remove_checkpoint(f"{bucket.url}run/old")
    state["weights"] += 1  # training goes on
    assert _names(bucket) == ["old"]
    gated.let.set()
    assert io.load_checkpoint(f"{bucket.url}run/new")["weights"].tolist() == [0, 0]
    assert _names(bucket) == ["new"]
    io.teardown()
    io.teardown()


def test_background_save_failure_raises_on_next_call_and_keeps_old_checkpoint(bucket):
    CheckpointIO(bucket.store).save_checkpoint({}, f"{bucket.url}run/old")
    io = AsyncCheckpointIO(CheckpointIO(bucket.store))
    io.save_checkpoint({}, "s3://no-such-bucket-of-ours/run/new")
    io.remove_checkpoint(f"{bucket.url}run/old")
    with pytest.raises(NotFound):
        io.save_checkpoint({}, f"{bucket.url}run/newer")
    io.save_checkpoint({}, f"{bucket.url}run/newest")
    io.teardown()
    assert _names(bucket) == ["newest", "old"]
    io.save_checkpoint({}, "s3://no-such-bucket-of-ours/run/new")
    with pytest.raises(NotFound):
        io.teardown()


def test_plugins_carry_no_secret_into_a_file():
    for plugin in (CheckpointIO(STORE), AsyncCheckpointIO(CheckpointIO(STORE))):
        check_hidden(plugin)
