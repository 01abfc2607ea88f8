"""Index space: the samples, their numbering, and the position of each. Pure."""

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
# Samples that a mask selects from: 8 bytes each while it is applied.
_MOST_MASKED = 1 << 31


@dataclass(frozen=True, eq=False)
class Axis:
    """Dimension that samples are numbered along.

    Attributes:
        name: The dimension.
        positions: Positions of samples, counted among the chosen elements.
        starts: Index within ``positions`` of the first sample of each block; begins with 0.

    Raises:
        Unusable: There are too many blocks to be numbered.

    """

    name: str
    positions: range
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, positions: range, chosen: Sequence[int], block: int) -> Axis:
        """Return an axis cut into blocks: runs of samples that lie in the same ``block`` elements of the array."""
        count = len(positions)
        if isinstance(chosen, range):
            some = chosen[positions.start : positions.stop : positions.step]
            crossed = abs(some[-1] // block - some[0] // block) if count else 0
            if min(crossed, count) > _MOST_BLOCKS:
                raise Unusable(f"{min(crossed, count)} chunks along {name!r} are too many to be numbered")
            if abs(some.step) >= block:  # at most one sample per block
                return cls(name, positions, np.arange(count, dtype=np.int64))
            borders = np.arange(1, crossed + 1, dtype=np.int64)
            if some.step > 0:
                first = block - (some[0] if count else 0) % block  # from the first sample to the first border
                starts = -((first + (borders - 1) * block) // -some.step)
            else:
                starts = (some[0] % block + (borders - 1) * block) // -some.step + 1 if count else borders
            return cls(name, positions, np.concatenate((np.arange(min(1, count)), starts)))
        numbers = np.asarray(chosen, dtype=np.int64)[np.asarray(positions, dtype=np.int64)] // block
        changes = np.flatnonzero(np.diff(numbers)) + 1
        return cls(name, positions, np.concatenate((np.arange(min(1, len(positions))), changes)))


class IndexSpace:
    """All samples, numbered block by block, and within a block in row-major order of the axes.

    Attributes:
        axes: The dimensions that samples are numbered along.
        samples: Number of samples.
        sizes: Number of samples in each block, in order; empty blocks are left out.

    """

    def __init__(self, axes: Sequence[Axis], valid: NDArray[np.bool_] | None = None) -> None:
        """Number the samples of ``axes`` for which ``valid`` (one dimension for each axis) is True; None: all samples.

        Raises:
            Unusable: There are too many samples to be numbered.

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
        """Digest of the numbering."""
        tables = [*self._starts, *self._lengths, *([] if self._members is None else [self._members])]
        return hashlib.sha256(b"".join(table.astype("<i8").tobytes() for table in tables)).hexdigest()[:32]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of samples along each axis, counted among the chosen elements: shape (numbers, axes)."""
        within = self._numbers(numbers if self._members is None else self._members[numbers])
        steps = np.array([axis.positions.step for axis in self.axes])
        found: NDArray[np.int64] = within * steps + np.array([axis.positions.start for axis in self.axes])
        return found

    def _numbers(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of samples along each axis."""
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
