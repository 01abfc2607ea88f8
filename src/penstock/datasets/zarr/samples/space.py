"""The index space: which samples there are, how they are numbered, and where each of them lies. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Axis", "IndexSpace"]

_MOST_SAMPLES = 1 << 48
_MOST_BLOCKS = 1 << 26
_MOST_MASKED = 1 << 31  # samples that a mask chooses from: 8 bytes each while it is applied


@dataclass(frozen=True, eq=False)
class Axis:
    """A dimension that samples are numbered along.

    Attributes:
        name: The dimension.
        positions: Where samples lie, counted among the chosen elements.
        starts: The number, within ``positions``, of the first sample of each block; begins with 0.

    Raises:
        Unusable: There are too many blocks to be numbered.

    """

    name: str
    positions: range
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, positions: range, chosen: Sequence[int], block: int) -> Axis:
        """Cut an axis into blocks: runs of samples whose elements lie in the same ``block`` elements of the array."""
        if isinstance(chosen, range) and chosen.step == 1 and positions.step == 1:
            first = chosen.start + positions.start
            bounds = range((first // block + 1) * block - first, len(positions), block)
            if len(bounds) > _MOST_BLOCKS:
                raise Unusable(f"{len(bounds)} chunks along {name!r} are too many to be numbered")
            changes = np.arange(bounds.start, bounds.stop, bounds.step, dtype=np.int64)
            return cls(name, positions, np.concatenate((np.arange(min(1, len(positions))), changes)))
        numbers = np.asarray(chosen, dtype=np.int64)[np.asarray(positions, dtype=np.int64)] // block
        changes = np.flatnonzero(np.diff(numbers)) + 1
        return cls(name, positions, np.concatenate((np.arange(min(1, len(positions))), changes)))


class IndexSpace:
    """All samples, numbered block by block, and within a block in the order of the axes, the last one fastest.

    Attributes:
        axes: What samples are numbered along.
        samples: How many there are.
        sizes: Samples of each block, in order; none is 0.

    """

    def __init__(self, axes: Sequence[Axis], valid: NDArray[np.bool_] | None = None) -> None:
        """Number the samples of ``axes``, those for which ``valid`` (one dimension for each axis) holds.

        Raises:
            Unusable: There are too many to be numbered.

        """
        self.axes = tuple(axes)
        self._grid = tuple(len(axis.starts) for axis in axes)
        samples, blocks = prod(len(axis.positions) for axis in axes), prod(self._grid)
        if samples > _MOST_SAMPLES or blocks > _MOST_BLOCKS or (valid is not None and samples > _MOST_MASKED):
            raise Unusable(f"{samples} samples in {blocks} chunks are too many to be numbered: take larger patches")
        self._starts = [axis.starts for axis in axes]
        ends = [np.append(starts[1:], len(axis.positions)) for starts, axis in zip(self._starts, axes, strict=True)]
        self._lengths = [end - start for end, start in zip(ends, self._starts, strict=True)]
        sizes = np.ones(1, dtype=np.int64)
        for lengths in self._lengths:
            sizes = np.multiply.outer(sizes, lengths).reshape(-1)
        self._bounds = np.concatenate(([0], np.cumsum(sizes)))
        self._members: NDArray[np.int64] | None = None
        if valid is not None:
            self._members = np.flatnonzero(valid[tuple(self._numbers(np.arange(samples)).T)])
            held = np.diff(np.searchsorted(self._members, self._bounds))
            samples, sizes = len(self._members), held
        self.samples = int(samples)
        self.sizes: NDArray[np.int64] = sizes[sizes > 0]

    @property
    def digest(self) -> str:
        """Of the numbering."""
        tables = [*self._starts, *self._lengths, *([] if self._members is None else [self._members])]
        return hashlib.sha256(b"".join(table.astype("<i8").tobytes() for table in tables)).hexdigest()[:32]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where samples lie along each axis, counted among the chosen elements: shape (numbers, axes)."""
        within = self._numbers(numbers if self._members is None else self._members[numbers])
        steps = np.array([axis.positions.step for axis in self.axes])
        found: NDArray[np.int64] = within * steps + np.array([axis.positions.start for axis in self.axes])
        return found

    def _numbers(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples' numbers along each axis."""
        found = np.empty((len(numbers), len(self.axes)), dtype=np.int64)
        if not len(numbers):
            return found
        blocks = np.searchsorted(self._bounds, numbers, side="right") - 1
        left = numbers - self._bounds[blocks]
        cells = np.unravel_index(blocks, self._grid)
        for axis in reversed(range(len(self.axes))):
            left, within = np.divmod(left, self._lengths[axis][cells[axis]])
            found[:, axis] = self._starts[axis][cells[axis]] + within
        return found
