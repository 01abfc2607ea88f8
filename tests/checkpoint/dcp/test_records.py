"""An index of items: decoded as it was encoded, refused if it is impossible, and read in part."""

from __future__ import annotations

import json
from itertools import pairwise, product
from uuid import uuid4

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from penstock.checkpoint.commit import CommittedCheckpoint
from penstock.checkpoint.dcp import chunks, records
from penstock.checkpoint.dcp.records import ItemLocation, check_size, decode, encode
from penstock.checkpoint.integrity import BlockChecksums
from penstock.errors import CheckpointError, Unusable
from penstock.source import Source, open_source
from tests.checkpoint.dcp.indexes import mesh_checkpoint, publish_columns

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


URL = "memory://records/checkpoint.json"


def _publish(columns, objects=OBJECTS, **lengths):
    source, folder = open_source(f"memory://{uuid4().hex}/")
    for name, checksums in objects.items():
        source.put(folder + name, bytes(checksums.size))
    return publish_columns(source, folder, columns, objects, **lengths)


def _tables(metadata):
    return {
        name: (stored.properties, stored.size, list(stored.chunks)) if hasattr(stored, "chunks") else stored
        for name, stored in metadata.state_dict_metadata.items()
    }


@pytest.mark.parametrize("paths", [PATHS, None])
def test_encoded_metadata_decodes_to_the_same_value_in_order(paths):
    found = decode(_publish(encode(Metadata(STATE, paths), PLACED, OBJECTS)), URL)
    assert _tables(found) == _tables(Metadata(STATE))
    assert found.planner_data == paths
    assert list(found.state_dict_metadata) == list(STATE), "in its order"
    for index, each in zip(PLACED, found.storage_data.find(list(PLACED)), strict=True):
        assert each.location == PLACED[index]._replace(checksums=None)
        assert each.of.checksums == CHECKSUMS


def _changed(name, *changes):
    columns = encode(Metadata(STATE, PATHS), PLACED, OBJECTS)
    if name == "text":
        document = at = json.loads(columns["text"].tobytes())
        *path, last, value = changes
        for step in path:
            at = at[step]
        at[last] = value
        columns["text"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    else:
        columns[name] = columns[name].copy()
        number, value = changes
        columns[name][number] = value
    return columns


# Items: w of two chunks, é.0 of 100 bytes, the scalar zero. Rows: é.0 and zero, which have one each, then w's.
@pytest.mark.parametrize(
    "changes",
    [
        ("text", "dtypes", 0, "load"),
        ("text", "dtypes", 0, "no_such"),
        ("text", "dtypes", 0, "qint8"),
        ("text", "dtypes", 0, 4),
        ("text", "dtypes", {}),
        ("text", "dtypes", []),
        ("text", "names", 0, "zero"),
        ("text", "names", 0, None),
        ("text", "names", ["w", "zero"]),
        ("text", "names", ["w", "é.0", "zero", "more"]),
        ("text", "names", {}),
        ("text", "paths", []),
        ("text", "paths", "w", [["w"]]),
        ("text", "paths", "w", "w"),
        ("kinds", 0, 2),
        ("dimensions", 0, 1),
        ("dimensions", 2, 1),
        ("boxed", 0, -1),
        ("boxed", 0, 2),
        ("boxed", 1, 1 << 62),
        ("sizes", 0, 6),
        ("sizes", 0, -4),
        ("sizes", 0, 1 << 62),
        ("sizes", 2, -100),
        ("steps", 0, 0),
        ("steps", 0, -2),
        ("steps", 0, 1),
    ],
    ids=str,
)
def test_invalid_column_value_is_refused_with_the_manifest_url(changes):
    with pytest.raises(CheckpointError, match=r"the index describes invalid tensors.*checkpoint\.json"):
        decode(_publish(_changed(*changes)), URL)


@pytest.mark.parametrize(
    "changes",
    [
        ("rows", 3, (1, 989)),
        ("rows", 3, (1, (1 << 63) + 12)),
        ("rows", 3, (1, 1 << 62)),
        ("rows", 2, (2, 0)),
        ("rows", 2, ((1 << 32) - 1, 0)),
        ("rows", 0, (0, 11)),
        ("sizes", 2, 10_000),
    ],
    ids=str,
)
def test_invalid_row_is_refused_when_its_item_is_looked_for(changes):
    items = decode(_publish(_changed(*changes)), URL).storage_data
    with pytest.raises(CheckpointError, match=r"the index describes invalid tensors.*checkpoint\.json"):
        items.find(list(PLACED))


@given(st.data())
def test_any_byte_of_an_index_may_be_wrong_and_no_other_error_is_raised(data):
    columns = {name: each.copy() for name, each in encode(Metadata(STATE, PATHS), PLACED, OBJECTS).items()}
    memory = columns[data.draw(st.sampled_from([name for name, each in columns.items() if len(each)]))].view(np.uint8)
    for _ in range(data.draw(st.integers(1, 3))):
        memory[data.draw(st.integers(0, len(memory) - 1))] = data.draw(st.integers(0, 255))
    try:
        metadata = decode(_publish(columns), URL)
        for name, stored in metadata.state_dict_metadata.items():
            for chunk in getattr(stored, "chunks", ()):
                metadata.storage_data.find([MetadataIndex(name, chunk.offsets)])
        metadata.storage_data.find(list(PLACED))
    except CheckpointError:
        pass


@pytest.mark.parametrize(
    "index",
    [MetadataIndex("no"), MetadataIndex("w", (1, 0)), MetadataIndex("w", (4, 0)), MetadataIndex("w", (0,))],
    ids=str,
)
def test_an_item_that_the_index_lacks_is_refused_by_its_name(index):
    items = decode(_publish(encode(Metadata(STATE, PATHS), PLACED, OBJECTS)), URL).storage_data
    with pytest.raises(CheckpointError, match="does not record the location"):
        items.find([index])


def test_items_whose_bytes_overlap_are_not_written():
    placed = {**PLACED, MetadataIndex("zero", ()): ItemLocation("ab/0.data", 111, 8, CHECKSUMS)}
    with pytest.raises(CheckpointError, match="two items contain the same byte"):
        encode(Metadata(STATE, PATHS), placed, OBJECTS)
    placed = {**PLACED, MetadataIndex("zero", ()): ItemLocation("ab/0.data", 993, 8, CHECKSUMS)}
    with pytest.raises(CheckpointError, match="beyond the end"):
        encode(Metadata(STATE, PATHS), placed, OBJECTS)


@given(st.data())
def test_chunks_of_any_grid_or_boxes_are_found_where_they_were_saved(data):
    cuts = [
        sorted({0, *data.draw(st.lists(st.integers(0, size), max_size=4)), size})
        for size in data.draw(st.lists(st.integers(0, 9), max_size=3))
    ]
    size = torch.Size([each[-1] for each in cuts])
    boxes = [
        ChunkStorageMetadata(torch.Size([low for low, _ in cell]), torch.Size([high - low for low, high in cell]))
        for cell in product(*(list(pairwise(each)) or [(0, 0)] for each in cuts))
    ]
    boxes, at = data.draw(st.permutations(boxes)), 0
    placed, names = {}, data.draw(st.lists(st.sampled_from(list(OBJECTS)), min_size=len(boxes), max_size=len(boxes)))
    for box, name in zip(boxes, names, strict=True):
        placed[MetadataIndex("w", box.offsets)] = ItemLocation(name, at, box.sizes.numel(), CHECKSUMS)
        at += box.sizes.numel()
    stored = TensorStorageMetadata(TensorProperties(torch.uint8), size, boxes)
    found = decode(_publish(encode(Metadata({"w": stored}), placed, OBJECTS)), URL)
    filled = [box for box in boxes if all(box.sizes)]
    kept = found.state_dict_metadata["w"].chunks
    assert sorted(kept, key=str) == sorted(filled, key=str)
    indexes = [MetadataIndex("w", box.offsets) for box in filled]
    for box, index, each in zip(filled, indexes, found.storage_data.find(indexes), strict=True):
        assert (each.location, each.sizes) == (placed[index]._replace(checksums=None), tuple(box.sizes))
    part = ChunkStorageMetadata(size, size) if not size else data.draw(st.sampled_from(boxes))
    assert kept.overlapping([part]) == [box for box in filled if box == part]


@pytest.mark.parametrize("planned", [["mine"], {"w": 7}, {"w": (torch.Size([1]),)}, {"w": ({},)}])
def test_a_planners_own_data_is_refused_and_the_way_out_is_named(planned):
    with pytest.raises(Unusable, match='layout="torch"'):
        encode(Metadata(STATE, planned), PLACED, OBJECTS)


def _plans(ranks, names):
    chunk = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([4, 8]))
    data = TensorWriteData(chunk, TensorProperties(torch.bfloat16), torch.Size([4 * ranks, 8]))
    items = [WriteItem(MetadataIndex(f"layer{n}", [0, 0]), WriteItemType.SHARD, tensor_data=data) for n in range(names)]
    return [SavePlan(items, planner_data={f"layer{n}": (f"layer{n}",) for n in range(names)})] * ranks


def test_too_many_chunks_for_an_index_are_refused_from_the_plans(monkeypatch):
    check_size(_plans(4096, 500))
    monkeypatch.setattr(records, "MOST_INDEX_BYTES", 80 << 20)
    with pytest.raises(Unusable, match="cannot save 2,048,000 parts of 500 tensors in one checkpoint: its index"):
        check_size(_plans(4096, 500))


def test_the_size_estimated_from_plans_bounds_that_of_the_index(monkeypatch):
    plans, locations, stored, objects = _plans(40, 30), {}, {}, {}
    for rank, plan in enumerate(plans):
        name = f"{'a' * 32}/{rank}.data"
        objects[name] = BlockChecksums(64 * 30, bytes(8))
        for number, item in enumerate(plan.items):
            stored.setdefault(item.index.fqn, []).append(
                ChunkStorageMetadata(torch.Size([4 * rank, 0]), torch.Size([4, 8]))
            )
            index = MetadataIndex(item.index.fqn, [4 * rank, 0])
            locations[index] = ItemLocation(name, 64 * number, 64)
    stored = {
        name: TensorStorageMetadata(TensorProperties(torch.bfloat16), torch.Size([160, 8]), each)
        for name, each in stored.items()
    }
    columns = encode(Metadata(stored, plans[0].planner_data), locations, objects)
    text, size = columns["text"], sum(each.nbytes for each in columns.values())
    values = sum(map(text.tobytes().count, (b"{", b"[", b",")))
    for name, most in (("MOST_MANIFEST_VALUES", values - 1), ("MOST_BYTES", len(text) - 1), ("MOST_INDEX_BYTES", size)):
        with monkeypatch.context() as alone, pytest.raises(Unusable):
            alone.setattr(records, name, most)
            check_size(plans)
    monkeypatch.setattr(records, "MOST_MANIFEST_VALUES", 2 * values)
    monkeypatch.setattr(records, "MOST_BYTES", 8 * len(text))
    monkeypatch.setattr(records, "MOST_INDEX_BYTES", 4 * size)
    check_size(plans)


# Growth: a rank of a checkpoint of many ranks.


def test_a_made_up_mesh_is_encoded_as_a_saved_one():
    columns, objects = mesh_checkpoint(3, 4)
    metadata = decode(_publish(columns, objects), URL)
    placed = {
        MetadataIndex(name, chunk.offsets): metadata.storage_data.find([MetadataIndex(name, chunk.offsets)])[0].location
        for name, stored in metadata.state_dict_metadata.items()
        for chunk in stored.chunks
    }
    again = encode(metadata, placed, objects)
    assert {name: each.tolist() for name, each in again.items()} == {k: v.tolist() for k, v in columns.items()}


def _load_part(tmp_path, monkeypatch, ranks, readers):
    """Return the chunks that one of ``readers`` ranks makes of a checkpoint of ``ranks``, and its requests."""
    columns, objects = mesh_checkpoint(ranks, 1000)
    source, folder = open_source(f"{tmp_path}/{ranks}/")
    published = publish_columns(source, folder, columns, objects)
    whole = published.manifest.objects[published.manifest.content["index"]["object"]].size
    made, spans, scatter = [], [], Source.scatter

    def counted(self, places, *rest):
        return scatter(self, ((spans.append(span), (span, memory))[1] for span, memory in places), *rest)

    with monkeypatch.context() as alone:
        alone.setattr(chunks, "ChunkStorageMetadata", lambda *box: made.append(box) or ChunkStorageMetadata(*box))
        alone.setattr(Source, "scatter", counted)
        alone.setattr(CommittedCheckpoint, "objects", _without_heads)
        committed = CommittedCheckpoint(source, folder)
        metadata, indexes = decode(committed, URL), []
        for name, stored in metadata.state_dict_metadata.items():
            rows = ranks // readers
            part = ChunkStorageMetadata(torch.Size([ranks // 2, 0]), torch.Size([rows, 8]))
            indexes += [MetadataIndex(name, each.offsets) for each in stored.chunks.overlapping([part])]
        found = metadata.storage_data.find(indexes)
    assert len(found) == 1000 * rows
    return len(made), len(spans), sum(span.stop - span.start for span in spans), whole


def _without_heads(committed, names):
    return dict.fromkeys(names) | {name: committed._checksums(names) for name in names[:1]}


def test_a_rank_reads_and_makes_as_much_of_a_checkpoint_of_any_number_of_ranks(tmp_path, monkeypatch):
    for ranks in (16, 256, 4096):
        made, requests, size, whole = _load_part(tmp_path, monkeypatch, ranks, ranks)
        assert made == 1000, "each of its chunks once"
        assert requests <= 3
        assert size <= min(whole, 5 << 20)
    assert whole > 40 << 20


def test_few_ranks_read_their_part_of_a_checkpoint_of_many_and_not_more(tmp_path, monkeypatch):
    made, requests, size, whole = _load_part(tmp_path, monkeypatch, 4096, 128)
    assert made == 32 * 1000
    assert requests <= 3
    assert size <= 6 << 20 < whole // 4
