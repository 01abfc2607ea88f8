"""Regions of a copy: an array divided into boxes that are read, written and verified as units. Computes only."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, lcm, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

# Objects of one region that zarr reads or writes in parallel: its "async.concurrency".
_AT_ONCE = 10
# Regions are not enlarged beyond this size if that saves no read.
_WORTHWHILE_BYTES = 32 << 20
# Regions of more memory are chosen if all others need more than 1.1 times as many reads.
_DEAR = 1.1
# WriteOptions.buffer_bytes and part_bytes, for objects of several parts.
_WRITER_BYTES, _PART_BYTES = 64 << 20, 16 << 20


class Grids(NamedTuple):
    """Shapes of an array, and of one object (a shard, or a chunk of an array without shards) on either side."""

    shape: tuple[int, ...]
    source: tuple[int, ...]
    dest: tuple[int, ...]
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Regions:
    """An array divided into boxes of one shape, each of whole objects of the destination; the last are clipped."""

    shape: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(ceil(size / step) for size, step in zip(self.shape, self.box, strict=True))

    def __len__(self) -> int:
        """Return the number of regions: 0 for an array without elements, 1 for an array without dimensions."""
        return prod(self.grid)

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        """Return a region by its number, row-major, as slices of the array."""
        slices: list[slice] = []
        for count, step, size in reversed([*zip(self.grid, self.box, self.shape, strict=True)]):
            number, at = divmod(number, count)
            slices.append(slice(at * step, min((at + 1) * step, size)))
        return tuple(reversed(slices))


def object_reads(grids: Grids, box: tuple[int, ...]) -> int:
    """Return the total number of reads of source objects: the product, over dimensions, of the sums over regions.

    An object in several regions is read once for each of them. The minimum is the number of objects.
    """
    return prod(map(_reads, grids.shape, grids.source, box))


def _reads(size: int, source: int, step: int) -> int:
    starts = np.arange(0, size, step, dtype=np.int64)
    stops = np.minimum(starts + step, size)
    return int((-(-stops // source) - starts // source).sum())


def memory_bytes(grids: Grids, box: tuple[int, ...]) -> int:
    """Return the most memory that one region takes, in bytes.

    The sum of twice the region (the values read, and the values read back) and the larger of two amounts: the source
    objects that zarr decodes in parallel (ten at most), encoded and decoded; or the destination objects that it encodes
    in parallel (ten at most), three times each (ordered, encoded, joined), with a writer's 64 MiB for each object
    that is uploaded in parts.
    """
    clipped = [min(step, size) for step, size in zip(box, grids.shape, strict=True)]
    read = prod(map(_count_touched, clipped, grids.source))
    written = prod(ceil(step / each) for step, each in zip(clipped, grids.dest, strict=True))
    one_read, one_written = (prod(each) * grids.item_bytes for each in (grids.source, grids.dest))
    writer = _WRITER_BYTES if one_written > _PART_BYTES else 0
    reading = 2 * min(read, _AT_ONCE) * one_read
    writing = min(written, _AT_ONCE) * (3 * one_written + writer)
    return 2 * prod(clipped) * grids.item_bytes + max(reading, writing)


def _count_touched(step: int, source: int) -> int:
    """Return the most source objects that a region touches along one dimension."""
    return ceil(step / source) + bool(step % source and source % step)


def regions(grids: Grids, limit_bytes: int, most_bytes: int) -> Regions:
    """Return the regions with the fewest reads of source objects, each within ``limit_bytes`` of memory.

    Among regions with equal reads, the largest up to 32 MiB is chosen. Regions of up to ``most_bytes``, of which fewer
    run in parallel, are chosen if they save a tenth of the reads, or if no smaller region can be written.
    """
    least = tuple(grids.dest)
    needed = memory_bytes(grids, least)
    if needed > most_bytes:
        raise Unusable(
            f"an object of {'x'.join(map(str, least))} elements needs {_mib(needed)} of memory for its copy, but "
            f"only {_mib(most_bytes)} are allowed: choose smaller ones, or allow more (--memory, memory_bytes=)"
        )
    best, alone = (_best(grids, max(size_bytes, needed)) for size_bytes in (limit_bytes, most_bytes))
    if object_reads(grids, best) > _DEAR * object_reads(grids, alone):
        return Regions(grids.shape, alone)
    return Regions(grids.shape, _grow_box(grids, best, limit_bytes))


def _best(grids: Grids, limit_bytes: int) -> tuple[int, ...]:
    boxes = (each for each in _candidates(grids) if memory_bytes(grids, each) <= limit_bytes)
    return min(boxes, key=lambda box: (object_reads(grids, box), prod(box)))


def _candidates(grids: Grids) -> Iterator[tuple[int, ...]]:
    """Yield boxes of whole objects of the destination; along each dimension only sizes that save reads."""
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


def _grow_box(grids: Grids, box: tuple[int, ...], limit_bytes: int) -> tuple[int, ...]:
    """Return ``box``, doubled along its dimensions, last first, while it stays small and needs no more reads."""
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
