"""Chunks of a selection, and the part of each. Pure."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.data.zarr.format.layout import Layout

__all__ = ["Piece", "pieces"]


class Piece(NamedTuple):
    """Part of a selection that lies in one chunk: ``result[piece.result] = decoded_chunk[piece.within]``.

    Attributes:
        chunk: The chunk's coordinates in the array's grid.
        within: Slices of the decoded chunk, one for each dimension.
        result: Slices of the selection, one for each dimension.

    """

    chunk: tuple[int, ...]
    within: tuple[slice, ...]
    result: tuple[slice, ...]


def pieces(layout: Layout, start: Sequence[int], stop: Sequence[int]) -> Iterator[Piece]:
    """Yield the pieces of ``array[start[0]:stop[0], …]``, chunks in row-major order; nothing for an empty selection.

    Raises:
        Unusable: The selection is not within the array's shape; raised at the call, before the first piece.

    """
    if not len(layout.shape) == len(start) == len(stop):
        message = (
            f"a selection of {len(start)} starts and {len(stop)} stops in an array of {len(layout.shape)} dimensions"
        )
        raise Unusable(message)
    if any(not 0 <= first <= last <= size for first, last, size in zip(start, stop, layout.shape, strict=True)):
        raise Unusable(f"the selection from {tuple(start)} to {tuple(stop)} is not within the shape {layout.shape}")
    return _pieces([_cuts(*side) for side in zip(start, stop, layout.chunks, strict=True)])


def _pieces(sides: list[list[tuple[int, slice, slice]]]) -> Iterator[Piece]:
    if not sides:  # a scalar
        yield Piece((), (), ())
    elif all(len(side) == 1 for side in sides):  # most samples lie in one chunk
        yield Piece(*zip(*(side[0] for side in sides), strict=True))
    else:
        for corner in product(*sides):
            yield Piece(*zip(*corner, strict=True))


def _cuts(start: int, stop: int, size: int) -> list[tuple[int, slice, slice]]:
    """Cut ``[start, stop)`` at the borders of chunks: the chunk's number, the slice in it, the slice of the result."""
    cuts = []
    for number in range(start // size, -(-stop // size) if stop > start else 0):
        first, last = max(start, number * size), min(stop, (number + 1) * size)
        cuts.append((number, slice(first - number * size, last - number * size), slice(first - start, last - start)))
    return cuts
