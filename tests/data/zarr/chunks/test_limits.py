"""Limits of the look-ahead hold what a process needs, within the memory that it was given."""

import pytest

from penstock.data.order.lanes import open_blocks
from penstock.data.zarr.chunks.limits import limits_of, with_blocks
from penstock.errors import Unusable
from tests.data.zarr.samples.test_arrangement import LARGE, arranged

MIB = 1 << 20


def test_chunk_memory_is_the_remainder_after_batches_and_read_ahead():
    found = limits_of(arranged(LARGE), 4, 32, memory_bytes=64 * MIB, ahead_bytes=256 * MIB)
    assert found.parts == 16
    assert found.chunk_bytes == 48 * MIB - 4 * 32 * 40 * 50 * 4
    assert found.batch_bytes == 4 * 32 * 40 * 50 * 4
    assert 4 * 10 * 2 <= found.samples <= 5000


@pytest.mark.parametrize(
    ("blocks", "batch", "words"), [(4, 4000, "4 batches of 4000"), (1000, 1, "1000 blocks of chunks that are mixed")]
)
def test_too_little_is_refused(blocks, batch, words):
    with pytest.raises(Unusable, match=f"memory_bytes=67108864 leaves .*{words}.*(?s:.*)Raise memory_bytes"):
        limits_of(arranged(LARGE), blocks, batch, memory_bytes=64 * MIB, ahead_bytes=256 * MIB)


@pytest.mark.parametrize(
    ("lanes", "world", "expected"), [(1, 1, 3), (8, 8, 3), (8, 2, 12), (8, 3, 12), (8, 16, 6), (2, 4, 6), (8, 1, 24)]
)
def test_a_rank_has_begun_blocks_of_all_of_its_lanes(lanes, world, expected):
    assert open_blocks(3, lanes, world) == expected


def test_more_blocks_than_planned_look_further_ahead_in_the_same_memory():
    arrangement = arranged(LARGE)
    limits = limits_of(arrangement, 4, 32, memory_bytes=64 * MIB, ahead_bytes=256 * MIB)
    found, words = with_blocks(limits, arrangement, 40)
    assert (found.chunk_bytes, found.parts, words) == (limits.chunk_bytes, limits.parts, "")
    assert found.samples > limits.samples
    found, words = with_blocks(limits, arrangement, 1000)
    assert found.chunk_bytes == limits.chunk_bytes
    assert words.startswith("this epoch mixes 1000 blocks of chunks on this rank, which need ")
    assert "the samples are the same, and chunks that do not fit are read again" in words
