"""How samples fall into blocks: the cells of a grid of chunks, so that the samples of a chunk are together. Pure."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets.zarr.samples.segments import Cut
    from penstock.formats.zarr.layout import Layout

    Moving: TypeAlias = Sequence[tuple[Layout, Sequence[Cut]]]

__all__ = ["Blocks", "blocks_of"]

_OVERLAP = 0.1  # of a block's reads: what the neighbours of a run of chunks may add to it
_RUN_PART = 4  # a block of several chunks takes this part of the window at most
_ANY = 1 << 62  # elements of a block along an axis that no chunk ends along


class Blocks(NamedTuple):
    """Blocks of samples.

    Attributes:
        edges: Elements of a block along each axis.
        references: Along each aligned axis, the elements of the array whose chunks they are; None along all others,
            where the elements are those of all arrays.
        block_bytes: Decoded bytes of the chunks that the samples of one block need, at most.
        chunk_bytes: The same of one sample.

    """

    edges: Sequence[int]
    references: Sequence[Sequence[int] | None]
    block_bytes: int
    chunk_bytes: int


def blocks_of(arrays: Moving, reaches: Sequence[tuple[int, int]], aligned: Sequence[bool], window_bytes: int) -> Blocks:
    """Return the blocks of samples.

    The chunks of the array that has most of a sample's bytes; those of the array with the largest chunks, if a window
    has room for them; and several in a row, where samples reach into the next ones.

    Args:
        arrays: What samples are cut from, but for arrays that are kept.
        reaches: How far samples reach along each axis: first and last element, relative to their position.
        aligned: Along which axes the arrays have elements of their own.
        window_bytes: Decoded bytes of the chunks of a window of blocks: a block has a part of it at most.

    """
    if not arrays:
        return Blocks([_ANY] * len(reaches), [None] * len(reaches), 0, 0)
    by_size = sorted(arrays, key=lambda pair: -prod(cut.length or 1 for cut in pair[1]) * pair[0].dtype.itemsize)
    references = [_cut_along(axis, by_size) if each else None for axis, each in enumerate(aligned)]
    elements = [None if cut is None else cut.chosen for cut in references]

    def size(edges: Sequence[int]) -> int:
        return _block_bytes(arrays, edges, reaches, elements)

    def edges_of(some: Moving) -> list[int]:
        return [
            (_most_along(axis, some) or _most_along(axis, arrays) or _ANY) if cut is None else cut.chunk
            for axis, cut in enumerate(references)
        ]

    own, edges = edges_of(by_size[:1]), edges_of(arrays)
    if size(edges) > window_bytes // _RUN_PART:
        edges = own
    spread = reaches[0][1] - reaches[0][0]
    run = ceil(spread / (_OVERLAP * edges[0])) if spread else 1
    while run > 1 and size([run * edges[0], *edges[1:]]) > window_bytes // _RUN_PART:
        run = run * 3 // 4
    edges = [run * edges[0], *edges[1:]]
    return Blocks(edges, elements, size(edges), size([1] * len(edges)))


def _cut_along(axis: int, arrays: Moving) -> Cut | None:
    """Return the first cut that moves along an axis."""
    return next((cut for _, cuts in arrays for cut in cuts if cut.axis == axis), None)


def _most_along(axis: int, arrays: Moving) -> int:
    """Return the elements of the largest chunk along an axis; 0 if there is none."""
    return max((cut.chunk for _, cuts in arrays for cut in cuts if cut.axis == axis), default=0)


def _block_bytes(
    arrays: Moving,
    edges: Sequence[int],
    reaches: Sequence[tuple[int, int]],
    references: Sequence[Sequence[int] | None],
) -> int:
    total = 0
    for layout, cuts in arrays:
        chunks = 1
        for cut, count in zip(cuts, layout.grid, strict=True):
            if cut.axis is None:
                chunks *= len({segment.chunk for segment in cut.at(0)})
                continue
            edge, reach, reference = edges[cut.axis], reaches[cut.axis], references[cut.axis]
            most = _across(cut, edge, reach) if reference is None else _counted(cut, edge, reach, reference)
            chunks *= min(count, most)
        total += chunks * layout.chunk_bytes
    return total


def _across(cut: Cut, edge: int, reach: tuple[int, int]) -> int:
    """Return how many chunks a run of ``edge`` elements touches at most, with what samples reach beyond it."""
    spread = reach[1] - reach[0]
    aligned = not spread and not edge % cut.chunk
    return edge // cut.chunk if aligned else (edge + spread - 1) // cut.chunk + 2


def _counted(cut: Cut, edge: int, reach: tuple[int, int], reference: Sequence[int]) -> int:
    """Return the same of blocks that have ``edge`` elements of another array."""
    blocks = np.asarray(reference, dtype=np.int64) // edge
    chunks = np.asarray(cut.chosen, dtype=np.int64) // cut.chunk
    last = np.flatnonzero(np.diff(blocks))
    begins, ends = np.append(0, last + 1), np.append(last, len(blocks) - 1)
    changes = np.append(0, np.cumsum(np.diff(chunks) != 0))
    first = (begins + reach[0]).clip(0, len(blocks) - 1)
    final = (ends + reach[1]).clip(0, len(blocks) - 1)
    return int((changes[final] - changes[first]).max()) + 1
