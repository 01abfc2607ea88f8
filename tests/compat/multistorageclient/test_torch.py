"""torch's files and distributed checkpoints by URL."""

from __future__ import annotations

import io

import pytest
import torch
import torch.distributed.checkpoint as dcp

from penstock.compat import multistorageclient as msc
from penstock.errors import InvalidURL

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_a_tensor_is_saved_and_loaded(base):
    msc.torch.save({"a": torch.ones(2)}, f"{base}/t.pt")
    for file in (f"{base}/t.pt", msc.Path(f"{base}/t.pt"), msc.open(f"{base}/t.pt")):
        assert msc.torch.load(file, weights_only=True)["a"].tolist() == [1, 1]
    msc.torch.save(torch.zeros(1), file := io.BytesIO())
    assert file.tell()


def test_a_distributed_checkpoint_is_saved_replaced_and_loaded(base):
    for value in (1.0, 2.0):
        state = {"w": torch.full((3,), value)}
        dcp.save(state, storage_writer=msc.torch.MultiStorageFileSystemWriter(f"{base}/dcp"), no_dist=True)
    found = {"w": torch.zeros(3)}
    dcp.load(found, storage_reader=msc.torch.MultiStorageFileSystemReader(f"{base}/dcp", thread_count=2), no_dist=True)
    assert found["w"].tolist() == [2, 2, 2]


def test_files_for_torchs_own_reader_and_writer(tree):
    files = msc.torch.MultiStorageFileSystem()
    with files.create_stream(files.concat_path(files.init_path(tree), "new"), "wb") as file:
        file.write(b"1")
    assert files.exists(f"{tree}/new")
    assert sorted(each.rpartition("/")[2] for each in files.ls(tree)) == ["a.txt", "d", "new", "z.bin"]
    files.rename(f"{tree}/new", f"{tree}/old")
    files.rm_file(f"{tree}/old")
    assert not files.exists(f"{tree}/old")
    assert files.validate_checkpoint_id(tree)
    assert not files.validate_checkpoint_id("weird://x/y")
    with pytest.raises(InvalidURL):
        msc.torch.MultiStorageFileSystemReader("weird://x/y")


def test_directories_exist_for_torchs_own_reader_and_writer(tree, tmp_path):
    files = msc.torch.MultiStorageFileSystem()
    assert [files.exists(f"{tree}/{name}") for name in ("d", "a.txt", "none")] == [True, True, False]
    files.mkdir(str(tmp_path / "a/b"))
    assert files.exists(str(tmp_path / "a/b"))
    files.mkdir(f"{tree}/none")
    assert not files.exists(f"{tree}/none")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{}", True),
        ("msc://disk/", True),
        ("msc://disk", True),
        ("/ckpt", True),
        ("ckpt", True),
        ("s3://bucket/x", True),
        ("msc://nobody/x", False),
        ("weird://x/y", False),
        ("s3:///x", False),
    ],
)
def test_checkpoint_ids_are_those_of_the_original(tree, name, expected):
    torch = msc.torch
    for kind in (
        torch.MultiStorageFileSystem,
        torch.MultiStorageFileSystemReader,
        torch.MultiStorageFileSystemWriter,
    ):
        assert kind.validate_checkpoint_id(name.format(tree)) is expected


def test_stream_of_a_bad_mode_is_a_value_error(tree):
    with pytest.raises(ValueError, match="mode must be"), msc.torch.MultiStorageFileSystem().create_stream(tree, "z"):
        pass
