"""Columns of byte strings: all strings end to end and one offset each, so that no string is a Python object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Rows = range | NDArray[np.integer[Any]]  # row numbers: in order, or any
    _T = TypeVar("_T", bound=np.generic)

__all__ = ["Strings", "blocks", "decode", "encode", "taken"]

_BLOCK = 1 << 16  # rows handled at once


def encode(key: str) -> bytes:
    """Return a key's bytes as the store orders them; file names that are no UTF-8 come back as they were."""
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
    """A column of byte strings; ``column[row]`` is one of them, for ``row`` in [0, rows), unchecked."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: memoryview, ends: memoryview) -> None:
        """Take the strings end to end, and rows + 1 offsets into them; both empty when every string is empty."""
        self._data = data
        self._ends = ends

    def __getitem__(self, row: int) -> bytes:
        """Copy one string out."""
        return self._data[self._ends[row] : self._ends[row + 1]].tobytes() if self._data else b""

    def check(self) -> None:
        """Raise ValueError where the offsets lead outside of the strings."""
        ends = np.frombuffer(self._ends, np.uint64)
        if len(ends) and (ends[0] != 0 or ends[-1] != len(self._data) or (ends[1:] < ends[:-1]).any()):
            raise ValueError("offsets that lead outside")

    def ends(self, rows: Rows) -> NDArray[np.uint64]:
        """Return the offsets that ``rows`` of these strings would have alone; none when all are empty."""
        if not self._data:
            return np.zeros(0, np.uint64)
        ends = np.frombuffer(self._ends, np.uint64)
        lengths = taken(ends[1:], rows) - taken(ends[:-1], rows)
        return np.concatenate(([np.uint64(0)], np.cumsum(lengths))) if lengths.any() else np.zeros(0, np.uint64)

    def gather(self, rows: Rows, target: memoryview) -> None:
        """Write ``rows`` of these strings, end to end; ``target`` is as long as they are."""
        if not target:
            return
        if isinstance(rows, range) and rows.step == 1:
            target[:] = self._data[self._ends[rows.start] : self._ends[rows.stop]]
            return
        data, ends = np.frombuffer(self._data, np.uint8), np.frombuffer(self._ends, np.int64)
        whole, at = np.frombuffer(target, np.uint8), 0
        for block in blocks(rows):
            starts = taken(ends[:-1], block)
            lengths = taken(ends[1:], block) - starts
            count = int(lengths.sum())
            # Where each byte stands now: its place among the gathered ones, and how far its string has moved.
            whole[at : at + count] = data[np.arange(count) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)]
            at += count

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return ``len(rows) + 1`` offsets and the bytes of these rows' strings, end to end: a copy."""
        ends = self.ends(rows).astype(np.int64)
        if not len(ends):
            ends = np.zeros(len(rows) + 1, np.int64)
        data = np.empty(int(ends[-1]), np.uint8)
        self.gather(rows, data.data)
        return ends, data
