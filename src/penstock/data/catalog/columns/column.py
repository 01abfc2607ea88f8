"""Typed vectors in shared memory, and the columns made of them: numbers, texts as codes, and concatenated byte strings.

A vector has as few bytes as its values need, and no string is a Python object.
"""

from __future__ import annotations

import zlib
from array import array
from binascii import hexlify, unhexlify
from bisect import bisect_right
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from penstock.data.region import Region
from penstock.engine.listing.names import Names, gather
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Rows = range | NDArray[np.integer[Any]]  # row numbers: evenly spaced, or any
    _T = TypeVar("_T", bound=np.generic)

DTYPES = frozenset(("|b1", "|i1", "|u1", *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)), "<f4", "<f8"))


class Categorical:
    """A column of texts: ``codes`` (unsigned integers, read-only) into ``categories``.

    ``column[i]`` is a str, ``column == "train"`` and ``column.isin(["train", "test"])`` are boolean masks for
    ``Catalog.filter(mask=…)``, ``np.asarray(column)`` is an array of str objects.
    """

    __slots__ = ("_column", "codes")
    __hash__ = None  # type: ignore[assignment]  # == gives a mask

    def __init__(self, codes: NDArray[Any], column: Column) -> None:
        self.codes, self._column = codes, column

    @property
    def categories(self) -> tuple[str, ...]:
        """The distinct texts, in the order of their codes; computed on first use."""
        return self._column.categories

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.categories[int(self.codes[index])]

    def __iter__(self) -> Iterator[str]:
        return map(self.categories.__getitem__, self.codes)

    def __eq__(self, text: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self.isin([text])

    def __ne__(self, text: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return ~self.isin([text])

    def isin(self, texts: Iterable[object]) -> NDArray[np.bool_]:
        """Return a mask of the rows whose text is one of ``texts``: bool, shape (len,)."""
        wanted = set(texts)
        mask: NDArray[np.bool_] = np.array([each in wanted for each in self.categories] or [False])[self.codes]
        return mask

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401, FBT001  numpy's
        texts: NDArray[Any] = np.array([*self.categories, ""], dtype=object)[self.codes]
        return texts if dtype is None else texts.astype(dtype)

    def __repr__(self) -> str:
        return f"<Categorical of {len(self):,} rows, {len(self.categories):,} categories>"


class Column:
    """A column over all rows of a table: numbers, or codes of distinct texts, whose offsets and bytes are ``texts``."""

    __slots__ = ("_categories", "_strings", "numbers", "texts")

    def __init__(self, numbers: Numbers, texts: tuple[Numbers, Numbers] | None = None) -> None:
        self.numbers, self.texts = numbers, texts
        self._strings = None if texts is None else Strings(texts[1].view, texts[0].view)
        self._categories: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: NDArray[Any], categories: Sequence[str] | None = None) -> Column:
        """Copy numbers, or codes and their categories, into shared memory."""
        if categories is None:
            return cls(pack([values])[0])
        texts = [encode(each) for each in categories]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.uint64)
        small = np.min_scalar_type(max(len(texts) - 1, 0))
        codes, *rest = pack([values.astype(small), ends, np.frombuffer(b"".join(texts), np.uint8)])
        return cls(codes, (rest[0], rest[1]))

    @property
    def parts(self) -> dict[str, Numbers]:
        """The vectors that a file holds, by name: "numbers", and for a column of texts also "ends" and "texts"."""
        return {"numbers": self.numbers, **dict(zip(("ends", "texts"), self.texts or (), strict=False))}

    @property
    def categories(self) -> tuple[str, ...]:
        """The distinct texts, in the order of their codes; () for numbers."""
        if self._categories is None:
            strings, count = self._strings, 0 if self.texts is None else len(self.texts[0]) - 1
            self._categories = () if strings is None else tuple(decode(strings[row]) for row in range(count))
        return self._categories

    def value(self, row: int) -> Any:  # noqa: ANN401  a number or a text
        number = self.numbers.view[row]
        return number if self._strings is None else decode(self._strings[number])

    def seen(self, rows: Rows) -> NDArray[Any] | Categorical:
        """Return the values of ``rows`` for users: a read-only array, or a ``Categorical``."""
        numbers = taken(self.numbers.values, rows)
        numbers.flags.writeable = False
        return numbers if self.texts is None else Categorical(numbers, self)

    def take(self, rows: Rows) -> Column:
        """Return a copy of some rows; texts that they do not use stay, so that codes keep their meaning."""
        return Column(pack_taken(self.numbers.values, rows), self.texts)

    def check(self, rows: int) -> None:
        """Raise ValueError unless this is a valid column of ``rows`` rows; for a column from a file."""
        if len(self.numbers) != rows:
            raise ValueError(f"the column must have {rows} rows, got {len(self.numbers)}")
        if self._strings is not None and self.texts is not None:
            self._strings.check()
            if self.numbers.values.dtype.kind != "u":
                raise ValueError("codes must be unsigned integers")
            if rows and int(self.numbers.values.max()) >= len(self.texts[0]) - 1:
                raise ValueError("a code without a text")

    def __reduce__(self) -> tuple[Callable[..., Column], tuple[Any, ...]]:
        return Column, (self.numbers, self.texts)


def code_texts(texts: Iterable[str]) -> tuple[NDArray[np.uint32], list[str]]:
    """Return a code for each text, and the distinct texts in sorted order, which the codes index."""
    found: dict[str, int] = {}
    codes = np.fromiter((found.setdefault(each, len(found)) for each in texts), np.uint32)
    names = sorted(found)
    rank = np.empty(len(names), np.uint32)
    for number, name in enumerate(names):
        rank[found[name]] = number
    return (rank[codes] if names else codes), names


def check_column(name: str, values: object, rows: int) -> Column:
    """Return a column of a user's values: a sequence, an array or a tensor of numbers or texts."""
    if isinstance(values, Categorical):
        _fits(name, len(values), rows)
        return Column.of(values.codes, values.categories)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists; tensors on a device, or with gradients
        raise Unusable(f"column {name!r} cannot be made an array ({error}): pass a list or a numpy array") from error
    if array.ndim != 1:
        raise Unusable(f"column {name!r} has shape {array.shape}: pass one value for each of the {rows} objects")
    _fits(name, len(array), rows)
    if not rows and array.dtype == np.float64 and not isinstance(values, np.ndarray):
        # The values of an empty list have no type.
        array = array.astype(np.int64)
    if array.dtype.newbyteorder("<").str in DTYPES:
        return Column.of(array)
    texts = array.tolist() if array.dtype.kind == "U" and isinstance(values, np.ndarray) else list(values)  # type: ignore[call-overload]
    wrong = next((each for each in texts if not isinstance(each, str)), None)
    if wrong is not None or (not texts and array.dtype.kind != "U"):
        what = array.dtype if wrong is None or array.dtype.kind != "U" else f"{type(wrong).__name__} beside str"
        raise Unusable(f"column {name!r} holds {what}: a column is all bool, int, float or str; fill gaps first")
    try:
        return Column.of(*code_texts(texts))
    except UnicodeEncodeError as error:
        raise Unusable(f"column {name!r} holds a text that is not valid UTF-8: {error}") from error


def _fits(name: str, count: int, rows: int) -> None:
    if count != rows:
        raise Unusable(f"column {name!r} has {count} values, the catalog {rows} objects: pass one for each, in order")


def joined(name: str, first: Column, second: Column) -> Column:
    """Return the rows of both columns: numbers in a type for both, texts with the union of their categories."""
    if (first.texts is None) != (second.texts is None):
        kinds = ["numbers" if each.texts is None else "texts" for each in (first, second)]
        raise Unusable(f"column {name!r} holds {kinds[0]} in one catalog, {kinds[1]} in the other: convert one")
    if first.texts is None:
        parts = (first.numbers.values, second.numbers.values)
        mixed = np.result_type(*parts)
        if mixed.kind == "f" and "f" not in {each.dtype.kind for each in parts}:
            raise Unusable(
                f"column {name!r} holds {parts[0].dtype} and {parts[1].dtype}, which no integer type can hold together"
            )
        return Column.of(np.concatenate(parts))
    names = sorted({*first.categories, *second.categories})
    place = {each: number for number, each in enumerate(names)}
    codes = [
        np.array([place[each] for each in column.categories], np.uint32)[column.numbers.values]
        for column in (first, second)
    ]
    return Column.of(np.concatenate(codes), names)


_ALIGN = 64
_SHARED = 64 << 10  # bytes; less is copied to a worker and needs no descriptor
_INTEGERS = tuple(map(np.dtype, ("<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8")))


class Numbers:
    """A typed vector in shared memory, pickled with it (see ``Region``); ``view[row]`` is a Python number."""

    __slots__ = ("_memory", "_place", "view")

    def __init__(self, memory: Region | bytes, dtype: str, start: int, count: int) -> None:
        """View ``count`` values of ``dtype`` that begin at byte ``start``."""
        self._memory = memory
        self._place = dtype, start, count
        buffer = memory.view if isinstance(memory, Region) else memory
        values = np.frombuffer(buffer[start : start + count * np.dtype(dtype).itemsize], dtype)
        values.flags.writeable = False
        self.view = memoryview(values)  # type: ignore[arg-type]  # an array is a buffer

    @property
    def region(self) -> Region | None:
        """The region that holds this vector, and perhaps others; None if the bytes are pickled instead."""
        return self._memory if isinstance(self._memory, Region) else None

    @property
    def values(self) -> NDArray[Any]:
        """All values, read-only, not copied."""
        return np.asarray(self.view)

    def __len__(self) -> int:
        return len(self.view)

    def __reduce__(self) -> tuple[Callable[..., Numbers], tuple[Any, ...]]:
        return Numbers, (self._memory, *self._place)


class Packing:
    """Arrays to be filled in one block of memory, which workers map; below 64 KiB, it is pickled instead.

    Attributes:
        arrays: An array of each type and length that was asked for, to be written to.
    """

    __slots__ = ("_memory", "_places", "arrays")

    def __init__(self, *wanted: tuple[np.dtype[Any] | type[np.generic], int]) -> None:
        self._places, size = list[tuple[str, int, int]](), 0
        for kind, count in wanted:
            dtype = np.dtype(kind).newbyteorder("<")
            self._places.append((dtype.str, size, count))
            size += -(-count * dtype.itemsize // _ALIGN) * _ALIGN
        self._memory: Region | bytearray = Region(size) if size >= _SHARED else bytearray(size)
        buffer = self._memory.view if isinstance(self._memory, Region) else self._memory
        self.arrays = [np.frombuffer(buffer, dtype, count, start) for dtype, start, count in self._places]

    def numbers(self) -> list[Numbers]:
        """Return the vectors; nothing may be written afterwards."""
        memory = self._memory if isinstance(self._memory, Region) else bytes(self._memory)
        return [Numbers(memory, *place) for place in self._places]


def pack(arrays: Sequence[NDArray[Any]], *, narrow: bool = False) -> list[Numbers]:
    """Copy arrays into one ``Packing``; ``narrow`` ones in the smallest integer type that holds all their values."""
    packing = Packing(*((narrow_type(each) if narrow else each.dtype, len(each)) for each in arrays))
    for to, each in zip(packing.arrays, arrays, strict=True):
        to[:] = each
    return packing.numbers()


def pack_pieces(dtype: np.dtype[Any], count: int, pieces: Iterable[NDArray[Any]]) -> Numbers:
    """Copy arrays, ``count`` values of ``dtype`` together, into separate memory as one vector."""
    packing, at = Packing((dtype, count)), 0
    for each in pieces:
        packing.arrays[0][at : at + len(each)] = each
        at += len(each)
    return packing.numbers()[0]


def pack_taken(values: NDArray[Any], rows: Rows) -> Numbers:
    """Copy the values of ``rows`` into separate memory; a value with several numbers gives all of them."""
    width = int(np.prod(values.shape[1:]))
    return pack_pieces(values.dtype, len(rows) * width, (taken(values, each).reshape(-1) for each in blocks(rows)))


def narrow_type(values: NDArray[np.integer[Any]]) -> np.dtype[Any]:
    """Return the smallest integer type that holds all of some values of int64 or a smaller type."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return next(each for each in _INTEGERS if np.iinfo(each).min <= least and most <= np.iinfo(each).max)


def pack_narrow(values: NDArray[np.integer[Any]]) -> Numbers:
    """Copy int64 values into separate memory, in the smallest integer type that holds them all."""
    return pack([values], narrow=True)[0]


_BLOCK = 1 << 14  # rows handled at once


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
    return values[list_rows(rows)]


def list_used(numbers: NDArray[np.integer[Any]], total: int) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """Return which of the numbers below ``total`` occur, in order, and the place among these of each of ``numbers``."""
    there = np.zeros(total, bool)
    there[numbers] = True
    used = np.flatnonzero(there)
    places = np.cumsum(there) - 1
    return used, places.astype(np.min_scalar_type(max(len(used) - 1, 0)))[numbers]


def list_rows(rows: Rows) -> NDArray[np.int64]:
    return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows.astype(np.int64)


def blocks(rows: Rows, size: int = 0) -> Iterator[Rows]:
    """Yield the rows in runs of at most ``size`` (0: 16,384)."""
    size = size or _BLOCK
    return (rows[start : start + size] for start in range(0, len(rows), size))


class Strings:
    """A column of byte strings: ``column[row]``, for ``row`` in [0, len(column)), which is not checked."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: memoryview, ends: memoryview) -> None:
        """Take the concatenated strings, and rows + 1 offsets (uint64) into them."""
        self._data = data
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> bytes:
        return self._data[self._ends[row] : self._ends[row + 1]].tobytes()

    def text(self, row: int) -> str:
        return self[row].decode("utf-8", "surrogateescape")

    def check(self) -> None:
        ends = np.frombuffer(self._ends, np.uint64)
        if not len(ends) or ends[0] != 0 or ends[-1] != len(self._data) or (ends[1:] < ends[:-1]).any():
            raise ValueError("offsets lead outside the strings")

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and end offsets of ``rows``: int64."""
        ends = np.frombuffer(self._ends, np.int64)
        return taken(ends[:-1], rows), taken(ends[1:], rows)

    def lengths(self, rows: Rows) -> NDArray[np.int64]:
        """Return the bytes of each of ``rows``: int64."""
        starts, stops = self.bounds(rows)
        return stops - starts

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return ``len(rows) + 1`` offsets and these rows' strings, concatenated; the latter may be a view."""
        data = np.frombuffer(self._data, np.uint8)
        starts, stops = self.bounds(rows)
        lengths = stops - starts
        ends = np.concatenate(([np.int64(0)], np.cumsum(lengths)))
        if isinstance(rows, range) and rows.step == 1:
            return ends, data[starts[0] : stops[-1]] if len(rows) else data[:0]
        return ends, gather(data, starts, lengths)


_SAMPLE_BYTES = 8 << 10


class _Block(NamedTuple):
    """Strings of a builder that are held in few bytes: their lengths, and how their bytes are restored.

    The bytes are outside the heap, which would keep the memory of those that are dropped.
    """

    lengths: NDArray[np.unsignedinteger[Any]]
    data: mmap | bytes
    restore: Callable[[mmap | bytes], bytes]

    @classmethod
    def of(cls, lengths: NDArray[np.uint32], data: bytes) -> _Block:
        narrow = lengths.astype(np.min_scalar_type(int(lengths.max(initial=0))))
        if len(narrow) and (narrow == narrow[0]).all():
            narrow = np.broadcast_to(narrow[0].copy(), narrow.shape)
        with suppress(ValueError):
            if data == data.lower():
                return cls(narrow, _map_bytes(unhexlify(data)), hexlify)
        # Keys in order become a fifth of their length, or less; for other strings it is not worth the time.
        if len(zlib.compress(data[:_SAMPLE_BYTES], 1)) * 2 < len(data[:_SAMPLE_BYTES]):
            return cls(narrow, _map_bytes(zlib.compress(data, 1)), zlib.decompress)
        return cls(narrow, _map_bytes(data), bytes)

    def names(self) -> Names:
        lengths = np.append(np.zeros(1, np.int64), self.lengths)
        return Names(np.frombuffer(self.restore(self.data), np.uint8), lengths.cumsum())


def _map_bytes(data: bytes) -> mmap | bytes:
    if not data:
        return data
    mapped = mmap(-1, len(data), MAP_PRIVATE | MAP_ANONYMOUS)
    mapped[:] = data
    return mapped


class StringsBuilder:
    """Builder of a column of byte strings, without a Python object per string, and with most of them compressed."""

    __slots__ = ("_blocks", "_data", "_ends", "_lengths", "_open")

    def __init__(self) -> None:
        self._data, self._lengths = bytearray(), array("I")
        self._blocks: list[_Block] = []
        # Number of strings up to the end of each block.
        self._ends: list[int] = []
        self._open = -1, Names(np.zeros(0, np.uint8), np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self._lengths) + (self._ends[-1] if self._ends else 0)

    def add(self, piece: bytes) -> None:
        self._data += piece
        self._lengths.append(len(piece))
        if len(self._lengths) >= _BLOCK:
            self._close()

    def add_all(self, names: Names) -> None:
        self._lengths.frombytes(names.lengths.astype(np.uint32).tobytes())
        self._data += names.joined.data
        if len(self._lengths) >= _BLOCK:
            self._close()

    def extend(self, other: StringsBuilder) -> None:
        """Append the strings of another builder, which must not be used afterwards."""
        for each in other._blocks:
            self._close()
            self._keep(each)
        self._lengths += other._lengths
        self._data += other._data
        if len(self._lengths) >= _BLOCK:
            self._close()

    def joined(self, rows: range) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the strings of rows that follow one another, as ``Strings.joined`` does."""
        self._close()
        at, parts = bisect_right(self._ends, rows.start), list[Names]()
        while at < len(self._ends) and (first := self._ends[at] - len(self._blocks[at].lengths)) < rows.stop:
            if self._open[0] != at:
                self._open = at, self._blocks[at].names()
            parts.append(self._open[1][max(rows.start - first, 0) : rows.stop - first])
            at += 1
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(each.lengths for each in parts)]))
        return ends, parts[0].joined if len(parts) == 1 else np.concatenate(
            [np.zeros(0, np.uint8), *(each.joined for each in parts)]
        )

    def pop_digits(self, width: int) -> tuple[int, Iterator[NDArray[np.uint8]]] | None:
        """Return the number of strings and their bytes, dropped one by one, if all are ``width`` lower-case digits."""
        self._close()
        if not all(each.restore is hexlify and (each.lengths == width).all() for each in self._blocks):
            return None
        count, self._ends, self._open = len(self), [], (-1, self._open[1])
        self._blocks.reverse()
        return count, (np.frombuffer(self._blocks.pop().data, np.uint8) for _ in range(len(self._blocks)))

    def _close(self) -> None:
        if self._lengths:
            self._keep(_Block.of(np.frombuffer(self._lengths, np.uint32), bytes(self._data)))
            self._data, self._lengths = bytearray(), array("I")

    def _keep(self, block: _Block) -> None:
        self._ends.append(len(block.lengths) + (self._ends[-1] if self._ends else 0))
        self._blocks.append(block)
