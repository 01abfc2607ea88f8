"""How reads and uploads are cut: pure arithmetic on byte counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["part_bytes", "split"]

_PARTS_PER_SIZE = 900  # of the 10,000 that S3 takes: with 1,000, parts that begin at 5 MiB would hold 4.9 TiB
_MOST_BYTES = 5 << 30  # S3's largest part


def split(start: int, stop: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` into the fewest runs of at most ``most_bytes``, all but equal; an empty run stays one."""
    size = stop - start
    pieces = max(1, -(-size // most_bytes))
    for piece in range(pieces):
        yield start + size * piece // pieces, start + size * (piece + 1) // pieces


def part_bytes(number: int, first_bytes: int) -> int:
    """Return the size of part ``number`` (from 1): it doubles every 900 parts, so the 10,000 allowed hold 5 TiB."""
    return min(first_bytes << ((number - 1) // _PARTS_PER_SIZE), _MOST_BYTES)
