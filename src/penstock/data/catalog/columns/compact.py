"""Compact columns of byte strings: no offsets if all have the same length, else offsets of 1 or 2 bytes each.

ETags that begin with an MD5 sum are its 16 bytes and a code for their ending. Keys of a listing come sorted: a block
stores once how its keys begin and end. Keys may also be those of another column with another ending.
"""

from __future__ import annotations

from binascii import hexlify, unhexlify
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.columns.column import (
    Column,
    Numbers,
    Packing,
    Strings,
    StringsBuilder,
    blocks,
    decode,
    encode,
    joined,
    list_rows,
    pack,
    pack_pieces,
    pack_taken,
    taken,
)
from penstock.engine.listing.names import Names, gather
from penstock.values import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows


_STEP = 32  # strings in a block; part of the format


class Stepped(Strings):
    """Strings in blocks of 32, with offsets relative to their block: 1 or 2 bytes each if strings are short.

    Attributes:
        parts: The vectors that a file holds, by name: "bases" (uint64, the start of each block), "ends" (unsigned; for
            each block the starts of its strings and the end of the last one, relative to its base; this 33rd bound
            keeps a lookup within one block) and "texts", the concatenated strings.
    """

    __slots__ = ("_bases", "parts")

    def __init__(self, bases: Numbers, ends: Numbers, texts: Numbers) -> None:
        super().__init__(texts.view, ends.view)
        self._bases = bases.view
        self.parts = {"bases": bases, "ends": ends, "texts": texts}

    def __len__(self) -> int:
        return len(self._ends) - len(self._bases)

    def __getitem__(self, row: int) -> bytes:
        block = row >> 5
        at, base, ends = row + block, self._bases[block], self._ends
        return self._data[base + ends[at] : base + ends[at + 1]].tobytes()

    def text(self, row: int) -> str:
        # The same lookup as in __getitem__: a call would take a tenth of the time.
        block = row >> 5
        at, base, ends = row + block, self._bases[block], self._ends
        return str(self._data[base + ends[at] : base + ends[at + 1]], "utf-8", "surrogateescape")

    def check(self) -> None:
        bases, ends = (self.parts[name].values for name in ("bases", "ends"))
        if bases.dtype != np.uint64 or ends.dtype.kind != "u" or len(bases) != -(-len(ends) // (_STEP + 1)):
            raise ValueError("offsets that do not fit together")
        size = len(self._data)
        wrong, before = not len(self) or bases.max() > size or ends.max() > size, 0  # so that no sum passes 2⁶³
        for rows in blocks(range(0 if wrong else len(self))):
            starts, stops = self.bounds(rows)
            wrong = wrong or starts[0] != before or (starts[1:] != stops[:-1]).any() or (stops < starts).any()
            before = int(stops[-1])
        if wrong or before != size:
            raise ValueError("offsets lead outside the strings")

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers = list_rows(rows)
        blocks = numbers >> 5
        bases, ends = self.parts["bases"].values[blocks].astype(np.int64), self.parts["ends"].values
        return bases + ends[numbers + blocks].astype(np.int64), bases + ends[numbers + blocks + 1].astype(np.int64)

    def __reduce__(self) -> tuple[Callable[..., Stepped], tuple[Any, ...]]:
        return Stepped, tuple(self.parts.values())


class Even(Strings):
    """Strings of equal length, which may be 0: they need no offsets, and empty ones no vector of texts."""

    __slots__ = ("_count", "_texts", "_width", "parts")

    def __init__(self, texts: Numbers, count: int) -> None:
        if len(texts) % count if count else len(texts):
            raise ValueError(f"{count} strings of one length, {len(texts)} bytes together")
        super().__init__(texts.view, memoryview(b""))
        self._texts, self._count = texts, count
        self._width = len(texts) // count if count else 0
        self.parts = {"texts": texts} if len(texts) else {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> bytes:
        width = self._width
        return self._data[row * width : (row + 1) * width].tobytes() if width else b""

    def text(self, row: int) -> str:
        at = row * self._width
        return str(self._data[at : at + self._width], "utf-8", "surrogateescape")

    def check(self) -> None:
        """Do nothing: strings of equal length have no offsets to check."""

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts = list_rows(rows) * self._width
        return starts, starts + self._width

    def __reduce__(self) -> tuple[Callable[..., Even], tuple[Any, ...]]:
        return Even, (self._texts, self._count)


Compact = Stepped | Even


class Chosen:
    """Rows of several columns of strings, one column after the other, to be copied slice by slice."""

    __slots__ = ("_count", "_parts")

    def __init__(self, *parts: tuple[Strings | Digests | Versioned, Rows]) -> None:
        self._parts = parts
        self._count = sum(len(rows) for _, rows in parts)

    def __len__(self) -> int:
        return self._count

    def joined(self, rows: range) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return a slice of the strings as ``Strings.joined`` does."""
        ends, datas, size, first = [np.zeros(1, np.int64)], [np.zeros(0, np.uint8)], 0, 0
        for texts, chosen in self._parts:
            mine = chosen[max(0, rows.start - first) : max(0, rows.stop - first)]
            first += len(chosen)
            if len(mine):
                stops, data = texts.joined(mine)
                ends.append(stops[1:] + size)
                datas.append(data)
                size += len(data)
        # One column's strings are not copied.
        return np.concatenate(ends), datas[-1] if len(datas) <= 2 else np.concatenate(datas)  # noqa: PLR2004


def _pieces(texts: Texts) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Yield the strings in slices of whole blocks, each as ``Strings.joined`` returns them."""
    return (texts.joined(range(first, min(first + _ROWS, len(texts)))) for first in range(0, len(texts), _ROWS))


def compact(texts: Texts) -> Compact:
    """Copy strings into memory that workers map."""
    even, size, most, width = True, 0, 0, -1
    for ends, _ in _pieces(texts):
        if even and not (np.diff(ends) == (ends[1] if width < 0 else width)).all():
            # The slices before this one consist of blocks of equal strings.
            even, most = False, _STEP * max(width, 0)
        most = most if even else max(most, int(_bound_blocks(ends)[1].max()))
        width, size = int(ends[1]), size + int(ends[-1])
    count = len(texts)
    blocks = 0 if even else -(-count // _STEP)
    bounds = count + blocks if blocks else 0
    packing = Packing((np.uint64, blocks), (np.min_scalar_type(most), bounds), (np.uint8, size))
    at, base, bases, inner, whole = 0, 0, *packing.arrays
    for ends, data in _pieces(texts):
        if not even:
            starts, relative = _bound_blocks(ends)
            bases[at // _STEP :][: len(starts)] = starts + base
            inner[at + at // _STEP :][: len(relative)] = relative
        whole[base : base + len(data)] = data
        at, base = at + len(ends) - 1, base + len(data)
    numbers = packing.numbers()
    return Even(numbers[2], count) if even else Stepped(*numbers)


def _bound_blocks(ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start of each block of strings, and the bounds in each block, relative to it."""
    count = len(ends) - 1
    blocks = -(-count // _STEP)
    at = np.minimum(np.arange(blocks)[:, None] * _STEP + np.arange(_STEP + 1), count)
    return ends[at[:, 0]], (ends[at] - ends[at[:, :1]]).ravel()[: count + blocks]


SUMS = {"lower": b"0123456789abcdef", "upper": b"0123456789ABCDEF"}  # how the digits are written
_BYTES = 16  # of a sum
_DIGITS = 2 * _BYTES
_MARK = VERSION.encode()
IDS = "id-"  # before the names of the vectors of ids
_OTHER = "="  # before an ETag that does not begin with a sum
_BLOCK = 1 << 13  # rows handled at once
_MOST = 1 << 16  # different endings; S3 has 10,000: one for each number of parts
_NONE = 255


class Digests:
    """ETags that begin with an MD5 sum in hexadecimal digits: the sums, 16 bytes each, and the endings after them.

    Attributes:
        parts: The vectors that a file holds, by name: the sums, as "lower" or "upper" by the case of their digits, and
            the vectors of the column of endings, unless all are "". An ending that begins with "=" is a whole ETag of
            another form; the sum is ignored then.
    """

    __slots__ = ("_case", "_data", "_endings", "_plain", "_sums", "parts")

    def __init__(self, sums: Numbers, case: str, endings: Column | None) -> None:
        self._sums, self._case, self._endings = sums, case, endings
        self._data = sums.view
        self._plain = case == "lower" and endings is None
        self.parts = {case: sums} if endings is None else {case: sums, **endings.parts}

    def __len__(self) -> int:
        return len(self._data) // _BYTES

    def text(self, row: int) -> str:
        at = row * _BYTES
        text = self._data[at : at + _BYTES].hex()
        if self._plain:
            return text
        ending = "" if self._endings is None else self._endings.categories[self._endings.numbers.view[row]]
        if ending.startswith(_OTHER):
            return ending[1:]
        return (text if self._case == "lower" else text.upper()) + ending

    def check(self) -> None:
        if len(self._data) % _BYTES:
            raise ValueError("a part of a sum")
        if self._endings is not None:
            self._endings.check(len(self))

    def take(self, rows: Rows) -> Digests:
        sums = pack_taken(self._sums.values.reshape(-1, _BYTES), rows)
        return Digests(sums, self._case, None if self._endings is None else _some(self._endings, rows))

    def plus(self, other: Digests) -> Digests | None:
        """Return a copy of the rows of both; None if the cases of their digits differ."""
        if self._case != other._case:
            return None
        endings, sums = (self._endings, other._endings), (self._sums.values, other._sums.values)
        both = None
        if any(endings):
            first, second = (
                each or Column.of(np.zeros(count, np.uint8), [""])
                for each, count in zip(endings, (len(self), len(other)), strict=True)
            )
            both = joined("etag", first, second)
        return Digests(pack_pieces(sums[0].dtype, sum(map(len, sums)), sums), self._case, both)

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the ETags of ``rows`` as ``Strings.joined`` does; takes about 0.5 µs each, plain sums 50 ns."""
        if self._plain:
            sums = taken(self._sums.values.reshape(-1, _BYTES), rows).tobytes()
            return np.arange(len(rows) + 1) * 2 * _BYTES, np.frombuffer(hexlify(sums), np.uint8)
        texts = [encode(self.text(row)) for row in rows]
        return np.cumsum([0, *map(len, texts)], dtype=np.int64), np.frombuffer(b"".join(texts), np.uint8)

    def __reduce__(self) -> tuple[Callable[..., Digests], tuple[Any, ...]]:
        return Digests, (self._sums, self._case, self._endings)


class Versioned:
    """ETags with the ids of their versions (``values.VERSION``), as two columns; an id may be empty."""

    __slots__ = ("etags", "ids", "parts")

    def __init__(self, etags: ETags, ids: Compact) -> None:
        self.etags, self.ids = etags, ids
        self.parts: dict[str, Numbers] = {**etags.parts, **{IDS + name: each for name, each in ids.parts.items()}}

    def __len__(self) -> int:
        return len(self.etags)

    def text(self, row: int) -> str:
        etag, version = self.etags.text(row), self.ids.text(row)
        return f"{etag}{VERSION}{version}" if version else etag

    def check(self) -> None:
        self.etags.check()
        self.ids.check()
        if len(self.etags) != len(self.ids):
            raise ValueError("ETags without an id")

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the texts of ``rows`` as ``Strings.joined`` does."""
        (ends, data), (more, ids) = self.etags.joined(rows), self.ids.joined(rows)
        mark, at = np.frombuffer(_MARK, np.uint8), len(data)
        starts = np.stack((ends[:-1], np.full(len(rows), at), at + len(mark) + more[:-1]), axis=1)
        sizes = np.stack((np.diff(ends), np.where(np.diff(more) > 0, len(mark), 0), np.diff(more)), axis=1)
        whole = np.concatenate((data, mark, ids))
        return np.cumsum(np.append(0, sizes.sum(axis=1))), gather(whole, starts.ravel(), sizes.ravel())

    def __reduce__(self) -> tuple[Callable[..., Versioned], tuple[Any, ...]]:
        return Versioned, (self.etags, self.ids)


ETags = Compact | Digests | Versioned
Texts = Strings | StringsBuilder | Digests | Versioned | Chosen


def compact_etags(texts: Texts) -> ETags:
    """Copy ETags; as digests if at least half of them begin with a sum. Those of a builder may be dropped meanwhile."""
    if isinstance(texts, StringsBuilder) and len(texts) and (found := texts.pop_digits(_DIGITS)):
        return Digests(pack_pieces(np.dtype(np.uint8), found[0] * _BYTES, found[1]), "lower", None)
    if any(_MARK in data.tobytes() for _, data in _pieces(texts)):
        return _split_versions(texts)
    for case in SUMS:
        digests = _digests(texts, case)
        if digests is not None:
            return digests
    return compact(texts)


def _split_versions(texts: Texts) -> Versioned:
    etags, ids = StringsBuilder(), StringsBuilder()
    for ends, data in _pieces(texts):
        whole, width, count = data.tobytes(), int(ends[1]), len(ends) - 1
        at, until = (found := whole.find(_MARK)), found + len(_MARK)
        # Nearly always: one mark a row, and at the same place.
        even = whole.count(_MARK) == count and (np.diff(ends) == width).all()
        rows = data.reshape(-1, width) if even else data[:0]
        if len(rows) and rows[:, at:until].tobytes() == _MARK * count:
            for column, part in ((etags, rows[:, :at]), (ids, rows[:, until:])):
                column.add_all(Names(part.ravel(), np.arange(count + 1) * part.shape[1]))
            continue
        for start, stop in pairwise(ends.tolist()):
            etag, _, version = whole[start:stop].partition(_MARK)
            etags.add(etag)
            ids.add(version)
    return Versioned(compact_etags(etags), compact(ids))


def take(etags: ETags, rows: Rows) -> ETags:
    if isinstance(etags, Versioned):
        return Versioned(take(etags.etags, rows), compact(Chosen((etags.ids, rows))))
    return etags.take(rows) if isinstance(etags, Digests) else compact_etags(Chosen((etags, rows)))


def plus(first: ETags, second: ETags) -> ETags:
    if isinstance(first, Versioned) and isinstance(second, Versioned):
        ids = compact(Chosen(*((each.ids, range(len(each))) for each in (first, second))))
        return Versioned(plus(first.etags, second.etags), ids)
    both = first.plus(second) if isinstance(first, Digests) and isinstance(second, Digests) else None
    return compact_etags(Chosen(*((each, range(len(each))) for each in (first, second)))) if both is None else both


def _digests(texts: Texts, case: str) -> Digests | None:
    """Return ETags as digests; None if fewer than half of the rows so far begin with a sum, or endings are too many."""
    count, found, endings = len(texts), 0, {b"": 0}
    packing, codes = Packing((np.uint8, count * _BYTES)), np.zeros(count, np.uint32)
    sums = packing.arrays[0].reshape(-1, _BYTES)
    for first in range(0, count, _BLOCK):
        ends, data = texts.joined(range(first, min(first + _BLOCK, count)))
        starts, stops = ends[:-1], ends[1:]
        fits, values = _sums(starts, stops, data, case)
        rows = np.flatnonzero(fits)
        sums[first + rows] = values
        found += len(rows)
        for row in np.flatnonzero(~fits | (stops - starts > _DIGITS)).tolist():
            text = data[starts[row] : stops[row]].tobytes()
            ending = text[_DIGITS:]
            if not fits[row] or ending.startswith(_OTHER.encode()):
                ending = _OTHER.encode() + text
            codes[first + row] = endings.setdefault(ending, len(endings))
        if 2 * found < first + len(starts) or len(endings) > _MOST:
            return None
    if not count:
        return None
    column = Column.of(codes, [*map(decode, endings)]) if codes.any() else None
    return Digests(packing.numbers()[0], case, column)


def _sums(
    starts: NDArray[np.int64], stops: NDArray[np.int64], data: NDArray[np.uint8], case: str
) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """Return which strings begin with a sum, and these sums; the strings are concatenated."""
    if (stops - starts == _DIGITS).all():
        text = data[starts[0] : stops[-1]].tobytes()
        if text == (text.lower() if case == "lower" else text.upper()):
            with suppress(ValueError):
                return np.ones(len(starts), np.bool_), np.frombuffer(unhexlify(text), np.uint8).reshape(-1, _BYTES)
    fits = stops - starts >= _DIGITS
    values = _VALUES[case][data[starts[fits, None] + np.arange(_DIGITS)]]
    right = (values != _NONE).all(axis=1)
    fits[fits] = right
    return fits, values[right, ::2] << 4 | values[right, 1::2]


def _values(digits: bytes) -> NDArray[np.uint8]:
    """Return the value of each byte as a digit."""
    values = np.full(256, _NONE, np.uint8)
    values[np.frombuffer(digits, np.uint8)] = range(16)
    return values


_VALUES = {case: _values(digits) for case, digits in SUMS.items()}


def _some(endings: Column, rows: Rows) -> Column | None:
    """Return some rows, with the endings that they use; None if all of these are empty."""
    used, codes = np.unique(taken(endings.numbers.values, rows), return_inverse=True)
    texts = [endings.categories[code] for code in used.tolist()]
    return Column.of(codes, texts) if any(texts) else None


_BOUNDS = _STEP + 2  # of a block: the end of the beginning, that of the ending, and those of the keys
AFFIX_BYTES = 1 << 10  # limit of what is stored once: otherwise a small file could repeat a long text many times
# Shorter columns are not worth the longer lookup.
LEAST_BYTES = 256 << 10
_ROWS = 1 << 14  # strings that are handled together: whole blocks
_COMPARED = 1 << 12  # keys that are compared with others together
_ASCII = 127
_joined = b"".join


class Affixed(Strings):
    """Strings in blocks of 32, each without the common beginning and ending of its block.

    Attributes:
        parts: The vectors that a file holds, by name: "bases" (uint64, the start of each block), "bounds" (unsigned,
            relative to the base: for each block the end of the common beginning, the end of the common ending, and the
            end of the rest of each string) and "texts": for each block the beginning, the ending, and the rest
            of its strings.
    """

    __slots__ = ("_bases", "_count", "parts")

    def __init__(self, bases: Numbers, bounds: Numbers, texts: Numbers) -> None:
        super().__init__(texts.view, bounds.view)
        self._bases = bases.view
        self._count = len(bounds) - 2 * len(bases)
        self.parts = {"bases": bases, "bounds": bounds, "texts": texts}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> bytes:
        block = row >> 5
        first, base, bounds, data = 34 * block, self._bases[block], self._ends, self._data
        at, middle = first + (row & 31), base + bounds[first]
        return _joined(
            (
                data[base:middle],
                data[base + bounds[at + 1] : base + bounds[at + 2]],
                data[middle : base + bounds[first + 1]],
            )
        )

    def text(self, row: int) -> str:
        # The same lookup as in __getitem__: a call would take a tenth of the time.
        block = row >> 5
        first, base, bounds, data = 34 * block, self._bases[block], self._ends, self._data
        at, middle = first + (row & 31), base + bounds[first]
        return _joined(
            (
                data[base:middle],
                data[base + bounds[at + 1] : base + bounds[at + 2]],
                data[middle : base + bounds[first + 1]],
            )
        ).decode("utf-8", "surrogateescape")

    def check(self) -> None:
        bases, bounds = (self.parts[name].values for name in ("bases", "bounds"))
        if bases.dtype != np.uint64 or bounds.dtype.kind != "u" or len(bases) != -(-len(bounds) // _BOUNDS):
            raise ValueError("bounds that do not fit together")
        size = len(self._data)
        if not len(bases) or len(bounds) < 2 * len(bases) or len(bounds) % _BOUNDS in (1, 2):
            raise ValueError("blocks without a string")
        if bases[0] != 0 or bases.max() > size or bounds.max() > size:  # so that no sum passes 2⁶³
            raise ValueError("bounds lead outside the strings")
        step = _ROWS // _STEP
        for first in range(0, len(bases), step):
            starts, ends = bases[first : first + step], bounds[_BOUNDS * first : _BOUNDS * (first + step)]
            back = ends[1:] < ends[:-1]
            # From one block to the next.
            back[_BOUNDS - 1 :: _BOUNDS] = False
            if back.any() or (ends[1::_BOUNDS] > AFFIX_BYTES).any():
                raise ValueError("bounds that go back, or a common text that is too long")
            lengths = np.append(ends[_BOUNDS - 1 :: _BOUNDS], ends[-1:])[: len(starts)].astype(np.uint64)
            follow = np.append(bases[first + 1 : first + step + 1], np.uint64(size))[: len(starts)]
            if (starts + lengths != follow).any():
                raise ValueError("bounds lead outside the strings")

    def _places(self, rows: Rows) -> tuple[NDArray[np.int64], ...]:
        """Return, for each of ``rows``, the base of its block and the bounds that ``__getitem__`` uses: int64."""
        numbers = list_rows(rows)
        block = numbers >> 5
        at, bounds = numbers + 2 * block, self.parts["bounds"].values
        found = (bounds[_BOUNDS * block], bounds[_BOUNDS * block + 1], bounds[at + 1], bounds[at + 2])
        return self.parts["bases"].values[block].astype(np.int64), *(each.astype(np.int64) for each in found)

    def lengths(self, rows: Rows) -> NDArray[np.int64]:
        _, _, ending, start, stop = self._places(rows)
        return ending + stop - start

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        base, beginning, ending, start, stop = self._places(rows)
        ends = np.concatenate(([np.int64(0)], np.cumsum(ending + stop - start)))
        pieces = np.stack((base, base + start, base + beginning), axis=1).ravel()
        sizes = np.stack((beginning, stop - start, ending - beginning), axis=1).ravel()
        return ends, gather(np.frombuffer(self._data, np.uint8), pieces, sizes)

    def __reduce__(self) -> tuple[Callable[..., Affixed], tuple[Any, ...]]:
        return Affixed, tuple(self.parts.values())


class Derived(Strings):
    """Keys equal to those of another column except for the ending, such as captions of images.

    Attributes:
        origin: The other column.
        parts: The vectors that a file holds: "cut", the number of bytes that each key of the other column loses at its
            end, and "ending", those that follow instead.
    """

    __slots__ = ("_cut", "_ending", "_text", "origin", "parts")

    def __init__(self, origin: Compact | Affixed, cut: Numbers, ending: Numbers) -> None:
        super().__init__(ending.view, memoryview(b""))
        if len(cut) != 1 or cut.values.dtype.kind != "u" or ending.values.dtype != np.uint8:
            raise ValueError("keys that are not derived from others")
        self.origin, self._cut, self._ending = origin, int(cut.view[0]), ending.view.tobytes()
        self._text = self._ending.decode("utf-8", "surrogateescape")
        self.parts = {"cut": cut, "ending": ending}

    def __len__(self) -> int:
        return len(self.origin)

    def __getitem__(self, row: int) -> bytes:
        key = self.origin[row]
        return key[: len(key) - self._cut] + self._ending

    def text(self, row: int) -> str:
        return self.text_beside(self.origin.text(row))

    def text_beside(self, key: str) -> str:
        """Return the key that is derived from ``key``, as texts."""
        # What is cut is ASCII.
        return key[: len(key) - self._cut] + self._text

    def of(self, origin: Compact | Affixed) -> Derived:
        """Return the same keys, derived from another column with equal keys."""
        return Derived(origin, self.parts["cut"], self.parts["ending"])

    def check(self) -> None:
        """Raise ValueError if keys of the other column, already checked, have wrong endings."""
        if len(self._ending) > AFFIX_BYTES or not self._ending.isascii() or self._cut > AFFIX_BYTES:
            raise ValueError("keys that are not derived from others")
        for rows in blocks(range(len(self)), _COMPARED):
            tails = _tails(*self.origin.joined(rows), self._cut)
            if tails is None or (tails != tails[:1]).any() or (tails > _ASCII).any():
                raise ValueError("keys that are not derived from others")

    def lengths(self, rows: Rows) -> NDArray[np.int64]:
        return self.origin.lengths(rows) - self._cut + len(self._ending)

    def joined(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        before, data = self.origin.joined(rows)
        return _replace_ending(before, data, self._cut, self._ending)

    def __reduce__(self) -> tuple[Callable[..., Derived], tuple[Any, ...]]:
        return Derived, (self.origin, *self.parts.values())


Keys = Compact | Affixed | Derived


def _tails(ends: NDArray[np.int64], data: NDArray[np.uint8], cut: int) -> NDArray[np.uint8] | None:
    """Return the last ``cut`` bytes of each string: uint8, shape (strings, cut); None if one is shorter."""
    if (np.diff(ends) < cut).any():
        return None
    found: NDArray[np.uint8] = data[ends[1:, None] - cut + np.arange(cut)]
    return found


def _replace_ending(
    ends: NDArray[np.int64], data: NDArray[np.uint8], cut: int, ending: bytes
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return strings, as ``Strings.joined`` does, with ``ending`` instead of their last ``cut`` bytes."""
    kept = np.diff(ends) - cut
    after = np.concatenate(([np.int64(0)], np.cumsum(kept + len(ending))))
    whole = np.empty(int(after[-1]), np.uint8)
    last = after[1:, None] - len(ending) + np.arange(len(ending))
    whole[last] = np.frombuffer(ending, np.uint8)
    body = np.ones(len(whole), bool)
    body[last] = False
    there = np.ones(len(data), bool)
    there[ends[1:, None] - cut + np.arange(cut)] = False
    whole[body] = data[there]
    return after, whole


def compact_keys(texts: Texts) -> Compact | Affixed:
    """Copy keys into memory that workers map; few keys are looked up faster uncompressed."""
    size = sum(int(ends[-1]) for ends, _ in _pieces(texts))
    if size < LEAST_BYTES:
        return compact(texts)
    found = compress_affixes(texts)
    taken = sum(each.values.nbytes for each in found.parts.values())
    return found if taken < size - size // 8 else compact(texts)


def compress_affixes(texts_of: Texts) -> Affixed:
    """Copy strings, at least one."""
    texts = bytearray()
    sizes: list[NDArray[np.int64]] = []
    bounds: list[NDArray[Any]] = []
    for ends, data in _pieces(texts_of):
        pieces, lengths, firsts = _split_blocks(ends, data)
        texts += gather(data, pieces, lengths).data
        stops = np.cumsum(lengths)
        blocks_of = np.append(stops[firsts[1:] - 1], stops[-1])
        sizes.append(np.diff(blocks_of, prepend=0))
        inner = stops - np.repeat(blocks_of - sizes[-1], np.diff(np.append(firsts, len(stops))))
        bounds.append(inner.astype(np.min_scalar_type(int(inner.max()))))
    bases = np.cumsum(np.concatenate(sizes)) - np.concatenate(sizes)
    widest = max((each.dtype for each in bounds), key=lambda each: each.itemsize)
    relative = pack_pieces(widest, sum(map(len, bounds)), bounds)
    return Affixed(pack([bases.astype(np.uint64)])[0], relative, pack([np.frombuffer(texts, np.uint8)])[0])


def _split_blocks(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], ...]:
    """Return where the pieces of some blocks begin in ``data``, their lengths, and the first piece of each block.

    The pieces of a block are its beginning, its ending, and the rest of its strings.
    """
    count = len(ends) - 1
    total = -(-count // _STEP)
    # The last block repeats its last string.
    rows = np.minimum(np.arange(total * _STEP), count - 1).reshape(-1, _STEP)
    lengths = np.diff(ends)
    least = lengths[rows].min(axis=1)
    beginnings = _common(data, ends[rows], least, 1)
    endings = _common(data, ends[rows + 1] - 1, least - beginnings, -1)
    block, firsts = np.arange(count) // _STEP, np.arange(total) * _BOUNDS
    pieces, sizes = (np.empty(count + 2 * total, np.int64) for _ in range(2))
    pieces[firsts], sizes[firsts] = ends[np.arange(total) * _STEP], beginnings
    pieces[firsts + 1], sizes[firsts + 1] = ends[np.arange(total) * _STEP + 1] - endings, endings
    rest = np.arange(count) + 2 * (block + 1)
    pieces[rest], sizes[rest] = ends[:-1] + beginnings[block], lengths - (beginnings + endings)[block]
    return pieces, sizes, firsts


def _common(
    data: NDArray[np.uint8], starts: NDArray[np.int64], least: NDArray[np.int64], step: int
) -> NDArray[np.int64]:
    """Return the length of the common beginning, from ``starts`` (blocks, 32), of each block: at most ``least``.

    ``step`` is 1 towards the end of the strings, -1 towards their beginning.
    """
    found = np.zeros(len(starts), np.int64)
    alive = np.flatnonzero(least > 0)
    for number in range(AFFIX_BYTES // 2):
        if not len(alive):
            break
        bytes_of = data[starts[alive] + step * number]
        same = (bytes_of == bytes_of[:, :1]).all(axis=1)
        alive = alive[same]
        found[alive] += 1
        alive = alive[least[alive] > number + 1]
    return found


def derive_keys(origin: Keys, keys: Keys) -> Derived | None:
    """Return ``keys`` as derived from ``origin``; None unless each row differs only in the ending."""
    if isinstance(origin, Derived) or len(origin) != len(keys) or not len(keys):
        return None
    first, other = origin[0], keys[0]
    same = next((at for at, pair in enumerate(zip(first, other, strict=False)) if pair[0] != pair[1]), None)
    same = min(len(first), len(other)) if same is None else same
    cut, ending = len(first) - same, other[same:]
    if not first[same:].isascii() or not ending.isascii() or max(cut, len(ending)) > AFFIX_BYTES:
        return None
    for rows in blocks(range(len(keys)), _COMPARED):
        (ends, data), (theirs, more) = origin.joined(rows), keys.joined(rows)
        tails = _tails(ends, data, cut)
        if tails is None or (tails != np.frombuffer(first[same:], np.uint8)).any():
            return None
        ends, data = _replace_ending(ends, data, cut, ending)
        if not np.array_equal(ends, theirs) or not np.array_equal(data, more):
            return None
    return Derived(origin, *pack([np.array([cut], np.uint32), np.frombuffer(ending, np.uint8)]))
