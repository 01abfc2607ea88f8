"""Chunks of stored tensors: each contains each element once, and those that a part overlaps are found."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from penstock.checkpoint.dcp.chunks import StoredChunks, check_chunks, collect_boxes, narrow_chunks
from penstock.errors import CheckpointError


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


def test_chunks_of_a_grid_are_numbered_in_row_major_order():
    chunks = StoredChunks((5, 4), (2, 3), 6)
    assert len(chunks) == 6
    assert [tuple(each.offsets) for each in chunks] == [(0, 0), (0, 3), (2, 0), (2, 3), (4, 0), (4, 3)]
    assert [tuple(each.sizes) for each in chunks[-2:]] == [(1, 3), (1, 1)]
    assert [chunks.number_of(each.offsets) for each in chunks] == list(range(6))
    with pytest.raises(IndexError):
        chunks[6]
    for wrong in ((1, 0), (6, 0), (-2, 0), (0,), (0, 0, 0)):
        with pytest.raises(KeyError):
            chunks.number_of(wrong)


def test_only_the_chunks_that_a_part_overlaps_are_made():
    boxes = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in WINDMILL]
    windmill = StoredChunks((3, 3), (1, 1), 5, lambda: collect_boxes(boxes, 2))
    grid = StoredChunks((1 << 40, 3), (1, 3), 1 << 40)
    part = ChunkStorageMetadata(torch.Size([1, 1]), torch.Size([2, 1]))
    assert windmill.overlapping([part, part]) == [boxes[2], boxes[4]]
    assert [tuple(each.offsets) for each in grid.overlapping([part])] == [(1, 0), (2, 0)]
    assert grid.overlapping([ChunkStorageMetadata(torch.Size([1, 1]), torch.Size([0, 1]))]) == []


def test_a_plan_looks_only_at_chunks_that_the_tensor_overlaps():
    chunks = StoredChunks((6,), (2,), 3)
    stored = TensorStorageMetadata(TensorProperties(torch.int8), torch.Size([6]), chunks)
    assert narrow_chunks(stored, torch.zeros(6)).chunks == list(chunks)
    listed = TensorStorageMetadata(TensorProperties(torch.int8), torch.Size([6]), list(chunks))
    assert narrow_chunks(listed, torch.zeros(6)) is listed
