"""Keys in few bytes: what the keys of a block have in common is stored once; keys that differ by their endings, too.

Keys of a listing come sorted, so that neighbours begin alike, and mostly end alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.columns.column import Numbers, Strings, blocks, gather, list_rows, pack
from penstock.data.catalog.columns.compact import Compact, compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows

_STEP = 32  # keys in a block; part of the format
_BOUNDS = _STEP + 2  # of a block: the end of the beginning, that of the ending, and those of the keys
AFFIX_BYTES = 1 << 10  # limit of what is stored once: otherwise a small file could repeat a long text many times
# Shorter columns are not worth the longer lookup.
LEAST_BYTES = 256 << 10
_ROWS = 1 << 16  # strings that are compared together: whole blocks
_COMPARED = 1 << 12  # keys that are compared with others together
_ASCII = 127
_joined = b"".join


class Affixed(Strings):
    """Strings in blocks of 32, each without the beginning and the ending that all of its block have.

    Attributes:
        parts: The vectors that a file holds, by name: "bases" (uint64, the start of each block), "bounds" (unsigned,
            relative to the base: for each block the end of the common beginning, the end of the common ending, and the
            end of what is left of each string) and "texts": for each block the beginning, the ending, and what is left
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
        if (bases > size).any() or (bounds > size).any():  # so that no sum passes 2⁶³
            raise ValueError("bounds lead outside the strings")
        starts, ends = bases.astype(np.int64), bounds.astype(np.int64)
        inside = np.ones(len(ends), bool)
        inside[::_BOUNDS] = False
        if (np.diff(ends)[inside[1:]] < 0).any() or (ends[1::_BOUNDS] > AFFIX_BYTES).any():
            raise ValueError("bounds that go back, or a common text that is too long")
        last = np.append(np.arange(_BOUNDS, len(ends), _BOUNDS), len(ends)) - 1
        if starts[0] != 0 or (starts + ends[last] != np.append(starts[1:], size)).any():
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
    """Keys that are those of another column, row by row, with another ending: captions beside images.

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
        """Raise ValueError if the keys of the other column, which has been checked, do not end as they must."""
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
    """Return strings, as ``Strings.joined`` does, with ``ending`` in place of their last ``cut`` bytes."""
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


def compact_keys(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> Compact | Affixed:
    """Copy keys, given end to end with one more offset than keys, into memory that workers map."""
    if not len(data):
        return compact(ends, data)
    found = compress_affixes(ends, data)
    taken = sum(each.values.nbytes for each in found.parts.values())
    return found if taken < len(data) - len(data) // 8 else compact(ends, data)


def compress_affixes(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> Affixed:
    """Copy strings, given as ``compact`` takes them; at least one."""
    texts = bytearray()
    sizes: list[NDArray[np.int64]] = []
    bounds: list[NDArray[Any]] = []
    for first in range(0, len(ends) - 1, _ROWS):
        some = ends[first : first + _ROWS + 1]
        pieces, lengths, firsts = _split_blocks(some, data)
        texts += gather(data, pieces, lengths).data
        stops = np.cumsum(lengths)
        blocks_of = np.append(stops[firsts[1:] - 1], stops[-1])
        sizes.append(np.diff(blocks_of, prepend=0))
        inner = stops - np.repeat(blocks_of - sizes[-1], np.diff(np.append(firsts, len(stops))))
        bounds.append(inner.astype(np.min_scalar_type(int(inner.max()))))
    bases = np.cumsum(np.concatenate(sizes)) - np.concatenate(sizes)
    return Affixed(*pack([bases.astype(np.uint64), np.concatenate(bounds), np.frombuffer(texts, np.uint8)]))


def _split_blocks(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], ...]:
    """Return where the pieces of some blocks begin in ``data``, their lengths, and the first piece of each block.

    The pieces of a block are its beginning, its ending, and what is left of its strings.
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
    """Return how many bytes from ``starts`` (blocks, 32) on all strings of a block have in common, at most ``least``.

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
    """Return ``keys`` as derived from ``origin``; None if they are not, row by row, the same with another ending."""
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
