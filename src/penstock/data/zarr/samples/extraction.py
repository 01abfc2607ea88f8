"""Extraction of a sample from an array: chunks, elements of each chunk, and their places in the sample. Pure.

Indices along a dimension are cut at the borders of its chunks; ``IndexSpace`` numbers the samples and their positions.
"""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product, repeat
from math import lcm, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.format.layout import Runs
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        equal: Whether the last has as many, too.
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
        self.equal = self.length == self.count * self.even

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


_MOST_SAMPLES = 1 << 48
# Blocks of different sizes, which are listed.
_MOST_BLOCKS = 1 << 26
# Samples that a mask selects from: 8 bytes each while it is applied.
_MOST_MASKED = 1 << 31


@dataclass(frozen=True, eq=False)
class Axis:
    """Dimension that samples are numbered along.

    ``positions`` of samples count the chosen elements; ``blocks`` are of indices within ``positions``. ``form`` is a
    text from which the blocks follow, for digests; "" if none is known.
    """

    name: str
    positions: Sequence[int]
    blocks: AxisBlocks
    form: str = ""

    @classmethod
    def of(cls, name: str, positions: Sequence[int], chosen: Sequence[int], block: int | Runs) -> Axis:
        """Return an axis cut into blocks: runs of samples within the same ``block`` elements of the array."""
        count = len(positions)
        if not isinstance(chosen, range) or not isinstance(positions, range):
            at = integers_of(positions)
            # The elements of a range are computed: there may be far more of them than positions.
            taken = chosen.start + chosen.step * at if isinstance(chosen, range) else integers_of(chosen)[at]
            return cls(name, positions, AxisBlocks(taken, block))
        some = chosen[positions.start : positions.stop : positions.step]
        if isinstance(block, Runs):
            form = f"{count} by {some.step} from {some[:1]} in {block}"
        elif abs(some.step) >= block:
            form = f"{count} apart"
        else:
            crossed = count and some[0] // block != some[-1] // block
            form = f"{count} by {some.step} from {some[0] % block} in {block}" if crossed else f"{count} together"
        return cls(name, positions, AxisBlocks(some, block), form)


class IndexSpace:
    """All samples, numbered block by block, and within a block in row-major order of the axes.

    Attributes:
        samples: Number of samples.
        blocks: Number of blocks with samples.
        most: Upper limit of the samples of a block.
        even: Samples of each block, of which the last may have fewer; 0 if they differ.
    """

    def __init__(self, axes: Sequence[Axis], valid: NDArray[np.bool_] | None = None) -> None:
        """Number the samples of ``axes`` for which ``valid`` (a dimension for each axis) is True; None: all samples."""
        self.axes = tuple(axes)
        samples = prod(len(axis.positions) for axis in axes)
        if samples > _MOST_SAMPLES or (valid is not None and samples > _MOST_MASKED):
            raise Unusable(f"{samples} samples are too many to be numbered: take larger patches")
        self._members: NDArray[np.int64] | None = None
        self._sizes: NDArray[np.int64] | None = None
        if valid is not None:
            pieces = (np.arange(start, min(start + _AT_ONCE, samples)) for start in range(0, samples, _AT_ONCE))
            self._members = np.concatenate([some[valid[tuple(self._numbers(some).T)]] for some in pieces])
        self._count()

    def _count(self) -> None:
        if self._members is not None:
            # The first number of each member's block.
            firsts = self._members - self._locate(self._members)[0]
            sizes = self._sizes = np.diff(np.flatnonzero(np.diff(firsts, prepend=-1, append=-1)))
            self.samples, self.blocks, self.most = len(firsts), len(sizes), int(sizes.max(initial=0))
            is_even = self.blocks and (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]
            self.even = int(sizes[0]) if is_even else 0
            return
        each = [axis.blocks for axis in self.axes]
        self.samples, self.blocks = prod(some.length for some in each), prod(some.count for some in each)
        self.most, self.even = prod(some.most for some in each), prod(some.even for some in each)
        # Only the last block of all may have fewer samples.
        several = [some for some in each if some.count > 1]
        if len(several) > 1 and not all(some.equal for some in several):
            self.even = 0

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of samples of each block, in order; empty blocks are left out."""
        if self._sizes is not None:
            return self._sizes
        if self.blocks > _MOST_BLOCKS:
            raise Unusable(
                f"cannot list {self.blocks:,} blocks of different numbers of samples, more than 2^26: take strides or "
                "patches that divide the chunks, or larger ones, and join stores that end with a whole chunk"
            )
        sizes = np.ones(1, dtype=np.int64)
        for blocks in (axis.blocks for axis in self.axes):
            lengths = np.diff(blocks.starts(np.arange(blocks.count + 1)))
            sizes = np.multiply.outer(sizes, lengths).reshape(-1)
        return sizes

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
            return [integers_of(self.axes[axis].positions) for axis in axes]
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
        for table in (*(axis.blocks.borders[:-1] for axis in self.axes if not axis.form), *listed, *members):
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
        """Return the index of each sample within the positions of each axis: shape (numbers, axes)."""
        if len(self.axes) == 1:
            return numbers[:, None].copy()
        found = np.empty((len(numbers), len(self.axes)), dtype=np.int64)
        left, cells = self._locate(numbers)
        for axis in reversed(range(len(self.axes))):
            start, length = cells[axis]
            left, within = np.divmod(left, length)
            found[:, axis] = start + within
        return found

    def _locate(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[tuple[Any, Any]]]:
        """Return the number of each sample in its block, and along each axis the block's first index and its length."""
        left, cells = numbers, list[tuple[Any, Any]]()
        # Samples of one element along the axis, for all positions along the axes behind it.
        below = prod(len(axis.positions) for axis in self.axes)
        above: Any = 1
        for blocks in (axis.blocks for axis in self.axes):
            below //= max(blocks.length, 1)
            start: Any = 0
            length: Any = blocks.length
            if blocks.count > 1:
                block = blocks.of(left // (above * below))
                start = blocks.starts(block)
                length = blocks.even if blocks.equal else blocks.starts(block + 1) - start
                left = left - above * below * start
            above = above * length
            cells.append((start, length))
        return left, cells


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
