"""Cuts an array into regions that are read, written and verified at once; pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, lcm, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Grids", "Regions", "memory_bytes", "object_reads", "regions"]

_AT_ONCE = 10  # objects of one region that zarr reads or writes at once: its "async.concurrency"
_WORTHWHILE_BYTES = 32 << 20  # a region need not be larger where that would spare no read
_DEAR = 1.1  # reads that regions of a larger memory would spare
_WRITER_BYTES, _PART_BYTES = 64 << 20, 16 << 20  # WriteOptions.buffer_bytes, part_bytes: of objects in several parts


class Grids(NamedTuple):
    """One array, and what of it lies in one object: a shard, or a chunk where there are no shards.

    Attributes:
        shape: The array's.
        source: Shape of one object at the source.
        dest: Shape of one object at the destination.
        item_bytes: Of one element, decoded.

    """

    shape: tuple[int, ...]
    source: tuple[int, ...]
    dest: tuple[int, ...]
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Regions:
    """An array cut into boxes of one shape, each made of whole objects of the destination; the last ones are clipped.

    Attributes:
        shape: The array's.
        box: Of one region.

    """

    shape: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """How many there are along each dimension."""
        return tuple(ceil(size / step) for size, step in zip(self.shape, self.box, strict=True))

    def __len__(self) -> int:
        """Return how many there are: none where the array has no elements, one where it has no dimensions."""
        return prod(self.grid)

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        """Return a region by its number, row-major, as slices of the array."""
        slices: list[slice] = []
        for count, step, size in reversed([*zip(self.grid, self.box, self.shape, strict=True)]):
            number, at = divmod(number, count)
            slices.append(slice(at * step, min((at + 1) * step, size)))
        return tuple(reversed(slices))


def object_reads(grids: Grids, box: tuple[int, ...]) -> int:
    """Return how often objects of the source are read in all: a product, for each dimension, of the sums over regions.

    An object that lies in several regions is read once for each of them. The least is the number of objects.
    """
    return prod(map(_reads, grids.shape, grids.source, box))


def _reads(size: int, source: int, step: int) -> int:
    starts = np.arange(0, size, step, dtype=np.int64)
    stops = np.minimum(starts + step, size)
    return int((-(-stops // source) - starts // source).sum())


def memory_bytes(grids: Grids, box: tuple[int, ...]) -> int:
    """Return the most memory that one region takes.

    Twice the region (what was read, and what is read back), and beside it the larger of two: the objects of the source
    that zarr decodes at once (ten at most), encoded and decoded, and as many of the destination's that it encodes,
    three times (in order, encoded, joined), with a writer's 64 MiB for each that is uploaded in parts.
    """
    clipped = [min(step, size) for step, size in zip(box, grids.shape, strict=True)]
    read = prod(map(_touched, clipped, grids.source))
    written = prod(ceil(step / each) for step, each in zip(clipped, grids.dest, strict=True))
    one_read, one_written = (prod(each) * grids.item_bytes for each in (grids.source, grids.dest))
    writer = _WRITER_BYTES if one_written > _PART_BYTES else 0
    reading = 2 * min(read, _AT_ONCE) * one_read
    writing = min(written, _AT_ONCE) * (3 * one_written + writer)
    return 2 * prod(clipped) * grids.item_bytes + max(reading, writing)


def _touched(step: int, source: int) -> int:
    """Return how many objects of the source a region touches at most, along one dimension."""
    return ceil(step / source) + bool(step % source and source % step)


def regions(grids: Grids, limit_bytes: int, most_bytes: int) -> Regions:
    """Return the regions that read the source's objects least often, each of them within ``limit_bytes`` of memory.

    Where several read alike, the largest up to 32 MiB. Regions that take up to ``most_bytes``, so that fewer of them
    are worked on at once, are chosen where they spare a tenth of the reads, or where nothing smaller can be written.

    Raises:
        Unusable: It takes more; the text says how much, and what to change.

    """
    least = tuple(grids.dest)
    needed = memory_bytes(grids, least)
    if needed > most_bytes:
        raise Unusable(
            f"one object of {'x'.join(map(str, least))} elements needs {_mib(needed)} of memory to be copied, and "
            f"{_mib(most_bytes)} are allowed: choose smaller shards or chunks, or allow more (--memory, memory_bytes=)"
        )
    best, alone = (_best(grids, max(size_bytes, needed)) for size_bytes in (limit_bytes, most_bytes))
    if object_reads(grids, best) > _DEAR * object_reads(grids, alone):
        return Regions(grids.shape, alone)
    return Regions(grids.shape, _grown(grids, best, limit_bytes))


def _best(grids: Grids, limit_bytes: int) -> tuple[int, ...]:
    boxes = (each for each in _candidates(grids) if memory_bytes(grids, each) <= limit_bytes)
    return min(boxes, key=lambda box: (object_reads(grids, box), prod(box)))


def _candidates(grids: Grids) -> Iterator[tuple[int, ...]]:
    """Yield boxes made of whole objects of the destination; along each dimension only those that spare reads."""
    options = []
    for size, source, dest in zip(grids.shape, grids.source, grids.dest, strict=True):
        full = max(ceil(size / dest), 1) * dest
        steps = {dest, full, min(lcm(source, dest), full), min(ceil(source / dest) * dest, full)}
        steps |= {min(dest << power, full) for power in range(max(full // dest, 1).bit_length())}
        kept, fewest = [], None
        for step in sorted(steps):
            count = _reads(size, source, step)
            if fewest is None or count < fewest:
                kept.append(step)
                fewest = count
        options.append(kept)
    yield from product(*options)


def _grown(grids: Grids, box: tuple[int, ...], limit_bytes: int) -> tuple[int, ...]:
    """Return ``box`` doubled along its dimensions, the last ones first, as long as it stays small."""
    for axis in reversed(range(len(box))):
        while box[axis] < grids.shape[axis]:
            larger = (*box[:axis], 2 * box[axis], *box[axis + 1 :])
            small = prod(larger) * grids.item_bytes <= _WORTHWHILE_BYTES and memory_bytes(grids, larger) <= limit_bytes
            if not small or object_reads(grids, larger) > object_reads(grids, box):
                break
            box = larger
    return box


def _mib(size_bytes: int) -> str:
    return f"{ceil(size_bytes / (1 << 20)):,} MiB"
