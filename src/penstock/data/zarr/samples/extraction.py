"""Extraction of a sample from an array: chunks, elements of each chunk, and their places in the sample. Pure.

Indices along a dimension are cut at the borders of its chunks; ``IndexSpace`` numbers the samples and their positions.
"""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product, repeat
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.zarr.format.layout import Runs
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

_KEPT = 4096  # positions along a dimension whose segments are cached


class Segment(NamedTuple):
    """Part of the indices along a dimension within one chunk: ``inside`` are the elements within it.

    A number as ``inside`` drops the dimension, which then has no ``place`` in the result.
    """

    chunk: int
    inside: int | slice
    place: slice | None


def segments(indices: Sequence[int], chunk: int | Runs) -> tuple[Segment, ...]:
    """Cut indices at the borders of chunks of ``chunk`` elements, into as few slices as possible in order."""
    found, at, count = [], 0, len(indices)
    while at < count:
        number, inside = divmod(indices[at], chunk)
        if isinstance(indices, range) and indices.step > 0:
            step = indices.step
            left = chunk - inside if isinstance(chunk, int) else chunk.bounds(number)[1] - indices[at]
            length = min(count - at, (left - 1) // step + 1)
        else:
            step, length = _run(indices, at, number, chunk)
        place = slice(at, at + length)
        found.append(Segment(number, slice(inside, inside + (length - 1) * step + 1, step), place))
        at += length
    return tuple(found)


def _run(indices: Sequence[int], at: int, number: int, chunk: int | Runs) -> tuple[int, int]:
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
        chunk: Elements of a chunk along the dimension; ``Runs`` where chunks differ in length.
        chosen: Elements of the dimension that samples may use, in order.
        window: Chosen elements that a sample takes, relative to ``scale`` times its position. A number takes one
            element and drops the dimension; its scale is 1.
        axis: Axis of the index space that moves the window; None: the window is fixed.
        scale: Chosen elements for each position along the axis: more than 1 for the finer of two resolutions.
    """

    chunk: int | Runs
    chosen: Sequence[int]
    window: Sequence[int] | int = 0
    axis: int | None = None
    scale: int = 1
    _cached: Callable[[int], tuple[Segment, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create the cache of the latest positions."""
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
            return min(count, int(abs(chosen[-1] // self.chunk - chosen[0] // self.chunk)) + 1)
        spread = (max(self.window) - min(self.window)) if not isinstance(self.window, range) else count - 1
        if isinstance(self.chunk, Runs):
            # A run that ends within the spread adds a shorter chunk.
            return min(count, spread * abs(chosen.step) // min(self.chunk.sizes) + 1 + len(self.chunk.sizes))
        return min(count, spread * abs(chosen.step) // self.chunk + 2)

    def at(self, position: int) -> tuple[Segment, ...]:
        """Return the segments of a sample at ``position``."""
        if isinstance(self.window, int):
            number, inside = divmod(self.chosen[position + self.window], self.chunk)
            return (Segment(number, inside, None),)
        return self._cached(position * self.scale)

    def split(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the chunk and the element in it for samples at these positions; for a cut that takes one element."""
        at, chosen = positions + self.window, self.chosen
        if isinstance(chosen, range):
            elements = chosen.start + at * chosen.step
        else:
            elements = np.asarray(chosen, dtype=np.int64)[at]
        chunks, inside = divmod(elements, self.chunk)
        return chunks, inside

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
        return Cut, (self.chunk, self.chosen, self.window, self.axis, self.scale)


def _segments(chunk: int | Runs, chosen: Sequence[int], window: Sequence[int], position: int) -> tuple[Segment, ...]:
    if isinstance(chosen, range) and isinstance(window, range) and window and chosen.step > 0 and window.step > 0:
        first, step = chosen[position + window[0]], chosen.step * window.step
        return segments(range(first, first + len(window) * step, step), chunk)
    return segments([chosen[position + each] for each in window], chunk)


_MOST_SAMPLES = 1 << 48
_MOST_BLOCKS = 1 << 26
# Samples that a mask selects from: 8 bytes each while it is applied.
_MOST_MASKED = 1 << 31


@dataclass(frozen=True, eq=False)
class Axis:
    """Dimension that samples are numbered along.

    ``positions`` of samples count the chosen elements; ``starts`` has the index within ``positions`` of the first
    sample of each block, and begins with 0. ``form`` is a text from which ``starts`` follows, for digests; "" if none
    is known.
    """

    name: str
    positions: Sequence[int]
    starts: NDArray[np.int64]
    form: str = ""

    @classmethod
    def of(cls, name: str, positions: Sequence[int], chosen: Sequence[int], block: int | Runs) -> Axis:
        """Return an axis cut into blocks: runs of samples within the same ``block`` elements of the array."""
        count = len(positions)
        if isinstance(chosen, range) and isinstance(positions, range) and isinstance(block, int):
            some = chosen[positions.start : positions.stop : positions.step]
            crossed = abs(some[-1] // block - some[0] // block) if count else 0
            if min(crossed, count) > _MOST_BLOCKS:
                raise Unusable(f"{min(crossed, count)} chunks along {name!r} are too many to be numbered")
            if abs(some.step) >= block:  # at most one sample per block
                return cls(name, positions, np.arange(count, dtype=np.int64), f"{count} apart")
            borders = np.arange(1, crossed + 1, dtype=np.int64)
            if some.step > 0:
                first = block - (some[0] if count else 0) % block  # from the first sample to the first border
                starts = -((first + (borders - 1) * block) // -some.step)
            else:
                starts = (some[0] % block + (borders - 1) * block) // -some.step + 1 if count else borders
            form = f"{count} by {some.step} from {some[0] % block} in {block}" if crossed else f"{count} together"
            return cls(name, positions, np.concatenate((np.arange(min(1, count)), starts)), form)
        at = np.asarray(positions, dtype=np.int64)
        # The elements of a range are computed: there may be far more of them than positions.
        taken = chosen.start + chosen.step * at if isinstance(chosen, range) else np.asarray(chosen, dtype=np.int64)[at]
        changes = np.flatnonzero(np.diff(taken // block)) + 1
        return cls(name, positions, np.concatenate((np.arange(min(1, len(positions))), changes)))


class IndexSpace:
    """All samples, numbered block by block, and within a block in row-major order of the axes.

    ``sizes`` has the number of samples in each block, in order; empty blocks are left out.
    """

    def __init__(self, axes: Sequence[Axis], valid: NDArray[np.bool_] | None = None) -> None:
        """Number the samples of ``axes`` for which ``valid`` (a dimension for each axis) is True; None: all samples."""
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
        self._count()

    def _count(self) -> None:
        bounds = self._bounds if self._members is None else np.searchsorted(self._members, self._bounds)
        sizes = np.diff(bounds)
        self.samples = int(bounds[-1])
        self.sizes: NDArray[np.int64] = sizes[sizes > 0]

    def subset(self, numbers: NDArray[np.int64]) -> IndexSpace:
        """Return the samples with these numbers, which ascend, renumbered from 0."""
        found = copy(self)
        found._members = numbers if self._members is None else self._members[numbers]  # noqa: SLF001  itself
        found._count()  # noqa: SLF001
        return found

    def overlaps(self, windows: Sequence[NDArray[np.int64]]) -> str:
        """Return an axis along which two samples share an element; "" if samples share none.

        ``windows`` are the elements that samples take along each axis, relative to their position, without repeats.
        """
        for axis, window in zip(self.axes, windows, strict=True):
            if len(axis.positions) < 2:  # noqa: PLR2004  a single sample along the axis
                continue
            some = axis.positions
            step = some.step if isinstance(some, range) else int(np.gcd.reduce(np.diff(np.asarray(some, np.int64))))
            # Without a common multiple of the step among the distances, no two positions reach the same element.
            if len(np.unique(window % step)) < len(window):
                return axis.name
        return ""

    def along(self, axes: Sequence[int]) -> list[NDArray[np.int64]] | None:
        """Return the positions of samples along some axes; None if samples lack some of their combinations."""
        if self._members is None:
            return [np.asarray(self.axes[axis].positions, dtype=np.int64) for axis in axes]
        found = self.positions(np.arange(self.samples))[:, [*axes]]
        columns = [np.unique(column) for column in found.T]
        alone = len(axes) < 2 or prod(map(len, columns)) == len(np.unique(found, axis=0))  # noqa: PLR2004
        return columns if alone else None

    @property
    def digest(self) -> str:
        """Digest of the numbering: takes the tables that do not follow from a few numbers."""
        hashed = hashlib.sha256(repr([(axis.form, len(axis.positions)) for axis in self.axes]).encode())
        listed = [np.asarray(axis.positions) for axis in self.axes if not isinstance(axis.positions, range)]
        members = [] if self._members is None else [self._members]
        for table in (*(axis.starts for axis in self.axes if not axis.form), *listed, *members):
            hashed.update(np.ascontiguousarray(table, "<i8").data)
        return hashed.hexdigest()[:32]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of samples along each axis, counted among the chosen elements: shape (numbers, axes)."""
        within = self._numbers(numbers if self._members is None else self._members[numbers])
        for axis, column in zip(self.axes, within.T, strict=True):
            some = axis.positions
            if isinstance(some, range):
                column *= some.step  # noqa: PLW2901  in place
                column += some.start  # noqa: PLW2901
            else:
                column[:] = np.asarray(some, dtype=np.int64)[column]
        return within

    def _numbers(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
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


class ChunkPart(NamedTuple):
    """Part of a sample within one chunk: elements of the chunk, and their place in the sample.

    Chunks are numbered row by row in the array's grid of chunks, from the number of its first chunk.
    """

    chunk: int
    inside: tuple[int | slice, ...]
    place: tuple[slice, ...]


class Extraction:
    """Elements of one array that samples take, by a cut along each dimension; ``first`` is its first chunk's number."""

    def __init__(self, cuts: Sequence[Cut], grid: Sequence[int], first: int = 0) -> None:
        """Take ``cuts`` of an array with ``grid`` chunks along each dimension, numbered from ``first`` on."""
        self.cuts = tuple(cuts)
        self.first = first
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

    def parts(self, position: Sequence[int]) -> list[ChunkPart]:
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
                return [ChunkPart(chunk, tuple(inside), place)]
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
        chunk, inside = self.first, list[int | slice]()
        for segments, step in zip(self._rest, self._steps, strict=True):
            chunk += segments[0].chunk * step if segments else 0
            inside.append(segments[0].inside if segments else 0)
        return chunk, inside, tuple(slice(0, length) for length in self.shape)

    def _part(self, along: tuple[Segment, ...]) -> ChunkPart:
        chunk, inside, place = self.first, [], []
        for (number, elements, where), step in zip(along, self._steps, strict=True):
            chunk += number * step
            inside.append(elements)
            if where is not None:
                place.append(where)
        return ChunkPart(chunk, tuple(inside), tuple(place))

    def chunks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions touch: a row per sample, without repeats, padded with -1.

        ``positions`` has the shape (samples, axes); the result (samples, most chunks of a sample).
        """
        found = np.full((len(positions), 1), self.first, dtype=np.int64)
        for cut, segments, step in zip(self.cuts, self._rest, self._steps, strict=True):
            if cut.axis is None:
                each = np.array(sorted({segment.chunk for segment in segments}), dtype=np.int64)[None, :]
            else:
                each = cut.chunks(positions[:, cut.axis])
            none = (found < 0)[:, :, None] | (each < 0)[:, None, :]
            width = found.shape[1] * each.shape[1]
            found = np.where(none, -1, found[:, :, None] + step * each[:, None, :]).reshape(len(positions), width)
        return found
