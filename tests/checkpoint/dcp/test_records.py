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
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from penstock.checkpoint.dcp import records
from penstock.checkpoint.dcp.records import ItemLocation, check_chunks, check_size, decode, encode
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
        (["state", 1, "start"], 11),
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


def _tensor(size, *chunks):
    boxes = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks]
    return Metadata({"w": TensorStorageMetadata(TensorProperties(torch.int8), torch.Size(size), boxes)})


QUARTERS = [((row, column), (2, 2)) for row in (0, 2) for column in (0, 2)]
WINDMILL = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]


@pytest.mark.parametrize(
    ("size", "chunks"),
    [
        ((), [((), ())]),
        ((0, 3), []),
        ((0, 3), [((0, 0), (0, 3))]),
        ((4,), [((0,), (3,)), ((3,), (1,)), ((4,), (0,))]),
        ((4, 4), QUARTERS[::-1]),
        ((3, 3), WINDMILL),
    ],
    ids=str,
)
def test_chunks_that_contain_each_element_once_are_accepted(size, chunks):
    check_chunks(_tensor(size, *chunks), "url")


@pytest.mark.parametrize(
    ("size", "chunks", "message"),
    [
        ((), [], "leave out"),
        ((), [((), ()), ((), ())], "overlap"),
        ((4,), [], "leave out"),
        ((4, 4), QUARTERS[1:], "leave out"),
        ((4, 4), [*QUARTERS[1:], QUARTERS[1]], "overlap"),
        ((4, 4), [*QUARTERS[1:], ((0, 1), (2, 2))], "overlap"),
        ((3, 3), WINDMILL[:-1], "leave out"),
        ((3, 3), [*WINDMILL, ((2, 2), (1, 1))], "overlap"),
        ((4,), [((0,), (5,))], "reach beyond"),
        ((4,), [((-1,), (5,))], "reach beyond"),
        ((4,), [((0, 0), (4, 1))], "number of dimensions"),
        ((1 << 62, 4), [((0, 0), (1, 4))], "impossible"),
    ],
    ids=str,
)
def test_chunks_with_holes_or_overlaps_are_refused(size, chunks, message):
    with pytest.raises(CheckpointError, match=rf"the chunks of tensor 'w' .*{message}.*url"):
        check_chunks(_tensor(size, *chunks), "url")


def _plans(ranks, names):
    chunk = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([4, 8]))
    data = TensorWriteData(chunk, TensorProperties(torch.bfloat16), torch.Size([4 * ranks, 8]))
    items = [WriteItem(MetadataIndex(f"layer{n}", [0, 0]), WriteItemType.SHARD, tensor_data=data) for n in range(names)]
    return [SavePlan(items, planner_data={f"layer{n}": (f"layer{n}",) for n in range(names)})] * ranks


def test_too_many_chunks_for_a_manifest_are_refused_from_the_plans():
    check_size(_plans(1024, 500))
    with pytest.raises(Unusable, match="cannot save 2,048,000 parts of tensors in one checkpoint: its manifest"):
        check_size(_plans(4096, 500))


def test_the_size_estimated_from_plans_bounds_that_of_the_manifest(monkeypatch):
    plans, locations, chunks = _plans(40, 30), {}, {}
    for rank, plan in enumerate(plans):
        for number, item in enumerate(plan.items):
            chunks.setdefault(item.index.fqn, []).append(
                ChunkStorageMetadata(torch.Size([4 * rank, 0]), torch.Size([4, 8]))
            )
            index = MetadataIndex(item.index.fqn, [4 * rank, 0])
            locations[index] = ItemLocation(f"{'a' * 32}/{rank}.data", 64 * number, 64)
    stored = {
        name: TensorStorageMetadata(TensorProperties(torch.bfloat16), torch.Size([160, 8]), each)
        for name, each in chunks.items()
    }
    content = encode(Metadata(stored, plans[0].planner_data), locations)
    data = json.dumps(content, separators=(",", ":")).encode()
    values = sum(map(data.count, (b"{", b"[", b",")))
    for name, most in (("MOST_MANIFEST_VALUES", values - 1), ("MOST_BYTES", len(data) - 1)):
        with monkeypatch.context() as alone, pytest.raises(Unusable):
            alone.setattr(records, name, most)
            check_size(plans)
    monkeypatch.setattr(records, "MOST_MANIFEST_VALUES", 2 * values)
    monkeypatch.setattr(records, "MOST_BYTES", 3 * len(data))
    check_size(plans)
