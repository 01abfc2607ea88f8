"""Columns of byte strings: all strings end to end and one offset each, so that no string is a Python object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Rows = range | NDArray[np.integer[Any]]  # row numbers: evenly spaced, or any
    _T = TypeVar("_T", bound=np.generic)

__all__ = ["Strings", "blocks", "decode", "encode", "taken"]

_BLOCK = 1 << 16  # rows handled at once


def encode(key: str) -> bytes:
    """Return the bytes by which stores sort a key; file names that are not UTF-8 get back their original bytes."""
    return key.encode("utf-8", "surrogateescape")


def decode(key: bytes) -> str:
    """Undo ``encode``."""
    return key.decode("utf-8", "surrogateescape")


def taken(values: NDArray[_T], rows: Rows) -> NDArray[_T]:
    """Return the values of ``rows``: a view where the rows follow one another, else a copy."""
    if not isinstance(rows, range):
        return values[rows]
    if rows.step == 1:
        return values[rows.start : rows.stop]
    return values[np.arange(rows.start, rows.stop, rows.step)]


def blocks(rows: Rows, size: int = 0) -> Iterator[Rows]:
    """Yield the rows in runs of at most ``size`` (0: 65,536)."""
    size = size or _BLOCK
    return (rows[start : start + size] for start in range(0, len(rows), size))


class Strings:
    """A column of byte strings: ``column[row]``, for ``row`` in [0, len(column)), which is not checked."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: memoryview, ends: memoryview) -> None:
        """Take the strings end to end, and rows + 1 offsets (uint64) into them."""
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> bytes:
        """Return one string as bytes, a copy."""
        return self._data[self._ends[row] : self._ends[row + 1]].tobytes()

    def text(self, row: int) -> str:
        """Return one string as text."""
        return self[row].decode("utf-8", "surrogateescape")

    def check(self) -> None:
        """Raise ValueError if the offsets lead outside the strings."""
        ends = np.frombuffer(self._ends, np.uint64)
        if not len(ends) or ends[0] != 0 or ends[-1] != len(self._data) or (ends[1:] < ends[:-1]).any():
            raise ValueError("offsets that lead outside")

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and end offsets of ``rows``: int64."""
        ends = np.frombuffer(self._ends, np.int64)
        return taken(ends[:-1], rows), taken(ends[1:], rows)

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return ``len(rows) + 1`` offsets and these rows' strings end to end; the latter may be a view."""
        data = np.frombuffer(self._data, np.uint8)
        starts, stops = self.bounds(rows)
        lengths = stops - starts
        ends = np.concatenate(([np.int64(0)], np.cumsum(lengths)))
        if isinstance(rows, range) and rows.step == 1:
            return ends, data[starts[0] : stops[-1]] if len(rows) else data[:0]
        whole = np.empty(int(ends[-1]), np.uint8)
        moved = starts - ends[:-1]
        for first in range(0, len(rows), _BLOCK):
            some = slice(first, min(first + _BLOCK, len(rows)))
            at, stop = ends[some.start], ends[some.stop]
            # The source of each byte: its place in the result, plus the distance that its string has moved.
            whole[at:stop] = data[np.arange(at, stop) + np.repeat(moved[some], lengths[some])]
        return ends, whole
