"""Byte strings and entries of a page as columns: one buffer and offsets, without a Python object for each.

Loading numpy takes longer than a short listing, so pages are columns only where numpy is loaded: see ``stores.http``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    _T = TypeVar("_T", bound=np.generic)

_GATHERED_BYTES = 1 << 20  # bytes handled at once


class Names(Sequence[bytes]):
    """Byte strings between offsets ``ends`` (int64, one more than strings) of ``data`` (uint8)."""

    __slots__ = ("data", "ends")

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Names:
        ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(names), np.uint8), ends)

    @classmethod
    def between(cls, data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Names:
        """Copy the pieces of ``data`` between these offsets, each of at least 0 bytes."""
        lengths = stops - starts
        ends = np.concatenate(([np.int64(0)], np.cumsum(lengths)))
        if len(lengths) and (lengths == lengths[0]).all():
            return cls(windows(data, starts, int(lengths[0])).reshape(-1), ends)
        return cls(gather(data, starts, lengths), ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> bytes | Names:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return Names(self.data, self.ends[first : max(first, last) + 1])
            return Names.between(self.data, self.ends[:-1][index], self.ends[1:][index])
        at = range(len(self))[index]
        return self.data[self.ends[at] : self.ends[at + 1]].tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a list

    @property
    def joined(self) -> NDArray[np.uint8]:
        return self.data[self.ends[0] : self.ends[-1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.ends[1:] - self.ends[:-1]

    def texts(self) -> list[str]:
        """Return the strings as ``str``; bytes that are not UTF-8 are kept, as in names of files."""
        data, text = self.joined.tobytes(), ""
        if data.isascii():
            text = data.decode()
        bounds = pairwise((self.ends - self.ends[0]).tolist())
        if len(text) == len(data):
            return [text[start:stop] for start, stop in bounds]
        return [data[start:stop].decode("utf-8", "surrogateescape") for start, stop in bounds]

    def take(self, mask: NDArray[np.bool_]) -> Names:
        return Names.between(self.data, self.ends[:-1][mask], self.ends[1:][mask])

    def without(self, start: bytes) -> Names | None:
        """Return the strings without this beginning; None unless all have it."""
        if self.lengths.min(initial=len(start)) < len(start):
            return None
        found = windows(self.data, self.ends[:-1], len(start))
        if (found != np.frombuffer(start, np.uint8)).any():
            return None
        return Names.between(self.data, self.ends[:-1] + len(start), self.ends[1:])

    def first_disorder(self) -> int:
        """Return the index of the first string that is not below the next one in byte order; -1 without any."""
        lengths = self.lengths
        width = int(lengths.max(initial=0))
        # What follows a string in its row is not compared.
        rows = windows(np.concatenate((self.joined, np.zeros(width, np.uint8))), self.ends[:-1] - self.ends[0], width)
        before, after, shorter = rows[:-1], rows[1:], np.minimum(lengths[:-1], lengths[1:])
        if not width or not len(before):
            return 0 if len(before) else -1
        at = (before != after).argmax(axis=1)
        numbers = np.arange(len(at))
        one, other = before[numbers, at], after[numbers, at]
        differs = (one != other) & (at < shorter)
        rising = np.where(differs, one < other, lengths[:-1] < lengths[1:])
        return -1 if rising.all() else int(rising.argmin())


class PackedEntries(NamedTuple):
    """Entries of a page as columns; ``sizes`` are int64, and ``dates`` as the server wrote them."""

    keys: Names
    sizes: NDArray[np.int64]
    etags: Names
    dates: Names

    @classmethod
    def of(cls, keys: Iterable[str], sizes: Sequence[int], etags: Iterable[str]) -> PackedEntries:
        names, versions = ([each.encode("utf-8", "surrogateescape") for each in column] for column in (keys, etags))
        dates = Names(np.zeros(0, np.uint8), np.zeros(len(names) + 1, np.int64))
        return cls(Names.of(names), np.array(sizes, np.int64), Names.of(versions), dates)

    def lists(self) -> tuple[list[str], list[int], list[str], list[str]]:
        return self.keys.texts(), self.sizes.tolist(), self.etags.texts(), self.dates.texts()

    def part(self, rows: slice) -> PackedEntries:
        return PackedEntries(self.keys[rows], self.sizes[rows], self.etags[rows], self.dates[rows])

    def take(self, mask: NDArray[np.bool_]) -> PackedEntries:
        return PackedEntries(self.keys.take(mask), self.sizes[mask], self.etags.take(mask), self.dates.take(mask))


def windows(data: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Return the ``width`` bytes from each start, within ``data``: uint8, shape (starts, width)."""
    if not width or not len(starts):
        return np.zeros((len(starts), width), np.uint8)
    data = np.ascontiguousarray(data)
    rows: NDArray[Any] = np.ndarray((max(len(data) - width + 1, 0),), f"V{width}", data, strides=(1,))
    return rows[starts].view(np.uint8).reshape(-1, width)


def gather(data: NDArray[_T], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[_T]:
    """Return the pieces of ``data`` that begin at ``starts``, concatenated."""
    ends = np.concatenate(([np.int64(0)], np.cumsum(lengths)))
    whole = np.empty(int(ends[-1]), data.dtype)
    moved = starts - ends[:-1]
    first = 0
    while first < len(starts):
        # Each value takes 16 bytes of memory meanwhile.
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _GATHERED_BYTES, side="right")) - 1)
        at, stop = ends[first], ends[last]
        # The source of each value: its place in the result, plus the distance that its piece has moved.
        whole[at:stop] = data[np.arange(at, stop) + np.repeat(moved[first:last], lengths[first:last])]
        first = last
    return whole
