"""CRC-32C, which Google Cloud Storage names of every object in ``x-goog-hash`` and compares with what it is sent."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.drivers.http.crc import Crc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["HEADER", "Crc32c", "body_headers", "is_stored", "library"]

HEADER = "x-goog-hash"  # crc32c=BASE64,md5=BASE64 in one line or in several, and in either order


@cache
def library() -> Callable[..., int]:
    """Return CRC-32C of bytes, from an initial value: 33 GB/s on one core, without the GIL (100 KiB).

    Raises:
        ModuleNotFoundError: fastcrc is not installed (``penstock[gcs]``).

    """
    from fastcrc.crc32 import iscsi

    compute: Callable[..., int] = iscsi
    return compute


class Crc32c(Crc):
    """A CRC-32C under way: the digest of a body."""

    __slots__ = ()

    digits = 8
    library = staticmethod(library)


def body_headers(digest: str) -> Mapping[str, str]:
    """Return the header that has the service compare a body before it keeps it."""
    return {HEADER: f"crc32c={b64encode(bytes.fromhex(digest)).decode()}"}


def is_stored(stored: str, body: memoryview | bytes) -> bool:
    """Say whether the service's checksum of a whole object is that of the bytes.

    The service sends a line for each checksum. Where the transport kept the one with the MD5 only, that is compared.
    """
    named = dict(each.strip().partition("=")[::2] for each in stored.split(","))
    if crc := named.get("crc32c"):
        return crc == b64encode(library()(body).to_bytes(4, "big")).decode()
    if whole := named.get("md5"):
        return whole == b64encode(md5(body, usedforsecurity=False).digest()).decode()
    return True
