"""Blocks of samples along one axis: runs of positions whose elements are in one chunk. Pure.

Computed where elements are a range, from a few numbers for each run of equal chunks; else listed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.zarr.format.layout import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_AT_ONCE = 1 << 16
# The largest length of an array.
_MOST = 1 << 62


def integers_of(numbers: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    # NumPy would make a list of the numbers of a range.
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop, numbers.step)
    return np.asarray(numbers, dtype=np.int64)


class AxisBlocks(ABC):
    """Blocks of the positions along an axis, in order; none is empty.

    Attributes:
        length: Number of positions.
        count: Number of blocks.
        most: Upper limit of the positions of a block.
        even: Positions of each block, of which the last may have fewer; 0 if they differ.
    """

    length: int
    count: int
    most: int
    even: int = 0

    @property
    def equal(self) -> bool:
        """Whether all blocks have the same number of positions, also the last."""
        return self.length == self.count * self.even

    def of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block of each position, which is given by its index."""
        return indices // self.even if self.even else self._find(indices)

    def starts(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the first position of each block; of the block after the last, ``length``."""
        return np.minimum(blocks * self.even, self.length) if self.even else self._begin(blocks)

    def iterate_starts(self) -> Iterator[NDArray[np.int64]]:
        """Yield the starts of all blocks, some at a time, each time with the start of the next block."""
        for first in range(0, self.count, _AT_ONCE):
            yield self.starts(np.arange(first, min(first + _AT_ONCE, self.count) + 1))

    def _evenness(self, bends: NDArray[np.int64]) -> int:
        """Return ``even``; between the blocks ``bends``, starts deviate from a straight line to one side only."""
        if self.count < 2:  # noqa: PLR2004  one block
            return self.length
        first, last = self.starts(np.array([1, self.count - 1])).tolist()
        is_even = self.length - last <= first and (self.starts(bends) == bends * first).all()
        return first if is_even else 0

    @abstractmethod
    def _find(self, indices: NDArray[np.int64]) -> NDArray[np.int64]: ...

    @abstractmethod
    def _begin(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]: ...


class ListedBlocks(AxisBlocks):
    """Blocks that are listed by the index of the first position of each."""

    def __init__(self, elements: NDArray[np.int64], block: int | Runs) -> None:
        self.length = len(elements)
        changes = np.flatnonzero(np.diff(elements // block)) + 1
        self._table = np.concatenate((np.arange(min(1, self.length)), changes, [self.length]))
        self.count = len(self._table) - 1
        self.most = int(np.diff(self._table).max(initial=0))
        self.even = self._evenness(np.arange(self.count))
        if self.even:
            self._table = self._table[:0].copy()

    def _find(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._table, indices, side="right") - 1

    def _begin(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._table[blocks]


class ComputedBlocks(AxisBlocks):
    """Blocks of a range of elements, whose chunks have one length, or one in each run of them.

    For each run with elements, there are the index of its first position, its first block, the length of a chunk, the
    step of the elements, and the place of the first element in its chunk. Where chunks are no longer than the step,
    each element is a block, as if chunk and step were 1.
    """

    def __init__(self, elements: range, block: int | Runs) -> None:
        self.length, self._reversed = len(elements), elements.step < 0
        # Blocks of descending elements are those of ascending ones, from the end.
        some = elements[::-1] if self._reversed else elements
        starts, sizes = (block.starts[:-1], block.sizes) if isinstance(block, Runs) else ((0,), (min(block, _MOST),))
        begins, chunks = np.array(starts, np.int64), np.array(sizes, np.int64)
        places = np.append((-((some.start - begins) // some.step)).clip(0, self.length), self.length)
        used = np.flatnonzero(np.diff(places))
        ends, places, begins, chunks = places[used + 1], places[used], begins[used], chunks[used]
        firsts, lasts = (some.start + each * some.step - begins for each in (places, ends - 1))
        apart = chunks <= some.step
        counts = np.where(apart, ends - places, lasts // chunks - firsts // chunks + 1)
        self._insides = np.where(apart, 0, firsts % chunks)
        self._chunks, self._steps = np.where(apart, 1, chunks), np.where(apart, 1, some.step)
        self._places = np.append(places, self.length)
        # Positions after which the blocks of a run repeat.
        self.period = lcm(*(self._chunks // np.gcd(self._chunks, self._steps)).tolist())
        self._blocks = np.concatenate(([0], np.cumsum(counts)))
        self.count = int(self._blocks[-1])
        self.most = int(np.minimum(ends - places, -(-self._chunks // self._steps)).max(initial=0))
        # Within a run, starts are a straight line, rounded; only the first block of all may lack positions before it.
        bends = np.concatenate((self._blocks[:-1], self._blocks[1:] - 1))
        self.even = self._evenness(self.count - bends.clip(1) if self._reversed else bends.clip(None, self.count - 1))

    @property
    def borders(self) -> NDArray[np.int64]:
        """Indices of positions between which blocks are alike."""
        return self.length - self._places if self._reversed else self._places

    def _find(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        at = self.length - 1 - indices if self._reversed else indices
        run = np.searchsorted(self._places[1:-1], at, side="right")
        inside = self._insides[run] + (at - self._places[run]) * self._steps[run]
        found: NDArray[np.int64] = self._blocks[run] + inside // self._chunks[run]
        return self.count - 1 - found if self._reversed else found

    def _begin(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        which = self.count - blocks if self._reversed else blocks
        run = np.searchsorted(self._blocks[1:-1], which, side="right")
        before = self._insides[run] - (which - self._blocks[run]) * self._chunks[run]
        found: NDArray[np.int64] = self._places[run] - (before // self._steps[run]).clip(None, 0)
        found = np.minimum(found, self._places[run + 1])
        return self.length - found if self._reversed else found


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
    if isinstance(blocks, ComputedBlocks) and isinstance(others, ComputedBlocks):
        span = min(lcm(blocks.period, others.period) + blocks.most + reach, blocks.length)
        borders = np.concatenate((blocks.borders, others.borders))
        firsts, finals = (blocks.of((borders + way).clip(0, blocks.length - 1)) for way in (-span, span))
        if (finals + 1 - firsts).sum() < blocks.count:
            runs = [*zip(firsts.tolist(), (finals + 1).tolist(), strict=True)]
    for start, stop in runs:
        for first in range(start, stop, _AT_ONCE):
            yield np.arange(first, min(first + _AT_ONCE, stop))


def cut_blocks(elements: Sequence[int] | NDArray[np.int64], block: int | Runs) -> AxisBlocks:
    """Return the blocks of an axis: neighbours among its elements that are in the same ``block`` elements."""
    if isinstance(elements, range):
        return ComputedBlocks(elements, block)
    return ListedBlocks(integers_of(elements), block)
