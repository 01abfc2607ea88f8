"""CRC-32, the checksum of zip files, computed with the fastest library installed."""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["crc32", "fast"]

# Most bytes per library call: a library may hold lengths in 32 bits.
_PIECE_BYTES = 64 << 20


@cache
def fast() -> Callable[[Any, int], int] | None:
    """Return isal's CRC-32, or None if isal is not installed (``pip install 'penstock[torch]'``).

    isal computes 15 GB/s, zlib 2.3 GB/s (measured).
    """
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    found: Callable[[Any, int], int] = isal_zlib.crc32
    return found


def crc32(data: memoryview, crc: int = 0) -> int:
    """Return the CRC-32 of ``data`` appended to the bytes whose CRC-32 is ``crc``; other threads can run meanwhile."""
    compute = fast() or zlib.crc32
    for at in range(0, len(data), _PIECE_BYTES):
        crc = compute(data[at : at + _PIECE_BYTES], crc)
    return crc
