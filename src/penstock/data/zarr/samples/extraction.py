"""Extraction of a sample from an array: chunks, elements of each chunk, and their places in the sample. Pure."""

from __future__ import annotations

from itertools import product, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.samples.segments import Cut, Segment

__all__ = ["Extraction", "Part"]


class Part(NamedTuple):
    """Part of a sample that lies in one chunk.

    Attributes:
        chunk: Number of the chunk: row by row in the array's grid of chunks, from the number of its first chunk.
        inside: Elements of the chunk.
        place: Their place in the sample.

    """

    chunk: int
    inside: tuple[int | slice, ...]
    place: tuple[slice, ...]


class Extraction:
    """Elements of one array that samples take.

    Attributes:
        cuts: Cut along each dimension of the array.
        shape: Shape of a sample.

    """

    def __init__(self, cuts: Sequence[Cut], grid: Sequence[int], first: int = 0) -> None:
        """Take ``cuts`` of an array with ``grid`` chunks along each dimension, numbered from ``first`` on."""
        self.cuts = tuple(cuts)
        self._first = first
        self.shape = tuple(cut.length for cut in cuts if cut.length is not None)
        steps = [1]
        for count in reversed(grid[1:]):
            steps.append(steps[-1] * count)
        self._steps = steps[::-1][: len(cuts)]
        self._rest: list[tuple[Segment, ...]] = [cut.at(0) if cut.axis is None else () for cut in cuts]
        self._moving = [
            (number, cut.axis, cut, step)
            for number, (cut, step) in enumerate(zip(cuts, self._steps, strict=True))
            if cut.axis is not None
        ]
        self._fixed = self._alone()
        self._single = self._fixed is not None and all(isinstance(cut.window, int) for _, _, cut, _ in self._moving)

    def parts(self, position: Sequence[int]) -> list[Part]:
        """Return the parts of the sample at ``position``: a number for each axis of the index space."""
        if self._fixed is not None:
            chunk, fixed, place = self._fixed
            inside = fixed.copy()
            for dimension, axis, cut, step in self._moving:
                found = cut.at(position[axis])
                if len(found) != 1:
                    break
                number, inside[dimension], _ = found[0]
                chunk += number * step
            else:
                return [Part(chunk, tuple(inside), place)]
        along = self._rest.copy()
        for dimension, axis, cut, _ in self._moving:
            along[dimension] = cut.at(position[axis])
        return [self._part(each) for each in product(*along)]

    def located(self, positions: NDArray[np.int64]) -> tuple[list[int], list[tuple[int | slice, ...]]] | None:
        """Return the chunk of each sample at these positions, and the elements in it; None if some may take several.

        ``positions`` has the shape (samples, axes).
        """
        if self._fixed is None or not self._single:
            return None
        chunk, inside, _ = self._fixed
        chunks = np.full(len(positions), chunk, dtype=np.int64)
        columns: list[Iterable[int | slice]] = [repeat(each, len(positions)) for each in inside]
        for dimension, axis, cut, step in self._moving:
            numbers, within = cut.split(positions[:, axis])
            chunks += numbers * step
            columns[dimension] = within.tolist()
        return chunks.tolist(), [*zip(*columns, strict=True)] or [()] * len(positions)

    def _alone(self) -> tuple[int, list[int | slice], tuple[slice, ...]] | None:
        """Return the part at the origin of the moving cuts; None if a fixed cut takes several segments."""
        if any(len(segments) != 1 for segments, cut in zip(self._rest, self.cuts, strict=True) if cut.axis is None):
            return None
        chunk, inside = self._first, list[int | slice]()
        for segments, step in zip(self._rest, self._steps, strict=True):
            chunk += segments[0].chunk * step if segments else 0
            inside.append(segments[0].inside if segments else 0)
        return chunk, inside, tuple(slice(0, length) for length in self.shape)

    def _part(self, along: tuple[Segment, ...]) -> Part:
        chunk, inside, place = self._first, [], []
        for (number, elements, where), step in zip(along, self._steps, strict=True):
            chunk += number * step
            inside.append(elements)
            if where is not None:
                place.append(where)
        return Part(chunk, tuple(inside), tuple(place))

    def chunks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions touch: a row per sample, without repeats, padded with -1.

        ``positions`` has the shape (samples, axes); the result (samples, most chunks of a sample).
        """
        found = np.full((len(positions), 1), self._first, dtype=np.int64)
        for cut, segments, step in zip(self.cuts, self._rest, self._steps, strict=True):
            if cut.axis is None:
                each = np.array(sorted({segment.chunk for segment in segments}), dtype=np.int64)[None, :]
            else:
                each = cut.chunks(positions[:, cut.axis])
            none = (found < 0)[:, :, None] | (each < 0)[:, None, :]
            width = found.shape[1] * each.shape[1]
            found = np.where(none, -1, found[:, :, None] + step * each[:, None, :]).reshape(len(positions), width)
        return found
