"""Vectors are described where they lie, one after another; whole files that lie are refused in ``test_saved``."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.table import TableBuilder, described, pad_vectors, vectors_of


def test_vectors_lie_at_their_declared_aligned_offsets():
    growing = TableBuilder()
    for number in range(40):
        growing.add(b"k" * number, number, "e", number)
    vectors, values = vectors_of(growing.freeze())
    assert described([each._asdict() for each in vectors]) == vectors
    whole = b"".join(map(bytes, pad_vectors(vectors, values)))
    assert len(whole) == vectors[-1].stop
    for each, numbers in zip(vectors, values, strict=True):
        assert each.offset % 64 == 0
        assert whole[each.offset : each.stop] == numbers.values.tobytes()


def _catalog(count, name):
    growing = TableBuilder()
    for number in range(count):
        growing.add(f"{name}{number:07}{'x' * (number % 3)}".encode(), number, f"{number:032x}", number)
    return make_catalog("s3://bucket/", "", growing.freeze())


def _pieces():
    """Count the pieces of shared memory that this process holds; mmap has a descriptor of its own for each."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists them
            if "memfd:penstock" in str(each.readlink()):
                found.add(each.stat().st_ino)
    return len(found)


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc says is open")
def test_large_catalog_or_sum_occupies_a_single_memory_block():
    before = _pieces()
    first = _catalog(20_000, "a")
    assert _pieces() == before + 1
    second = _catalog(20_000, "b")
    both = first + second
    assert _pieces() == before + 3
    kept = [first[0], second[19_999]]
    assert [both[0], both[39_999]] == kept
    del first, second
    assert _pieces() == before + 1
    assert [both[0], both[39_999]] == kept
