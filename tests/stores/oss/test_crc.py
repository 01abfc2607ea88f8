"""OSS's checksum is CRC-64/XZ; a PUT's digest has an MD5 besides, and begins with that of a part."""

from __future__ import annotations

import base64
import hashlib

import pytest

from penstock.stores.oss.dialect import Crc64, Crc64Md5, body_headers, stored_as, stored_sum
from penstock.values import Checksum

CHECK = 0x995DC9BBDF1939FA  # of b"123456789": the catalogue of parametrised CRC algorithms


def _digest(kind, *pieces):
    digest = kind()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@pytest.mark.parametrize(
    "pieces", [(b"123456789",), (b"1234", bytearray(b"56"), memoryview(b"789")), (b"", b"123456789")]
)
def test_the_checksum_is_the_catalogues(pieces):
    assert _digest(Crc64, *pieces) == f"{CHECK:016x}"
    assert _digest(Crc64) == "0" * 16


def test_a_puts_digest_begins_with_a_parts():
    digest = _digest(Crc64Md5, b"1234", b"56789")
    assert digest == f"{CHECK:016x}{hashlib.md5(b'123456789', usedforsecurity=False).hexdigest()}"
    named = base64.b64encode(bytes.fromhex(digest[16:])).decode()
    assert body_headers(digest) == {"content-md5": named}
    assert body_headers(digest[:16]) == {}


def test_stored_checksum_is_compared_with_the_digest():
    digest = _digest(Crc64Md5, b"123456789")
    assert stored_as({"x-oss-hash-crc64ecma": str(CHECK)}, digest)
    assert stored_as({}, digest)
    assert not stored_as({"x-oss-hash-crc64ecma": str(CHECK ^ 1)}, digest)
    assert Checksum("", str(CHECK), stored_sum).holds(b"123456789")
    assert not Checksum("", str(CHECK), stored_sum).holds(memoryview(b"123456780"))
    assert not Checksum("", "no number", stored_sum).holds(b"123456789")
