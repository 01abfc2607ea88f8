"""CRC-64/XZ, which OSS names of every object, part and PUT in ``x-oss-hash-crc64ecma``, and MD5, which it checks.

OSS calls it crc64-ecma: the polynomial of ECMA-182, reflected, with all bits inverted before and after, as xz has it.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.drivers.http.crc import Crc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["HEADER", "Crc64", "Crc64Md5", "body_headers", "is_crc64", "library", "stored_as"]

HEADER = "x-oss-hash-crc64ecma"  # a decimal number
_DIGITS = 16  # of a CRC-64 in hexadecimal


@cache
def library() -> Callable[..., int]:
    """Return CRC-64/XZ of bytes, from an initial value: 60 GB/s on one core, without the GIL (design/0028).

    Raises:
        ModuleNotFoundError: fastcrc is not installed (``penstock[oss]``).

    """
    from fastcrc.crc64 import xz

    compute: Callable[..., int] = xz
    return compute


class Crc64(Crc):
    """A CRC-64/XZ under way: the digest of a part."""

    __slots__ = ()

    digits = _DIGITS
    library = staticmethod(library)


class Crc64Md5(Crc64):
    """The digest of a PUT, which is published at once: an MD5 besides, which OSS compares before it is."""

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
    """Return the header that has OSS compare a body before it keeps it, for a digest that has an MD5."""
    named = digest[_DIGITS:]
    return {"content-md5": b64encode(bytes.fromhex(named)).decode()} if named else {}


def stored_as(headers: Mapping[str, str], digest: str) -> bool:
    """Say whether the answer to a write names the CRC of what was sent; True where it names none."""
    named = headers.get(HEADER, "")
    return not named or named == str(int(digest[:_DIGITS], 16))


def is_crc64(stored: str, body: memoryview | bytes) -> bool:
    """Say whether the store's checksum of a whole object is that of the bytes."""
    return stored == str(library()(body))
