"""Indices along one dimension of an array, cut at the borders of its chunks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Cut", "Segment", "segments"]

_KEPT = 4096  # positions along a dimension whose segments are cached


class Segment(NamedTuple):
    """Part of the indices along a dimension that lies in one chunk.

    Attributes:
        chunk: Number of the chunk along the dimension.
        inside: Elements within the chunk; a number drops the dimension.
        place: Their place in the result; None where the dimension is dropped.

    """

    chunk: int
    inside: int | slice
    place: slice | None


def segments(indices: Sequence[int], chunk: int) -> tuple[Segment, ...]:
    """Cut indices at the borders of chunks of ``chunk`` elements, into as few slices as possible in order."""
    found, at, count = [], 0, len(indices)
    while at < count:
        number, inside = divmod(indices[at], chunk)
        if isinstance(indices, range) and indices.step > 0:
            step = indices.step
            length = min(count - at, (chunk - inside - 1) // step + 1)
        else:
            step, length = _run(indices, at, number, chunk)
        place = slice(at, at + length)
        found.append(Segment(number, slice(inside, inside + (length - 1) * step + 1, step), place))
        at += length
    return tuple(found)


def _run(indices: Sequence[int], at: int, number: int, chunk: int) -> tuple[int, int]:
    """Return the step and the length of the run of equal positive steps within one chunk that begins at ``at``."""
    end = at + 1
    if end == len(indices) or indices[end] <= indices[at] or indices[end] // chunk != number:
        return 1, 1
    step = indices[end] - indices[at]
    while end < len(indices) and indices[end] - indices[end - 1] == step and indices[end] // chunk == number:
        end += 1
    return step, end - at


@dataclass(frozen=True)
class Cut:
    """Elements that a sample takes along one dimension of an array.

    Attributes:
        chunk: Elements of a chunk along the dimension.
        chosen: Elements of the dimension that samples may use, in order.
        window: Chosen elements that a sample takes, relative to its position. A number takes one element and drops the
            dimension.
        axis: Axis of the index space that moves the window; None: the window is fixed.

    """

    chunk: int
    chosen: Sequence[int]
    window: Sequence[int] | int = 0
    axis: int | None = None
    _cached: Callable[[int], tuple[Segment, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create the cache of the latest positions."""
        self._remember()

    def _remember(self) -> None:
        if not isinstance(self.window, int):
            cut = partial(_segments, self.chunk, self.chosen, self.window)
            object.__setattr__(self, "_cached", lru_cache(_KEPT)(cut))

    @property
    def length(self) -> int | None:
        """Number of elements of a sample along the dimension; None where the dimension is dropped."""
        return None if isinstance(self.window, int) else len(self.window)

    @property
    def most_chunks(self) -> int:
        """Upper limit of the chunks of a sample along the dimension; computed without listing them."""
        if isinstance(self.window, int):
            return 1
        chosen, count = self.chosen, len(self.window)
        if not count or not isinstance(chosen, range):
            return count
        if self.axis is None:
            return min(count, abs(chosen[-1] // self.chunk - chosen[0] // self.chunk) + 1)
        spread = (max(self.window) - min(self.window)) if not isinstance(self.window, range) else count - 1
        return min(count, spread * abs(chosen.step) // self.chunk + 2)

    def at(self, position: int) -> tuple[Segment, ...]:
        """Return the segments of a sample at ``position``, counted among the chosen elements."""
        if isinstance(self.window, int):
            number, inside = divmod(self.chosen[position + self.window], self.chunk)
            return (Segment(number, inside, None),)
        return self._cached(position)

    def split(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the chunk and the element in it for samples at these positions; for a cut that takes one element."""
        at, chosen = positions + self.window, self.chosen
        if isinstance(chosen, range):
            return np.divmod(chosen.start + at * chosen.step, self.chunk)
        return np.divmod(np.asarray(chosen, dtype=np.int64)[at], self.chunk)

    def chunks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions touch: a row per position, without repeats, padded with -1.

        Shape: (positions, most chunks of a position).
        """
        if isinstance(self.window, int):
            return self.split(positions)[0][:, None]
        some, which = np.unique(positions, return_inverse=True)
        rows = [sorted({segment.chunk for segment in self.at(position)}) for position in some.tolist()]
        table = np.full((len(rows), max(map(len, rows), default=1)), -1, dtype=np.int64)
        for row, chunks in zip(table, rows, strict=True):
            row[: len(chunks)] = chunks
        return table[which.reshape(-1)]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the cache."""
        return Cut, (self.chunk, self.chosen, self.window, self.axis)


def _segments(chunk: int, chosen: Sequence[int], window: Sequence[int], position: int) -> tuple[Segment, ...]:
    if isinstance(chosen, range) and isinstance(window, range) and window and chosen.step > 0 and window.step > 0:
        first, step = chosen[position + window[0]], chosen.step * window.step
        return segments(range(first, first + len(window) * step, step), chunk)
    return segments([chosen[position + each] for each in window], chunk)
