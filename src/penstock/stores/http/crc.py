"""Running checksums: CRCs with the interface of ``hashlib``, and comparison of bytes with a store's checksum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from binascii import Error, a2b_base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash

__all__ = ["Crc", "RunningCrc", "RunningHash", "from_base64"]


class Crc(ABC):
    """Digest of a body, computed by a function of bytes and an initial value.

    Attributes:
        digits: Hexadecimal digits of the digest.

    """

    __slots__ = ("_compute", "_crc")

    digits: int

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._compute = self.library()
        self._crc = 0

    @staticmethod
    @abstractmethod
    def library() -> Callable[..., int]:
        """Import the library and return its function."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""
        self._crc = self._compute(data, self._crc)

    def hexdigest(self) -> str:
        """Return the digest as ``digits`` hexadecimal digits."""
        return f"{self._crc:0{self.digits}x}"


class RunningCrc:
    """Comparison of bytes with a CRC (``values.Running``)."""

    __slots__ = ("_compute", "_crc", "_expected")

    def __init__(self, compute: Callable[..., int], expected: int) -> None:
        """Begin with no bytes; ``compute(data, initial)`` returns the CRC, which must become ``expected``."""
        self._compute, self._crc, self._expected = compute, 0, expected

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""
        self._crc = self._compute(data, self._crc)

    def matches(self) -> bool:
        """Return whether this is the CRC of the bytes so far."""
        return self._crc == self._expected


class RunningHash:
    """Comparison of bytes with a digest in base64 (``values.Running``)."""

    __slots__ = ("_expected", "_hash", "update")

    def __init__(self, begun: _Hash, expected: str) -> None:
        """Begin with a hash of no bytes, whose final digest must be ``expected``."""
        self._hash, self._expected = begun, expected
        self.update = begun.update

    def matches(self) -> bool:
        """Return whether this is the digest of the bytes so far."""
        return b64encode(self._hash.digest()).decode() == self._expected


def from_base64(stored: str) -> int:
    """Return a base64 CRC as a number; -1, which equals no CRC, for invalid text."""
    try:
        return int.from_bytes(a2b_base64(stored, strict_mode=True), "big")
    except (Error, ValueError):
        return -1
