"""What a manifest says of tensors: comes back as it was said, and cannot say what cannot be."""

from __future__ import annotations

import json

import pytest
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.dcp.records import ItemLocation, decode, encode
from penstock.checkpoint.integrity import BlockChecksums
from penstock.errors import CheckpointError, Unusable

CHECKSUMS = BlockChecksums(1000, bytes(8))
OBJECTS = {"ab/0.data": CHECKSUMS, "ab/1.data": CHECKSUMS}
STATE = {
    "w": TensorStorageMetadata(
        TensorProperties(torch.bfloat16),
        torch.Size([4, 3]),
        [ChunkStorageMetadata(torch.Size([at, 0]), torch.Size([2, 3])) for at in (0, 2)],
    ),
    "é.0": BytesStorageMetadata(),
    "zero": TensorStorageMetadata(
        TensorProperties(torch.int64), torch.Size([]), [ChunkStorageMetadata(torch.Size([]), torch.Size([]))]
    ),
}
PLACED = {
    MetadataIndex("w", (0, 0)): ItemLocation("ab/0.data", 0, 12, CHECKSUMS),
    MetadataIndex("w", (2, 0)): ItemLocation("ab/1.data", 988, 12, CHECKSUMS),
    MetadataIndex("é.0"): ItemLocation("ab/0.data", 12, 100, CHECKSUMS),
    MetadataIndex("zero", ()): ItemLocation("ab/0.data", 112, 8, CHECKSUMS),
}
PATHS = {"w": ("w",), "é.0": ("é", 0), "zero": ("zero",)}


def _content():
    return json.loads(json.dumps(encode(Metadata(STATE, PATHS), PLACED)))


@pytest.mark.parametrize("paths", [PATHS, None])
def test_encoded_metadata_decodes_to_the_same_value_in_order(paths):
    content = json.loads(json.dumps(encode(Metadata(STATE, paths), PLACED)))
    found = decode(content, OBJECTS, "s3://bucket/checkpoint.json")
    assert found == Metadata(STATE, paths, PLACED)
    assert list(found.state_dict_metadata) == list(STATE), "in its order"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["state", 0, "dtype"], "load"),
        (["state", 0, "dtype"], "no_such"),
        (["state", 0, "dtype"], "qint8"),
        (["state", 0, "dtype"], 4),
        (["state", 0, "size"], [4]),
        (["state", 0, "size"], [3, 3]),
        (["state", 0, "chunks", 0, "offsets"], [-1, 0]),
        (["state", 0, "chunks", 0, "offsets"], [True, 0]),
        (["state", 0, "chunks", 0, "offsets"], [0, 1]),
        (["state", 0, "chunks", 0, "sizes"], [2.5, 3]),
        (["state", 0, "chunks", 1, "start"], 989),
        (["state", 0, "chunks", 1, "start"], 1 << 70),
        (["state", 0, "chunks", 0, "object"], 2),
        (["state", 0, "chunks", 0, "object"], -1),
        (["state", 0, "name"], "zero"),
        (["state", 0, "name"], None),
        (["state", 0, "chunks", 0, "sizes"], [1 << 62, 4]),
        (["state", 1, "length"], -100),
        (["state", 1, "length"], 10_000),
        (["state", 2, "size"], [1 << 80]),
        (["state"], {}),
        (["state"], [7]),
        (["objects"], ["../secret", "ab/0.data"]),
        (["paths"], []),
        (["paths", "w"], [["w"]]),
        (["paths", "w"], "w"),
    ],
)
def test_invalid_record_value_is_refused_with_the_manifest_url(path, value):
    content = at = _content()
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert content != _content()
    with pytest.raises(CheckpointError, match=r"s3://bucket/checkpoint\.json"):
        decode(content, OBJECTS, "s3://bucket/checkpoint.json")


@pytest.mark.parametrize("planned", [["mine"], {"w": 7}, {"w": (torch.Size([1]),)}, {"w": ({},)}])
def test_a_planners_own_data_is_refused_and_the_way_out_is_named(planned):
    with pytest.raises(Unusable, match='layout="torch"'):
        encode(Metadata(STATE, planned), PLACED)
