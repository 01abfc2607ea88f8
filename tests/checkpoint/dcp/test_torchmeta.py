"""torch's own metadata: what torch writes is read, and nothing that it does not write is run or opened."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
import zipfile

import pytest
import torch
from torch.distributed._shard.sharded_tensor import metadata as sharded
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.dcp.records import ItemLocation
from penstock.checkpoint.dcp.torchmeta import build, decode, encode, load_item
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


def test_encoded_metadata_round_trips_and_torch_unpickles_it():
    data = encode(Metadata(STATE, {"w": ("w",)}), {INDEX: ItemLocation("ab/__0_0.distcp", 3, 4)})
    assert pickle.loads(data).storage_data == {INDEX: _StorageInfo("ab/__0_0.distcp", 3, 4)}
    found = decode(data, URL, weights_only=True)
    assert found.storage_data == {INDEX: ItemLocation("ab/__0_0.distcp", 3, 4)}
    assert (found.state_dict_metadata, found.planner_data) == (STATE, {"w": ("w",)})


def test_metadata_written_before_torch_2_3_is_decoded():
    """Properties of tensors were another class then, metadata had no storage_meta, and places no extensions."""
    properties = sharded.TensorProperties(torch.float16)
    stored = TensorStorageMetadata(properties, torch.Size([4]), STATE["w"].chunks)
    metadata = Metadata({"w": stored}, {"w": ("w",)}, {INDEX: _StorageInfo("__0_0.distcp", 0, 9)})
    for thing, names in (
        (metadata, ("storage_meta", "version")),
        (*metadata.storage_data.values(), ("transform_descriptors",)),
    ):
        for name in names:
            thing.__dict__.pop(name, None)
    data = pickle.dumps(metadata)
    assert b"_shard.sharded_tensor.metadata" in data
    found = decode(data, URL, weights_only=True)
    assert found.state_dict_metadata["w"].properties.dtype == torch.float16
    assert found.storage_data == {INDEX: ItemLocation("__0_0.distcp", 0, 9)}
    assert found.storage_meta == StorageMeta()


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("hostile",)


def test_code_named_in_metadata_runs_only_with_weights_only_false(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    metadata = _metadata()
    metadata.planner_data = {"w": Hostile()}
    data = pickle.dumps(metadata)
    with pytest.raises(CheckpointError, match=r"posix.mkdir.*weights_only=False.*s3://bucket/.metadata"):
        decode(data, URL, weights_only=True)
    assert not (tmp_path / "hostile").exists()
    decode(data, URL, weights_only=False)
    assert (tmp_path / "hostile").exists()


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


def test_invalid_metadata_and_stream_extensions_are_refused():
    for data in (b"", b"\x80", pickle.dumps([]), pickle.dumps(_metadata())[:-20], pickle.dumps(Metadata({}))):
        with pytest.raises(CheckpointError, match=URL):
            decode(data, URL, weights_only=True)
    with pytest.raises(Unusable, match="zstd"):
        decode(pickle.dumps(_metadata(transform_descriptors=["stream.zstd"])), URL, weights_only=True)


def test_error_for_oversized_metadata_values_stays_below_400_characters():
    laughs = ["x"]
    for _ in range(60):
        laughs = [laughs, laughs]
    for info in ({"relative_path": laughs}, {"offset": laughs}, {"transform_descriptors": laughs}):
        with pytest.raises((CheckpointError, Unusable), match=URL) as caught:
            decode(pickle.dumps(_metadata(**info)), URL, weights_only=True)
        assert len(str(caught.value)) < 400


def _file(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    return bytearray(file.getvalue())


TENSORS = {
    "turned": torch.rand(5, 3).t(),
    "cut": torch.rand(6)[::2],
    "0d": torch.tensor(2.5),
    "none": torch.empty(0, 3),
    "sparse": torch.rand(3).to_sparse(),
    "parameter": torch.nn.Parameter(torch.rand(3)),
    "complex": torch.rand(4, dtype=torch.complex64).conj(),
    "bfloat16": torch.arange(3).bfloat16(),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_an_item_is_the_tensor_that_torch_would_load(tensor):
    data = _file(tensor)
    found, expected = load_item(io.BytesIO(data), URL), torch.load(io.BytesIO(data))
    assert (type(found), found.dtype, found.shape) == (type(expected), expected.dtype, expected.shape)
    assert torch.equal(found.to_dense(), expected.to_dense())
    if expected.layout is torch.strided:
        assert found.stride() == expected.stride()


def test_flipped_item_byte_is_detected_and_non_tensor_items_are_refused():
    data = _file(torch.arange(100_000))
    assert torch.equal(load_item(io.BytesIO(data), URL), torch.arange(100_000))
    data[len(data) // 2] ^= 1
    with pytest.raises(ChecksumMismatch, match=r"archive/data/0.*s3://bucket"):
        load_item(io.BytesIO(data), URL)
    for other in (_file({"a": 1}), _file(7), bytearray(b"no zip"), _file(torch.rand(3))[:-5]):
        with pytest.raises((CheckpointError, ChecksumMismatch), match="s3://bucket"):
            load_item(io.BytesIO(other), URL)
    assert zipfile.is_zipfile(io.BytesIO(_file(7)))


# What a pickle of torch's metadata names is made of known classes only, and in memory bounded by its size.


@pytest.mark.parametrize("name", ["eval", "getattr", "exec"])
def test_builtins_that_do_things_are_not_there(name):
    with pytest.raises(CheckpointError, match=f"builtins.{name}"):
        decode(f"cbuiltins\n{name}\n.".encode(), URL, weights_only=True)


SIZES = pickle.dumps(tuple([0] * 5000), 2)[:-1] + b"q\xff"


NAMED = {f"k{number}": 0 for number in range(3000)}


STATE_OF_ALL = pickle.dumps(NAMED, 2)[:-1] + b"q\xff"


CHUNK = b"ctorch.distributed.checkpoint.metadata\nChunkStorageMetadata\nq\xfe"


LAUGHS = b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(200))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04c__builtin__\nbytes\nJ\0\0\0\x10\x85R.",
        b"\x80\x04cbuiltins\nbytes\nJ\0\0\0\x10\x85R.",
        SIZES + b"0](" + b"ctorch\nSize\nh\xff\x85R" * 5000 + b"e.",
        SIZES + b"0](" + b"cbuiltins\nfrozenset\nh\xff\x85R" * 5000 + b"e.",
        STATE_OF_ALL + b"0" + CHUNK + b"0](" + b"h\xfe)\x81h\xffb" * 5000 + b"e.",
        b"\x80\x02})q\0" + LAUGHS + b"Ns.",
        b"\x80\x04Nr\xff\xff\xff\x0f.",
        b"\x80\x04" + b"](" * 5000 + b"e" * 5000 + b".",
    ],
    ids=["bytes", "bytes by another name", "sizes", "sets", "states", "a key", "the memo", "deep"],
)
def test_a_small_file_takes_little_memory(data):
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=URL):
        decode(data, URL, weights_only=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000 + 150 * len(data)


def test_torch_metadata_is_rebuilt_with_shared_objects_kept_shared():
    shape = torch.Size([4])
    chunk = ChunkStorageMetadata(torch.Size([0]), shape)
    tensor = TensorStorageMetadata(TensorProperties(torch.bfloat16), shape, [chunk])
    metadata = Metadata({"a": tensor, "b": tensor}, None, {MetadataIndex("a", (0,)): _StorageInfo("x", 0, 8)})
    made = build(pickle.dumps(metadata))
    assert made == metadata
    assert made.state_dict_metadata["a"] is made.state_dict_metadata["b"]


@pytest.mark.parametrize(
    "thing", [print, os.system, torch.load, torch.nn.Linear], ids=["a builtin", "a program", "torch's own", "a module"]
)
def test_a_name_that_torch_does_not_write_there_is_refused_with_the_way_to_trust_it(thing):
    with pytest.raises(pickle.UnpicklingError, match=r"which torch never writes in metadata.*weights_only=False"):
        build(pickle.dumps({"a": thing}))


def test_a_key_whose_hash_may_cost_anything_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="uses a tuple as a key"):
        build(pickle.dumps({((1, 2), 3): 0}))
