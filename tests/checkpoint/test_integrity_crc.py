"""CRC-32 is CRC-32, whoever computes it."""

from __future__ import annotations

import random
import sys
import zlib

import pytest

from penstock.checkpoint import integrity


@pytest.mark.parametrize("isal", [True, False])
def test_crc32_matches_zlib_for_entire_data_and_for_pieces(monkeypatch, seed, isal):
    if not isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    integrity.fast.cache_clear()
    monkeypatch.setattr(integrity, "_PIECE_BYTES", 1000)
    data = memoryview(random.Random(seed).randbytes(12_345))
    try:
        assert (integrity.fast() is not None) is isal
        assert integrity.crc32(data) == zlib.crc32(data)
        assert integrity.crc32(data[5000:], integrity.crc32(data[:5000])) == zlib.crc32(data)
        assert integrity.crc32(data[:0]) == 0
    finally:
        monkeypatch.undo()
        integrity.fast.cache_clear()
