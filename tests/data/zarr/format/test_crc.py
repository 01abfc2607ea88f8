"""The CRC-32C at the end of bytes is compared."""

from __future__ import annotations

import sys

import pytest

from penstock.data.zarr.format import steps
from penstock.errors import ChecksumMismatch, MissingExtra

RFC = bytes.fromhex("00" * 32), bytes.fromhex("aa36918a")  # RFC 3720, B.4: 32 bytes of zeroes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_before_a_checksum_that_matches(kind):
    assert bytes(steps.verify_crc32c(kind(b"".join(RFC)), "it")) == RFC[0]


@pytest.mark.parametrize("at", [0, 31, 32, 35])
def test_a_flipped_bit_is_found(at):
    data = bytearray(b"".join(RFC))
    data[at] ^= 16
    with pytest.raises(ChecksumMismatch, match=r"CRC-32C of the index .*32 bytes.*s3://b/k"):
        steps.verify_crc32c(data, "the index", "s3://b/k")


@pytest.mark.parametrize("size", range(4))
def test_too_few_bytes_for_a_checksum(size):
    with pytest.raises(ChecksumMismatch):
        steps.verify_crc32c(bytes(size), "it")
    assert bytes(steps.verify_crc32c(bytes(4), "nothing")) == b""  # whose checksum is 0


def test_without_the_library_the_extra_is_named(monkeypatch):
    steps._load_crc32c.cache_clear()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(MissingExtra, match=r"penstock\[zarr\]"):
        steps.verify_crc32c(b"".join(RFC), "it")
