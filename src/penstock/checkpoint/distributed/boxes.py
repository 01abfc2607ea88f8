"""Where a box of a tensor's elements lies among its bytes, cut into runs that are worth a request each. Pure."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Box", "bounds", "boxes", "strides"]

_HOLE_BYTES = 256 << 10  # not wanted, read to save a request: 30 ms at 10 MB/s


class Box(NamedTuple):
    """Some elements of a tensor, and the bytes around them.

    Attributes:
        offsets: Its first element, by dimension.
        lengths: Its elements along each dimension.
        start: The first byte of its first element, counted from the tensor's.
        stop: The last byte of its last element, exclusive; ``start`` where there is none.
        dense: Every byte in between is the box's, in its order.

    """

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    start: int
    stop: int
    dense: bool


def strides(sizes: Sequence[int], step: int) -> tuple[int, ...]:
    """Return how far apart neighbours are along each dimension, in row-major order; ``step`` along the last."""
    return tuple(step * prod(sizes[dimension + 1 :]) for dimension in range(len(sizes)))


def bounds(sizes: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], item_bytes: int) -> Box:
    """Return a box of a row-major tensor of ``sizes`` whole, whatever its run's length."""
    apart = strides(sizes, item_bytes)
    start = sum(offset * stride for offset, stride in zip(offsets, apart, strict=True))
    count = prod(lengths)
    reach = sum((length - 1) * stride for length, stride in zip(lengths, apart, strict=True)) + item_bytes
    stop = start + (reach if count else 0)
    return Box(tuple(offsets), tuple(lengths), start, stop, stop - start == count * item_bytes)


def boxes(
    sizes: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], item_bytes: int, most_bytes: int
) -> Iterator[Box]:
    """Cut a box of a row-major tensor of ``sizes`` into boxes whose runs are at most ``most_bytes`` long.

    Together they are the box, each element in one of them, in ascending order. It is cut along its first dimension that
    is longer than 1, and between neighbours whose runs are more than 256 KiB apart; a box without elements is yielded
    as it is. ``most_bytes`` is at least ``item_bytes``.
    """
    whole = bounds(sizes, offsets, lengths, item_bytes)
    first = next((dimension for dimension, length in enumerate(lengths) if length > 1), None)
    if first is None or whole.start == whole.stop:
        yield whole
        return
    stride = strides(sizes, item_bytes)[first]
    row = whole.stop - whole.start - (lengths[first] - 1) * stride  # the run of one of them
    apart = stride - row > _HOLE_BYTES  # no hole further in is longer than this one
    if whole.stop - whole.start <= most_bytes and not apart:
        yield whole
        return
    count = 1 if apart else max(1, (most_bytes - row) // stride + 1)
    for at in range(0, lengths[first], count):
        low = (*offsets[:first], offsets[first] + at, *offsets[first + 1 :])
        long = (*lengths[:first], min(count, lengths[first] - at), *lengths[first + 1 :])
        yield from boxes(sizes, low, long, item_bytes, most_bytes)
