"""CRC-32C, which Google Cloud Storage returns for every object in ``x-goog-hash`` and checks for every body."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.stores.http.crc import Crc, RunningCrc, RunningHash, from_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.values import Running

__all__ = ["HEADER", "Crc32c", "body_headers", "library", "stored_sum"]

# crc32c=BASE64,md5=BASE64 in one line or in several, in either order.
HEADER = "x-goog-hash"


@cache
def library() -> Callable[..., int]:
    """Return the function for CRC-32C from bytes and an initial value: 33 GB/s on one core, no GIL (100 KiB).

    Raises:
        ModuleNotFoundError: fastcrc is not installed (``penstock[gcs]``).

    """
    from fastcrc.crc32 import iscsi

    compute: Callable[..., int] = iscsi
    return compute


class Crc32c(Crc):
    """Running CRC-32C: the digest of a body."""

    __slots__ = ()

    digits = 8
    library = staticmethod(library)


def body_headers(digest: str) -> Mapping[str, str]:
    """Return the header that makes the service compare a body before it keeps it."""
    return {HEADER: f"crc32c={b64encode(bytes.fromhex(digest)).decode()}"}


def stored_sum(stored: str) -> Running | None:
    """Begin the comparison of bytes with the service's checksum of a whole object.

    The service sends a line for each checksum. If the transport kept only the line with the MD5, that is compared.
    """
    named = dict(each.strip().partition("=")[::2] for each in stored.split(","))
    if crc := named.get("crc32c"):
        return RunningCrc(library(), from_base64(crc))
    if whole := named.get("md5"):
        return RunningHash(md5(usedforsecurity=False), whole)
    return None
