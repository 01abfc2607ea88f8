"""What a pickle of torch's metadata names is made of known classes only, and in memory bounded by its size."""

from __future__ import annotations

import os
import pickle
import tracemalloc

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

from penstock.checkpoint.dcp.torchmeta import build, decode
from penstock.errors import CheckpointError

URL = "s3://bucket/.metadata"


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
    with pytest.raises(pickle.UnpicklingError, match=r"which torch never writes there.*weights_only=False"):
        build(pickle.dumps({"a": thing}))


def test_a_key_whose_hash_may_cost_anything_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="uses a tuple as a key"):
        build(pickle.dumps({((1, 2), 3): 0}))
