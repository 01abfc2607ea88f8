"""Splitting of reads and uploads into parts: pure arithmetic on byte counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.contracts.driver import Limits

__all__ = ["cut", "part_bytes", "split"]

# Percentage of a store's parts that have one size. With 10 %, S3's 10,000 parts, beginning at 5 MiB, would hold 4.9
# TiB.
_PERCENT_PER_SIZE = 9


def split(start: int, stop: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` into the fewest, nearly equal runs of at most ``most_bytes``; an empty run stays one."""
    size = stop - start
    pieces = max(1, -(-size // most_bytes))
    for piece in range(pieces):
        yield start + size * piece // pieces, start + size * (piece + 1) // pieces


def part_bytes(number: int, first_bytes: int, limits: Limits) -> int:
    """Return the size of part ``number`` (from 1): where the store allows, it doubles every 9 % of its ``most_parts``.

    With any first size, the 10,000 parts that S3 allows thus hold 5 TiB.

    Raises:
        Unusable: The store takes no part of this number.

    """
    if number > limits.most_parts:
        message = f"an upload has at most {limits.most_parts} parts here: pass a larger WriteOptions(part_bytes=…)"
        raise Unusable(message)
    # The first part may be the whole object, and be sent as a PUT.
    largest = min(limits.most_part_bytes, limits.put_bytes)
    if limits.equal_parts:
        return min(first_bytes, largest)
    doubled = (number - 1) // max(1, limits.most_parts * _PERCENT_PER_SIZE // 100)
    return min(first_bytes << min(doubled, largest.bit_length()), largest)


def cut(size_bytes: int, first_bytes: int, limits: Limits) -> Iterator[int]:
    """Yield the sizes of the parts of an object; the last one may be smaller. Raises the errors of ``part_bytes``."""
    number, left = 1, size_bytes
    while left > 0:
        size = min(left, part_bytes(number, first_bytes, limits))
        yield size
        number, left = number + 1, left - size
