"""A block of an object is held to its own checksum."""

from __future__ import annotations

import xxhash

from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums


def test_a_block_is_held_to_its_own_digest():
    blocks = (b"a" * BLOCK_BYTES, b"b")
    checksums = BlockChecksums(BLOCK_BYTES + 1, b"".join(map(xxhash.xxh3_64_digest, blocks)))
    held = [[checksums.holds(number, block) for block in blocks] for number in (0, 1)]
    assert held == [[True, False], [False, True]]


def test_a_digest_is_a_big_endian_xxh3_so_that_other_programs_may_compare_it():
    empty = bytes.fromhex("2d06800538d394c2")  # XXH3_64bits("") as its specification gives it
    assert BlockChecksums(0, empty).holds(0, b"")
    assert not BlockChecksums(0, empty[::-1]).holds(0, b"")


def test_a_block_beyond_the_object_is_held_by_nothing():
    checksums = BlockChecksums(1, xxhash.xxh3_64_digest(b"a"))
    assert checksums.holds(0, memoryview(b"a"))
    assert not checksums.holds(1, b"")
    assert not checksums.holds(1, b"a")
