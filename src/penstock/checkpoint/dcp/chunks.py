"""Chunks of a stored tensor: a grid that arithmetic describes, or boxes; both contain each element once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import _create_chunk_list

from penstock.checkpoint.integrity import elements
from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.distributed.checkpoint.metadata import STORAGE_TYPES, Metadata

    Boxes = np.ndarray[Any, np.dtype[np.int64]]  # of each chunk a row of offsets, and a row of sizes
    _Shape = tuple[int, ...]


class StoredChunks(Sequence[ChunkStorageMetadata]):
    """Chunks of a tensor, made when asked for: a checkpoint of many ranks has too many to keep.

    Chunks of a grid are numbered in row-major order; boxes, which ``load_boxes`` returns, by their offsets.
    """

    # torch's planners look at all chunks of a tensor several times, and then at the next tensor's.
    _latest: ClassVar[tuple[StoredChunks | None, list[ChunkStorageMetadata]]] = None, []

    def __init__(self, size: _Shape, steps: _Shape, count: int, load_boxes: Callable[[], Boxes] | None = None) -> None:
        self._size = size
        self._steps = steps
        self._count = count
        self._cells = [-(-length // step) for length, step in zip(size, steps, strict=True)]
        self._load_boxes = load_boxes

    @cached_property
    def _boxes(self) -> Boxes:
        # Chunks that do not form a grid have boxes.
        assert self._load_boxes is not None  # noqa: S101  for mypy
        return self._load_boxes()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> ChunkStorageMetadata: ...
    @overload
    def __getitem__(self, number: slice) -> list[ChunkStorageMetadata]: ...
    def __getitem__(self, number: int | slice) -> ChunkStorageMetadata | list[ChunkStorageMetadata]:
        of, made = StoredChunks._latest
        if of is self:
            return made[number]
        numbers = range(self._count)[number]
        return self._chunk(numbers) if isinstance(numbers, int) else [self._chunk(each) for each in numbers]

    def __iter__(self) -> Iterator[ChunkStorageMetadata]:
        of, made = StoredChunks._latest
        if of is not self:
            made = self._make(np.arange(self._count))
            StoredChunks._latest = self, made
        return iter(made)

    def sizes_at(self, number: int, offsets: _Shape) -> _Shape:
        """Return the shape of the chunk ``number``, which is at ``offsets``."""
        if self._load_boxes is not None:
            return tuple(self._boxes[number, 1].tolist())
        return tuple(min(step, most - at) for step, most, at in zip(self._steps, self._size, offsets, strict=True))

    def number_of(self, offsets: _Shape) -> int:
        """Return the number of the chunk at ``offsets``; raise ``KeyError`` if none is there."""
        if len(offsets) != len(self._size):
            raise KeyError(offsets)
        if self._load_boxes is not None:
            found = np.flatnonzero((self._boxes[:, 0] == np.asarray(offsets)).all(axis=1))
            if not len(found):
                raise KeyError(offsets)
            return int(found[0])
        cells = [offset // step for offset, step in zip(offsets, self._steps, strict=True)]
        at = tuple(cell * step for cell, step in zip(cells, self._steps, strict=True))
        if at != tuple(offsets) or not all(0 <= cell < count for cell, count in zip(cells, self._cells, strict=True)):
            raise KeyError(offsets)
        return self._ravel(cells)

    def overlapping(self, chunks: Iterable[ChunkStorageMetadata]) -> list[ChunkStorageMetadata]:
        """Return the stored chunks that share elements with any of ``chunks``."""
        found: dict[int, None] = {}
        for each in chunks:
            if all(each.sizes):
                found.update(dict.fromkeys(self._overlapping(each)))
        return self._make(np.fromiter(found, np.int64, len(found)))

    def _overlapping(self, chunk: ChunkStorageMetadata) -> Iterable[int]:
        if self._load_boxes is not None:
            lows, sizes = self._boxes[:, 0], self._boxes[:, 1]
            low, size = np.asarray(chunk.offsets), np.asarray(chunk.sizes)
            return np.flatnonzero(((low < lows + sizes) & (lows < low + size)).all(axis=1)).tolist()
        cells = [
            range(low // step, min(count, -(-(low + long) // step)))
            for low, long, step, count in zip(chunk.offsets, chunk.sizes, self._steps, self._cells, strict=True)
        ]
        return (self._ravel(each) for each in product(*cells))

    def _ravel(self, cells: Iterable[int]) -> int:
        number = 0
        for cell, count in zip(cells, self._cells, strict=True):
            number = number * count + cell
        return number

    def _chunk(self, number: int) -> ChunkStorageMetadata:
        return self._make(np.array([number]))[0]

    def _make(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> list[ChunkStorageMetadata]:
        if self._load_boxes is not None:
            boxes = self._boxes[numbers]
        else:
            boxes = np.empty((len(numbers), 2, len(self._size)), np.int64)
            for dimension in reversed(range(len(self._size))):
                numbers, cell = np.divmod(numbers, self._cells[dimension])
                boxes[:, 0, dimension] = cell * self._steps[dimension]
            boxes[:, 1] = np.minimum(self._steps, np.array(self._size, np.int64) - boxes[:, 0])
        return [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in boxes.tolist()]


def narrow_chunks(stored: STORAGE_TYPES, value: Any) -> STORAGE_TYPES:  # noqa: ANN401  a value of any state
    """Return an item with only the chunks that a tensor of this rank overlaps: torch looks at each chunk."""
    mesh = getattr(value, "device_mesh", None)
    if not isinstance(stored, TensorStorageMetadata) or (mesh is not None and mesh.get_coordinate() is None):
        return stored
    chunks = stored.chunks
    if not isinstance(chunks, StoredChunks):
        return stored
    return replace(stored, chunks=chunks.overlapping(_create_chunk_list(value)))


def count_cells(size: _Shape, steps: _Shape) -> int:
    return prod(-(-length // step) for length, step in zip(size, steps, strict=True))


def find_steps(size: _Shape, boxes: Boxes) -> _Shape | None:
    """Return the steps of the grid that ``boxes`` form, in row-major order; None if they do not form one."""
    steps = tuple(int(boxes[0, 1, dimension]) for dimension in range(len(size))) if len(boxes) else (1,) * len(size)
    cells = [-(-length // step) for length, step in zip(size, steps, strict=True)]
    if prod(cells) != len(boxes):
        return None
    rest = np.arange(len(boxes))
    for dimension in reversed(range(len(size))):
        rest, cell = np.divmod(rest, cells[dimension] or 1)
        offsets = cell * steps[dimension]
        lengths = np.minimum(steps[dimension], size[dimension] - offsets)
        if (boxes[:, 0, dimension] != offsets).any() or (boxes[:, 1, dimension] != lengths).any():
            return None
    return steps


def check_chunks(metadata: Metadata, url: str) -> None:
    """Refuse chunks that lack or repeat elements of a tensor: torch would silently keep old values there."""
    for name, stored in metadata.state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata):
            continue
        try:
            problem = _explain_untiled(tuple(stored.size), stored.chunks)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            problem = f"are invalid: {error!r:.80}"
        refuse_untiled(name, stored.size, problem, url)


def refuse_untiled(name: str, size: Sequence[int], problem: str, url: str) -> None:
    if problem:
        raise CheckpointError(f"the chunks of tensor {name!r:.80} of {list(size)!s:.80} {problem}", url=url)


def _explain_untiled(size: tuple[int, ...], chunks: Sequence[ChunkStorageMetadata]) -> str:
    """Return how chunks fail to contain each element of a tensor once; empty if they do."""
    if elements(size) is None or min(size, default=0) < 0:
        return "have an impossible number of elements"
    if any(len(each.offsets) != len(size) or len(each.sizes) != len(size) for each in chunks):
        return "have another number of dimensions"
    return explain_holes(size, collect_boxes(chunks, len(size)))


def collect_boxes(chunks: Sequence[ChunkStorageMetadata], dimensions: int) -> Boxes:
    """Return chunks as an array of offsets and sizes: of each chunk a row of offsets, and a row of sizes."""
    numbers = chain.from_iterable(chain.from_iterable((each.offsets, each.sizes) for each in chunks))
    return np.fromiter(numbers, np.int64, 2 * dimensions * len(chunks)).reshape(len(chunks), 2, dimensions)


def explain_holes(size: tuple[int, ...], boxes: Boxes) -> str:
    offsets, sizes = boxes[:, 0], boxes[:, 1]
    if (boxes < 0).any() or (offsets > size - sizes).any():
        return "reach beyond it"
    filled = boxes[(sizes > 0).all(axis=1)]
    if not (_is_grid(size, filled) or _apart(filled)):
        return "overlap"
    return "" if filled[:, 1].prod(axis=1).sum() == elements(size) else "leave out some of its elements"


def _is_grid(size: tuple[int, ...], boxes: Boxes) -> bool:
    """Return whether chunks are all cells of a grid over a tensor, each once, as from a mesh of ranks."""
    cells = np.zeros(len(boxes), np.int64)
    count = 1
    for dimension, most in enumerate(size):
        starts, which = np.unique(boxes[:, 0, dimension], return_inverse=True)
        lengths = np.diff(starts, append=most)
        if not len(starts) or starts[0] or (boxes[:, 1, dimension] != lengths[which]).any():
            return False
        cells = cells * len(starts) + which
        count *= len(starts)
    return count == len(boxes) == len(np.unique(cells))


def _apart(boxes: Boxes) -> bool:
    """Return whether no two chunks overlap; sweeps along the dimension with the most different offsets."""
    if not boxes.size:
        return len(boxes) <= 1
    along = max(range(boxes.shape[2]), key=lambda dimension: len(np.unique(boxes[:, 0, dimension])))
    lows, highs = boxes[:, 0], boxes.sum(axis=1)
    active = np.zeros(0, np.int64)
    for number in np.argsort(boxes[:, 0, along], kind="stable"):
        active = active[highs[active, along] > lows[number, along]]
        if ((lows[active] < highs[number]) & (lows[number] < highs[active])).all(axis=1).any():
            return False
        active = np.append(active, number)
    return True
