"""Blocks of samples along one axis: runs of positions whose elements are in one chunk. Pure."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.zarr.format.layout import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_AT_ONCE = 1 << 16


def integers_of(numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    # NumPy would make a list of the numbers of a range.
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop, numbers.step)
    return np.asarray(numbers, dtype=np.int64)


class AxisBlocks:
    """Blocks of the positions along an axis, in order: neighbours whose elements are in the same chunk.

    Computed where elements are a range, from a few numbers for each run of chunks of one length; else listed.

    Attributes:
        length: Number of positions.
        count: Number of blocks; none is empty.
        most: Upper limit of the positions of a block.
        even: Positions of each block, of which the last may have fewer; 0 if they differ.
        period: Positions after which the blocks of a run repeat; 0 if they are listed.
    """

    def __init__(self, elements: Sequence[int] | NDArray[np.int64], chunk: int | Runs) -> None:
        self.length, self.even, self.period = len(elements), 0, 0
        if isinstance(elements, range):
            bends = self._compute(elements, chunk)
        else:
            changes = np.flatnonzero(np.diff(integers_of(elements) // chunk)) + 1
            self.borders = np.concatenate((np.arange(min(1, self.length)), changes, [self.length]))
            self.count, self.most = len(self.borders) - 1, int(np.diff(self.borders).max(initial=0))
            bends = np.arange(self.count)
        if self.count:
            second, last = self.starts(np.array([1, self.count - 1])).tolist()
            is_even = self.length - last <= second and (self.starts(bends) == bends * second).all()
            self.even = second if is_even else 0

    def _compute(self, elements: range, chunk: int | Runs) -> NDArray[np.int64]:
        """Compute what finds blocks, for each run; return the blocks between which starts are a line, rounded.

        For each run with elements: the index of its first position, its first block, the length of a chunk, the step of
        the elements, and the place of the first one in its chunk. Where no chunk has two, as if length and step were 1.
        """
        first, step = elements.start, elements.step
        runs, lengths = (chunk.starts[:-1], chunk.sizes) if isinstance(chunk, Runs) else ((0,), (chunk,))
        origins, chunks = np.array(runs, dtype=np.int64), np.array(lengths, dtype=np.int64)
        starts = origins
        if step < 0:
            # Elements are counted from the end, where the last chunk of a run may be shorter.
            first, step = -1 - first, -step
            if isinstance(chunk, Runs):
                origins = -(origins + np.diff(chunk.firsts) * chunks)[::-1]
                starts, chunks = -np.array(chunk.starts[:0:-1], dtype=np.int64), chunks[::-1]
        places = (-((first - starts[1:]) // step)).clip(0, self.length)
        places = np.concatenate(([0], places, [self.length]))
        used = np.flatnonzero(np.diff(places))
        begins, ends, chunks = places[used], places[used + 1], chunks[used]
        self.borders = np.append(begins, self.length)
        insides, lasts = (first + each * step - origins[used] for each in (begins, ends - 1))
        apart = chunks <= step
        counts = np.where(apart, ends - begins, lasts // chunks - insides // chunks + 1)
        self._firsts = np.concatenate(([0], np.cumsum(counts)))
        self._insides = np.where(apart, 0, insides % chunks)
        self._chunks, self._steps = np.where(apart, 1, chunks), np.where(apart, 1, step)
        self.count = int(self._firsts[-1])
        self.most = int(np.minimum(ends - begins, -(-self._chunks // self._steps)).max(initial=0))
        self.period = lcm(*(self._chunks // np.gcd(self._chunks, self._steps)).tolist())
        bends = np.concatenate((self._firsts[:-1], self._firsts[:-1] + 1, self._firsts[1:] - 1))
        return bends.clip(None, self.count - 1)

    @property
    def equal(self) -> bool:
        """Whether all blocks have the same number of positions, also the last."""
        return self.length == self.count * self.even

    def of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block of each position, which is given by its index."""
        if self.even:
            return indices // self.even
        run = np.searchsorted(self.borders[1:-1], indices, side="right")
        if not self.period:
            return np.asarray(run)
        inside = self._insides[run] + (indices - self.borders[run]) * self._steps[run]
        found: NDArray[np.int64] = self._firsts[run] + inside // self._chunks[run]
        return found

    def starts(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the first position of each block; of the block after the last, ``length``."""
        if self.even:
            return np.minimum(blocks * self.even, self.length)
        if not self.period:
            return np.asarray(self.borders[blocks])
        run = np.searchsorted(self._firsts[1:-1], blocks, side="right")
        before = self._insides[run] - (blocks - self._firsts[run]) * self._chunks[run]
        found: NDArray[np.int64] = self.borders[run] - (before // self._steps[run]).clip(None, 0)
        return np.minimum(found, self.borders[run + 1])


def most_touched(blocks: AxisBlocks, others: AxisBlocks, reach: tuple[int, int]) -> int:
    """Return the most blocks of ``others`` that one of ``blocks`` touches, along an axis of the same length.

    A block reaches from ``reach[0]`` after its first position to ``reach[1]`` after its last.
    """
    most, last = 0, blocks.length - 1
    for some in _typical_blocks(blocks, others, max(map(abs, reach))):
        first = others.of((blocks.starts(some) + reach[0]).clip(0, last))
        final = others.of((blocks.starts(some + 1) - 1 + reach[1]).clip(0, last))
        most = max(most, int((final - first).max()))
    return most + 1


def _typical_blocks(blocks: AxisBlocks, others: AxisBlocks, reach: int) -> Iterator[NDArray[np.int64]]:
    """Yield numbers of blocks, some at a time: of those that are placed alike among ``others``, at least one."""
    runs = [(0, blocks.count)]
    if blocks.period and others.period:
        span = min(lcm(blocks.period, others.period) + blocks.most + reach, blocks.length)
        borders = np.concatenate((blocks.borders, others.borders))
        firsts, finals = (blocks.of((borders + way).clip(0, blocks.length - 1)) for way in (-span, span))
        if (finals + 1 - firsts).sum() < blocks.count:
            runs = [*zip(firsts.tolist(), (finals + 1).tolist(), strict=True)]
    for start, stop in runs:
        for first in range(start, stop, _AT_ONCE):
            yield np.arange(first, min(first + _AT_ONCE, stop))
