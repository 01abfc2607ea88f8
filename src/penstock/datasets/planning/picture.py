"""Which chunks of an array a batch touches, as blocks of text and as SVG. Pure."""

from __future__ import annotations

from html import escape
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Picture", "picture", "svg", "text"]

_COLUMNS, _ROWS = 64, 24  # cells of a picture at most: several chunks share one beyond
_CELL = 9  # pixels


class Picture(NamedTuple):
    """A grid of chunks.

    Attributes:
        title: The array, and what rows and columns are.
        cells: 1 where a chunk is touched, of rows and columns; -1 where there is no chunk.
        share: Chunks for each cell, along rows and columns.

    """

    title: str
    cells: NDArray[np.int8]
    share: tuple[int, int]


def picture(name: str, dims: Sequence[str], grid: Sequence[int], chunks: Iterable[tuple[int, ...]]) -> Picture:
    """Return the picture of one array: its first two dimensions with several chunks; one alone is wrapped into rows.

    Args:
        name: The array's.
        dims: Names of its dimensions.
        grid: Chunks along each of them.
        chunks: Coordinates of those that are touched.

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
    down, across = sorted(several, key=lambda axis: grid[axis])  # the longer one across
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
    """Return a picture as an SVG element that needs nothing from elsewhere."""
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
