"""The checksums that S3 and its like name of an object, ``x-amz-checksum-*``, each by a library that costs little.

A multipart object's may be one of its parts' checksums (``…-3``), and not of its bytes: that cannot be compared.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache
from hashlib import md5, sha256
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.drivers.http.verify import Digest
    from penstock.protocols.driver import Payload

__all__ = ["WithMD5", "digests", "md5_of", "sha256_of"]

_importing = RLock()  # a signal's handler may fork on the thread that imports
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)

_PREFIX = "x-amz-checksum-"
_SHA256, _MD5 = 64, 32  # hexadecimal digits


class WithMD5:
    """The SHA-256 that a signature takes and, behind it, the MD5 that some buckets want of each body."""

    __slots__ = ("_md5", "_sha256")

    def __init__(self) -> None:
        """Begin both."""
        self._sha256, self._md5 = sha256(), md5(usedforsecurity=False)

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""
        self._sha256.update(data)
        self._md5.update(data)

    def hexdigest(self) -> str:
        """Return both digests of all bytes so far."""
        return self._sha256.hexdigest() + self._md5.hexdigest()


def sha256_of(body: Payload) -> str:
    """Return the SHA-256 of a body in hexadecimal; empty where it was not computed."""
    return body.digest[:_SHA256]


def md5_of(body: Payload) -> str:
    """Return the MD5 of a body for ``Content-MD5``; it is computed here, once, where the body was made before."""
    named = body.digest[_SHA256:] or body.later.get("md5", "")
    if len(named) != _MD5:
        named = body.later["md5"] = md5(body.data, usedforsecurity=False).hexdigest()
    return b64encode(bytes.fromhex(named)).decode()


def _compared(compute: Callable[[memoryview | bytes], bytes]) -> Digest:
    """Return the comparison of a stored checksum with the one that ``compute`` returns of the bytes."""

    def matches(stored: str, body: memoryview | bytes) -> bool:
        return "-" in stored or b64encode(compute(body)).decode() == stored

    return matches


def _crc32c(body: memoryview | bytes) -> bytes:
    return _crt().crc32c(body).to_bytes(4, "big")  # type: ignore[no-any-return, attr-defined]


def _crc64nvme(body: memoryview | bytes) -> bytes:
    return _crt().crc64nvme(body).to_bytes(8, "big")  # type: ignore[no-any-return, attr-defined]


@cache
def _crt() -> object:
    """Return awscrt's checksums: 40 to 60 GB/s on one core, without the GIL, and no thread is started (design/0030).

    Importing them takes 0.1 to 0.3 s, so the first answer that names such a checksum does, on whatever thread it is
    verified; a fork waits for its end, or the child's import would wait for a thread that it does not have.
    """
    with _importing:
        from awscrt import checksums

    return checksums


@cache
def digests() -> Mapping[str, Digest]:
    """Return the comparisons by header; CRC-32C and CRC-64/NVME only where awscrt is installed (``penstock[s3]``)."""
    found: dict[str, Digest] = {
        f"{_PREFIX}crc32": _compared(lambda body: crc32(body).to_bytes(4, "big")),
        f"{_PREFIX}sha256": _compared(lambda body: sha256(body).digest()),
    }
    if find_spec("awscrt") is not None:
        found |= {f"{_PREFIX}crc64nvme": _compared(_crc64nvme), f"{_PREFIX}crc32c": _compared(_crc32c)}
    return found
