"""One figure for what a process holds; what cannot fit is refused with what to change."""

import pytest

from penstock.datasets.zarr.memory import limits_of
from penstock.errors import Unusable
from tests.datasets.zarr.samples.test_arrangement import LARGE, arranged

MIB = 1 << 20


def test_what_is_left_for_chunks():
    found = limits_of(arranged(LARGE), 4, 32, memory_bytes=64 * MIB, ahead_bytes=256 * MIB)
    assert found.parts == 16
    assert found.chunk_bytes == 48 * MIB - 3 * 32 * 40 * 50 * 4
    assert 4 * 10 * 2 <= found.samples <= 5000


@pytest.mark.parametrize(
    ("blocks", "batch", "words"),
    [(4, 4000, "3 batches of 4000"), (1000, 1, "1000 blocks of chunks that are mixed")],
)
def test_too_little_is_refused(blocks, batch, words):
    with pytest.raises(Unusable, match=f"memory_bytes=67108864 leaves .*{words}.*(?s:.*)Raise memory_bytes"):
        limits_of(arranged(LARGE), blocks, batch, memory_bytes=64 * MIB, ahead_bytes=256 * MIB)
