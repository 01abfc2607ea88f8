"""How a table of objects lies in one region of memory: sizes and offsets first, then the strings end to end."""

from __future__ import annotations

import itertools
import json
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.catalog.region import Region
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Shape", "Strings", "Table", "TableBuilder", "decode", "encode", "layout"]

_WORD = 8
_BLOCK = 1 << 16  # strings gathered at once


def encode(key: str) -> bytes:
    """Return a key's bytes as the store orders them; file names that are no UTF-8 come back as they were."""
    return key.encode("utf-8", "surrogateescape")


def decode(key: bytes) -> str:
    """Undo ``encode``."""
    return key.decode("utf-8", "surrogateescape")


class Shape(NamedTuple):
    """All one must know to read a region: rows, and bytes of each column of strings (0: the column is left out)."""

    rows: int
    keys: int
    etags: int
    labels: int

    @property
    def size_bytes(self) -> int:
        """All columns together."""
        return sum(_lengths(self))


def layout(shape: Shape) -> list[dict[str, Any]]:
    """Say of each column, in order, its name, numpy's name of its type (byte order included), its offset and length."""
    names = ("sizes", "key_ends", "etag_ends", "label_ends", "keys", "etags", "labels")
    types = [np.dtype(each).str for each in (np.int64, *3 * (np.uint64,), *3 * (np.uint8,))]
    lengths = _lengths(shape)
    starts = itertools.accumulate(lengths, initial=0)
    return [
        {"name": name, "dtype": dtype, "offset": start, "bytes": length}
        for name, dtype, start, length in zip(names, types, starts, lengths, strict=False)  # starts end with the whole
    ]


class Strings:
    """A column of byte strings; ``column[row]`` is one of them, for ``row`` in [0, rows), unchecked."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: memoryview, ends: memoryview) -> None:
        """Take the strings end to end, and rows + 1 offsets into them; both empty when every string is."""
        self._data = data
        self._ends = ends

    def __getitem__(self, row: int) -> bytes:
        """Copy one string out."""
        return self._data[self._ends[row] : self._ends[row + 1]].tobytes() if self._data else b""

    def check(self) -> None:
        """Raise ValueError where the offsets are none into these strings."""
        ends = np.frombuffer(self._ends, np.uint64)
        if len(ends) and (ends[0] != 0 or ends[-1] != len(self._data) or (ends[1:] < ends[:-1]).any()):
            raise ValueError("offsets that lead outside")

    def ends(self, rows: range) -> NDArray[np.uint64]:
        """Return the offsets that ``rows`` of these strings would have by themselves; none when all are empty."""
        if not self._data:
            return np.zeros(0, np.uint64)
        ends, index = np.frombuffer(self._ends, np.uint64), _index(rows)
        lengths = ends[1:][index] - ends[:-1][index]
        return np.concatenate(([np.uint64(0)], np.cumsum(lengths))) if lengths.any() else np.zeros(0, np.uint64)

    def gather(self, rows: range, target: memoryview) -> None:
        """Write ``rows`` of these strings, end to end; ``target`` is as long as they are."""
        if not target:
            return
        if rows.step == 1:
            target[:] = self._data[self._ends[rows.start] : self._ends[rows.stop]]
            return
        data, ends = np.frombuffer(self._data, np.uint8), np.frombuffer(self._ends, np.int64)
        whole, at = np.frombuffer(target, np.uint8), 0
        for block in (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)):
            index = _index(block)
            starts, lengths = ends[:-1][index], ends[1:][index] - ends[:-1][index]
            count = int(lengths.sum())
            # Where each byte stands now: its place among the gathered ones, and how far its string has moved.
            whole[at : at + count] = data[np.arange(count) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)]
            at += count


class Table:
    """The table as mapped: ``sizes`` (int64, -1 unknown) and three columns of strings; labels are JSON, empty for None.

    It pickles as its region does, so a worker maps it. Nothing here checks a row number.
    """

    __slots__ = ("etags", "keys", "labels", "region", "rows", "shape", "sizes")

    def __init__(self, region: Region, shape: Shape) -> None:
        """Look at a region that ``TableBuilder.freeze`` has filled."""
        self.region = region
        self.shape = shape
        self.rows = shape.rows
        lengths = _lengths(shape)
        stops = list(itertools.accumulate(lengths))
        view = region.view.toreadonly()
        sizes, *rest = (view[stop - length : stop] for length, stop in zip(lengths, stops, strict=True))
        self.sizes = sizes.cast("q")
        self.keys, self.etags, self.labels = (Strings(rest[i + 3], rest[i].cast("Q")) for i in range(3))

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Region, Shape]]:
        """Travel as the region does."""
        return Table, (self.region, self.shape)

    def check(self) -> None:
        """Raise ValueError where the table contradicts itself: it came from elsewhere. About 10 ns per row."""
        for strings in (self.keys, self.etags, self.labels):
            strings.check()
        if (np.frombuffer(self.sizes, np.int64) < -1).any():
            raise ValueError("sizes below nothing")

    def take(self, rows: range) -> Table:
        """Copy some rows, in their order, into a table of their own; itself when they are all."""
        if rows == range(self.rows):
            return self
        strings = (self.keys, self.etags, self.labels)
        ends = [each.ends(rows) for each in strings]
        shape = Shape(len(rows), *(int(each[-1]) if len(each) else 0 for each in ends))
        region, start = Region(shape.size_bytes), 0
        sizes = np.frombuffer(self.sizes, np.int64)[_index(rows)]
        for words in (sizes, *ends):
            region.view[start : start + words.nbytes] = words.tobytes()
            start += words.nbytes
        for each, length in zip(strings, shape[1:], strict=True):
            each.gather(rows, region.view[start : start + length])
            start += length
        return Table(region, shape)


def _index(rows: range) -> slice | NDArray[np.int64]:
    """Return what takes ``rows`` out of an array: a view where it can."""
    return slice(rows.start, rows.stop) if rows.step == 1 else np.arange(rows.start, rows.stop, rows.step)


def _lengths(shape: Shape) -> tuple[int, ...]:
    """Bytes of: sizes, then the offsets of keys, etags, labels, then their strings. Words first keeps them aligned."""
    strings = shape[1:]
    return (_WORD * shape.rows, *(_WORD * (shape.rows + 1) if length else 0 for length in strings), *strings)


class _Pile:
    """A column of strings while it grows."""

    __slots__ = ("data", "ends")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("Q", (0,))

    def add(self, piece: bytes) -> None:
        self.data += piece
        self.ends.append(len(self.data))

    def extend(self, other: _Pile) -> None:
        shift = len(self.data)
        self.data += other.data
        self.ends.extend(end + shift for end in itertools.islice(other.ends, 1, None))


class TableBuilder:
    """A table being written: about 8 bytes a field and the strings themselves, never one Python object per row."""

    __slots__ = ("_piles", "_sizes")

    def __init__(self) -> None:
        """Start empty."""
        self._sizes = array("q")
        self._piles = (_Pile(), _Pile(), _Pile())

    def __len__(self) -> int:
        """Return the rows so far."""
        return len(self._sizes)

    def add(self, key: bytes, size: int, etag: str = "", label: object = None) -> None:
        """Append one row; a label must be JSON-able, else ``Unusable``."""
        try:
            text = b"" if label is None else json.dumps(label).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(f"the label of {decode(key)!r} is no JSON value ({error}): use plain ones") from error
        keys, etags, labels = self._piles
        keys.add(key)
        etags.add(etag.encode())
        labels.add(text)
        self._sizes.append(size)

    def extend(self, other: TableBuilder) -> None:
        """Append all rows of ``other``."""
        self._sizes.extend(other._sizes)
        for mine, theirs in zip(self._piles, other._piles, strict=True):
            mine.extend(theirs)

    def freeze(self) -> Table:
        """Copy everything into one region; the table being written is not needed any more."""
        shape = Shape(len(self), *(len(pile.data) for pile in self._piles))
        parts: tuple[array[int] | bytearray, ...] = (
            self._sizes,
            *(pile.ends for pile in self._piles),
            *(pile.data for pile in self._piles),
        )
        region, start = Region(shape.size_bytes), 0
        for part, length in zip(parts, _lengths(shape), strict=True):
            region.view[start : start + length] = memoryview(part).cast("B")[:length]
            start += length
        return Table(region, shape)
