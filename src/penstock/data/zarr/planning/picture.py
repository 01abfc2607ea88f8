"""Pictures of the chunks that a batch touches in an array, as text blocks and as SVG. Pure."""

from __future__ import annotations

from html import escape
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Picture", "picture", "svg", "text"]

# Most cells of a picture; beyond that, several chunks share a cell.
_COLUMNS, _ROWS = 64, 24
_CELL = 9  # pixels


class Picture(NamedTuple):
    """Picture of a grid of chunks.

    Attributes:
        title: The array, and the dimensions of rows and columns.
        cells: Array of rows and columns: 1 for a touched chunk, 0 for another chunk, -1 for no chunk.
        share: Chunks per cell, along rows and columns.

    """

    title: str
    cells: NDArray[np.int8]
    share: tuple[int, int]


def picture(name: str, dims: Sequence[str], grid: Sequence[int], chunks: Iterable[tuple[int, ...]]) -> Picture:
    """Return the picture of one array: its first two dimensions with several chunks; a single one is wrapped into rows.

    Args:
        name: Name of the array.
        dims: Names of its dimensions.
        grid: Number of chunks along each dimension.
        chunks: Coordinates of the touched chunks.

    """
    several = [axis for axis, count in enumerate(grid) if count > 1][:2]
    title = name or "the array"
    if len(several) < 2:  # noqa: PLR2004  rows and columns
        axis = several[0] if several else 0
        count = grid[axis] if grid else 1
        columns = min(count, _COLUMNS)
        share = ceil(ceil(count / columns) / _ROWS)
        rows = ceil(ceil(count / share) / columns)
        flat = np.full(rows * columns, -1, dtype=np.int8)
        flat[: ceil(count / share)] = 0
        for chunk in chunks:
            flat[(chunk[axis] if chunk else 0) // share] = 1
        along = f": {dims[axis]}, row by row" if several else ""
        return Picture(f"{title}{along}", flat.reshape(rows, columns), (1, share))
    down, across = sorted(several, key=lambda axis: grid[axis])  # longer dimension across
    shares = ceil(grid[down] / _ROWS), ceil(grid[across] / _COLUMNS)
    cells = np.zeros((ceil(grid[down] / shares[0]), ceil(grid[across] / shares[1])), dtype=np.int8)
    for chunk in chunks:
        cells[chunk[down] // shares[0], chunk[across] // shares[1]] = 1
    return Picture(f"{title}: {dims[down]} down, {dims[across]} across", cells, shares)


def text(drawn: Picture) -> str:
    """Return a picture as lines of blocks, with its title."""
    marks = {-1: " ", 0: "·", 1: "█"}
    return "\n".join([_title(drawn), *("".join(marks[int(cell)] for cell in row) for row in drawn.cells)])


def svg(drawn: Picture) -> str:
    """Return a picture as a self-contained SVG element."""
    rows, columns = drawn.cells.shape
    found = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * _CELL}" height="{rows * _CELL}" role="img">']
    found.append(f"<title>{escape(_title(drawn))}</title>")
    for (row, column), cell in np.ndenumerate(drawn.cells):
        if cell >= 0:
            at = f'x="{column * _CELL}" y="{row * _CELL}" width="{_CELL - 1}" height="{_CELL - 1}"'
            found.append(f'<rect {at} fill="{"#1f6feb" if cell else "#d0d7de"}"/>')
    return "".join([*found, "</svg>"])


def _title(drawn: Picture) -> str:
    each = drawn.share[0] * drawn.share[1]
    return drawn.title + (f" (a cell is {each} chunks)" if each > 1 else "")
