"""CRC-64/XZ, which OSS returns for every object, part and PUT in ``x-oss-hash-crc64ecma``, and MD5, which it checks.

OSS calls it crc64-ecma: the polynomial of ECMA-182, reflected, with all bits inverted before and after, as in xz.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.stores.http.crc import Crc, RunningCrc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.values import Running

__all__ = ["HEADER", "Crc64", "Crc64Md5", "body_headers", "library", "stored_as", "stored_sum"]

HEADER = "x-oss-hash-crc64ecma"  # a decimal number
_DIGITS = 16  # of a CRC-64 in hexadecimal


@cache
def library() -> Callable[..., int]:
    """Return the function for CRC-64/XZ from bytes and an initial value: 60 GB/s on one core, no GIL (design/0028).

    Raises:
        ModuleNotFoundError: fastcrc is not installed (``penstock[oss]``).

    """
    from fastcrc.crc64 import xz

    compute: Callable[..., int] = xz
    return compute


class Crc64(Crc):
    """Running CRC-64/XZ: the digest of a part."""

    __slots__ = ()

    digits = _DIGITS
    library = staticmethod(library)


class Crc64Md5(Crc64):
    """Digest of a PUT: the CRC, and an MD5 that OSS compares before it publishes the object."""

    __slots__ = ("_md5",)

    def __init__(self) -> None:
        """Begin with no bytes."""
        super().__init__()
        self._md5 = md5(usedforsecurity=False)

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""
        super().update(data)
        self._md5.update(data)

    def hexdigest(self) -> str:
        """Return the CRC's 16 hexadecimal digits and the MD5's 32."""
        return f"{super().hexdigest()}{self._md5.hexdigest()}"


def body_headers(digest: str) -> Mapping[str, str]:
    """Return the header that makes OSS compare a body before it keeps it; empty for a digest without an MD5."""
    named = digest[_DIGITS:]
    return {"content-md5": b64encode(bytes.fromhex(named)).decode()} if named else {}


def stored_as(headers: Mapping[str, str], digest: str) -> bool:
    """Return whether the answer to a write names the CRC of the sent bytes; True if it names none."""
    named = headers.get(HEADER, "")
    return not named or named == str(int(digest[:_DIGITS], 16))


def stored_sum(stored: str) -> Running:
    """Begin the comparison of bytes with the store's checksum of a whole object."""
    return RunningCrc(library(), int(stored) if stored.isdecimal() else -1)
