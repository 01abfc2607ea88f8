"""torch's own metadata: what torch writes is read, and nothing that it does not write is run or opened."""

from __future__ import annotations

import io
import os
import pickle
import zipfile

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.records import Placed
from penstock.checkpoint.torchmeta import decode, encode, unpacked
from penstock.errors import CheckpointError, ChecksumMismatch, Unusable

INDEX = MetadataIndex("w", (0,))
STATE = {
    "w": TensorStorageMetadata(
        TensorProperties(torch.float8_e4m3fn, memory_format=torch.channels_last),
        torch.Size([4]),
        [ChunkStorageMetadata(torch.Size([0]), torch.Size([4]))],
    )
}
URL = "s3://bucket/.metadata"


def _metadata(**info):
    said = {"relative_path": "__0_0.distcp", "offset": 0, "length": 9} | info
    return Metadata(STATE, {"w": ("w",)}, {INDEX: _StorageInfo(**said)})


def test_what_is_written_comes_back_and_torch_reads_it():
    data = encode(Metadata(STATE, {"w": ("w",)}), {INDEX: Placed("ab/__0_0.distcp", 3, 4)})
    assert pickle.loads(data).storage_data == {INDEX: _StorageInfo("ab/__0_0.distcp", 3, 4)}
    found = decode(data, URL, weights_only=True)
    assert found.storage_data == {INDEX: Placed("ab/__0_0.distcp", 3, 4)}
    assert (found.state_dict_metadata, found.planner_data) == (STATE, {"w": ("w",)})


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("hostile",)


def test_what_it_names_is_not_run_unless_it_is_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    metadata = _metadata()
    metadata.planner_data = {"w": Hostile()}
    data = pickle.dumps(metadata)
    with pytest.raises(CheckpointError, match=r"posix.mkdir.*weights_only=False.*s3://bucket/.metadata"):
        decode(data, URL, weights_only=True)
    assert not (tmp_path / "hostile").exists()
    decode(data, URL, weights_only=False)
    assert (tmp_path / "hostile").exists()


@pytest.mark.parametrize("name", ["eval", "getattr", "exec"])
def test_builtins_that_do_things_are_not_there(name):
    with pytest.raises(CheckpointError, match=f"builtins.{name}"):
        decode(f"cbuiltins\n{name}\n.".encode(), URL, weights_only=True)


@pytest.mark.parametrize(
    "info",
    [
        *({"relative_path": name} for name in ("../x", "/etc/passwd", "a/../b", "s3://other/x", "", "a//b", ".", 7)),
        *({"offset": -1}, {"length": -1}, {"length": 2.0}),
    ],
)
def test_places_outside_of_the_checkpoint_are_refused(info):
    with pytest.raises(CheckpointError, match=URL):
        decode(pickle.dumps(_metadata(**info)), URL, weights_only=True)


def test_what_is_no_metadata_is_refused_and_so_are_extensions():
    for data in (b"", b"\x80", pickle.dumps([]), pickle.dumps(_metadata())[:-20], pickle.dumps(Metadata({}))):
        with pytest.raises(CheckpointError, match=URL):
            decode(data, URL, weights_only=True)
    with pytest.raises(Unusable, match="zstd"):
        decode(pickle.dumps(_metadata(transform_descriptors=["stream.zstd"])), URL, weights_only=True)


def _file(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    return bytearray(file.getvalue())


def test_a_flipped_byte_of_an_item_is_found_and_other_things_are_no_tensors():
    data = _file(torch.arange(100_000))
    assert torch.equal(unpacked(io.BytesIO(data), URL), torch.arange(100_000))
    data[len(data) // 2] ^= 1
    with pytest.raises(ChecksumMismatch, match=r"archive/data/0.*s3://bucket"):
        unpacked(io.BytesIO(data), URL)
    for other in (_file({"a": 1}), _file(7), bytearray(b"no zip"), _file(torch.rand(3))[:-5]):
        with pytest.raises((CheckpointError, ChecksumMismatch), match="s3://bucket"):
            unpacked(io.BytesIO(other), URL)
    assert zipfile.is_zipfile(io.BytesIO(_file(7)))
