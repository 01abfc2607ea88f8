"""Removing a checkpoint: what a checkpoint is made of goes, and nothing that somebody else put there."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import penstock as ps
from penstock.checkpoint.commit import remove, told_apart
from penstock.checkpoint.dcp import StorageWriter
from penstock.checkpoint.lightning import CheckpointIO, ModelCheckpoint
from penstock.errors import InvalidURL, Unusable

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # it is said with no_dist

SAVE = "0123456789abcdef" * 2


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Work in a directory with a program and a run in it."""
    (tmp_path / "work/run").mkdir(parents=True)
    (tmp_path / "work/train.py").write_text("")
    (tmp_path / "work/run/a.ckpt").write_text("")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def _files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("path", [Path(), Path("/"), *[".", "./", "..", "run/..", "/", "file:///", "memory://b"]])
def test_a_checkpoint_path_that_came_out_empty_deletes_nothing(work, path):
    with pytest.raises(InvalidURL, match="name the objects to delete"):
        CheckpointIO().remove_checkpoint(path)
    assert _files(work) == ["run/a.ckpt", "train.py"]


@pytest.mark.parametrize("store", ["file", "memory"])
def test_a_folder_without_a_checkpoint_is_refused_and_stays(work, store):
    url = str(work / "run") if store == "file" else f"memory://{work.parent.name}/run"
    with ps.open(f"{url}/a.ckpt", "wb"):
        pass
    with pytest.raises(Unusable, match=r"not a checkpoint, it contains 'a\.ckpt'"):
        CheckpointIO().remove_checkpoint(url)
    assert [each.key.rpartition("/")[2] for each in ps.list(f"{url}/")] == ["a.ckpt"]
    CheckpointIO().remove_checkpoint(f"{url}/a.ckpt")
    assert not list(ps.list(f"{url}/"))
    CheckpointIO().remove_checkpoint(f"{url}/a.ckpt")


@pytest.mark.parametrize("layout", ["penstock", "torch"])
@pytest.mark.parametrize("store", ["file", "memory"])
def test_removing_a_checkpoint_keeps_unrelated_files_in_its_folder(tmp_path, caplog, store, layout):
    url = f"{tmp_path}/here" if store == "file" else f"memory://{tmp_path.name}/{layout}"
    torch.distributed.checkpoint.save(
        {"a": torch.zeros(3)}, storage_writer=StorageWriter(f"{url}/sharded", layout=layout, spread=2), no_dist=True
    )
    with ps.open(f"{url}/sharded/notes.txt", "wb"):
        pass
    with caplog.at_level(logging.WARNING, "penstock"):
        remove(f"{url}/sharded", None)
    assert [each.key.rpartition("/")[2] for each in ps.list(f"{url}/")] == ["notes.txt"]
    assert "'notes.txt'" in caplog.text
    ps.delete(f"{url}/sharded/notes.txt")
    if store == "file":
        remove(f"{url}/sharded/", None)  # an empty folder holds nothing that could be lost


@pytest.mark.parametrize(
    ("names", "stay"),
    [
        (["meta.pt", ".metadata", "__0_0.distcp"], []),  # Lightning's FSDP
        (["latest", "zero_to_fp32.py", "checkpoint/mp_rank_00_model_states.pt"], []),  # DeepSpeed
        ([f"{SAVE}/0.data", f"{SAVE}/1.data"], []),  # a save that was killed, or removed by half
        (["__0.metadata", "__1.metadata", "__0_0.distcp"], []),
        (["checkpoint.json", f"{SAVE}/any thing", "checkpoint/weights"], ["checkpoint/weights"]),
        ([f"{SAVE}/cached"], [f"{SAVE}/cached"]),
        (["latest", "meta.pt"], ["latest", "meta.pt"]),
        (["checkpoint/model.py", "checkpoint/step_states.pt"], ["checkpoint/model.py", "checkpoint/step_states.pt"]),
        (["000000000001/checkpoint.json"], ["000000000001/checkpoint.json"]),
        ([".metadata/workspace"], [".metadata/workspace"]),
    ],
)
def test_checkpoint_files_are_separated_from_other_files_by_their_layout(names, stay):
    made, others = told_apart(names)
    assert others == stay
    assert sorted([*made, *others]) == sorted(names)
    assert made[:1] not in (["meta.pt"], ["__0_0.distcp"]), "what makes it one goes first"


def test_of_a_link_the_link_goes(work):
    (work / "last.ckpt").symlink_to(work / "run")
    CheckpointIO().remove_checkpoint(work / "last.ckpt")
    assert _files(work) == ["run/a.ckpt", "train.py"]
    assert not (work / "last.ckpt").is_symlink()


@pytest.mark.parametrize("path", [Path("s3://bucket/run"), "/home/me/s3:/bucket/run", "s3:/bucket/run"])
def test_a_url_that_went_through_pathlib_is_refused_by_name(path):
    plugin = CheckpointIO()
    for use in (
        lambda: plugin.load_checkpoint(path),
        lambda: plugin.remove_checkpoint(path),
        lambda: plugin.save_checkpoint({}, path),
        lambda: ModelCheckpoint(path).setup(None),
    ):
        with pytest.raises(InvalidURL, match="pass the URL as text"):
            use()


@pytest.mark.parametrize("state", [torch.arange(3), [torch.zeros(1), 2], ("a", 1), 7])
def test_object_saved_by_lightning_plugin_loads_as_the_same_value(tmp_path, state):
    CheckpointIO().save_checkpoint(state, tmp_path / "a.ckpt")
    found = CheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
    assert type(found) is type(state)
    assert str(found) == str(state)


def test_a_model_that_was_saved_whole_is_loaded_whole_where_it_is_trusted(tmp_path):
    CheckpointIO().save_checkpoint(torch.nn.Linear(2, 2), tmp_path / "a.ckpt")
    assert isinstance(CheckpointIO().load_checkpoint(tmp_path / "a.ckpt", weights_only=False), torch.nn.Linear)
