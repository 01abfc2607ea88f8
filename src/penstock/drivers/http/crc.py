"""A CRC under way, as ``hashlib`` has digests: for stores that name their objects' CRC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Crc"]


class Crc(ABC):
    """The digest of a body, by a function of bytes and an initial value.

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
        """Return the function, importing what it is of."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""
        self._crc = self._compute(data, self._crc)

    def hexdigest(self) -> str:
        """Return as many hexadecimal digits as it always has."""
        return f"{self._crc:0{self.digits}x}"
