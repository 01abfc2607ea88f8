"""Compact columns of byte strings: no offsets if all have the same length, else offsets of 1 or 2 bytes each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.data.catalog.storage.column import Numbers, Strings, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.data.catalog.storage.column import Rows

__all__ = ["Compact", "Even", "Stepped", "chained", "compact"]

_STEP = 32  # strings in a block; part of the format


class Stepped(Strings):
    """Strings in blocks of 32, with offsets relative to their block: 1 or 2 bytes each if strings are short.

    Attributes:
        parts: The vectors that a file holds, by name: "bases" (uint64, the start of each block), "ends" (unsigned; for
            each block the starts of its strings and the end of the last one, relative to its base; this 33rd bound
            keeps a lookup within one block) and "texts", the strings end to end.

    """

    __slots__ = ("_bases", "parts")

    def __init__(self, bases: Numbers, ends: Numbers, texts: Numbers) -> None:
        """Take vectors that ``compact`` packed."""
        super().__init__(texts.view, ends.view)
        self._bases = bases.view
        self.parts = {"bases": bases, "ends": ends, "texts": texts}

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self._ends) - len(self._bases)

    def __getitem__(self, row: int) -> bytes:
        """Return one string as bytes, a copy."""
        block = row >> 5
        at, base, ends = row + block, self._bases[block], self._ends
        return self._data[base + ends[at] : base + ends[at + 1]].tobytes()

    def text(self, row: int) -> str:
        """Return one string as text."""
        # The same lookup as in __getitem__: a call would take a tenth of the time.
        block = row >> 5
        at, base, ends = row + block, self._bases[block], self._ends
        return str(self._data[base + ends[at] : base + ends[at + 1]], "utf-8", "surrogateescape")

    def check(self) -> None:
        """Raise ValueError if the offsets lead outside the strings."""
        bases, ends = (self.parts[name].values for name in ("bases", "ends"))
        if bases.dtype != np.uint64 or ends.dtype.kind != "u" or len(bases) != -(-len(ends) // (_STEP + 1)):
            raise ValueError("offsets that do not fit together")
        size = len(self._data)
        if not len(self) or (bases > size).any() or (ends > size).any():  # so that no sum passes 2⁶³
            raise ValueError("offsets that lead outside")
        starts, stops = self.bounds(range(len(self)))
        if starts[0] != 0 or stops[-1] != size or (starts[1:] != stops[:-1]).any() or (stops < starts).any():
            raise ValueError("offsets that lead outside")

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and end offsets of ``rows``: int64."""
        rows = np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows.astype(np.int64)
        blocks = rows >> 5
        bases, ends = self.parts["bases"].values[blocks].astype(np.int64), self.parts["ends"].values
        return bases + ends[rows + blocks].astype(np.int64), bases + ends[rows + blocks + 1].astype(np.int64)

    def __reduce__(self) -> tuple[Callable[..., Stepped], tuple[Any, ...]]:
        """Pickle the vectors: see ``Numbers``."""
        return Stepped, tuple(self.parts.values())


class Even(Strings):
    """Strings of equal length, which need no offsets; the length may be 0.

    Attributes:
        parts: The vectors that a file holds: "texts", the strings end to end, if they have any bytes.

    """

    __slots__ = ("_count", "_texts", "_width", "parts")

    def __init__(self, texts: Numbers, count: int) -> None:
        """Take ``count`` strings end to end.

        Raises:
            ValueError: The bytes cannot be divided into ``count`` strings of equal length.

        """
        if len(texts) % count if count else len(texts):
            raise ValueError(f"{count} strings of one length, {len(texts)} bytes together")
        super().__init__(texts.view, memoryview(b""))
        self._texts, self._count = texts, count
        self._width = len(texts) // count if count else 0
        self.parts = {"texts": texts} if len(texts) else {}

    def __len__(self) -> int:
        """Return the number of strings."""
        return self._count

    def __getitem__(self, row: int) -> bytes:
        """Return one string as bytes, a copy."""
        width = self._width
        return self._data[row * width : (row + 1) * width].tobytes() if width else b""

    def text(self, row: int) -> str:
        """Return one string as text."""
        at = row * self._width
        return str(self._data[at : at + self._width], "utf-8", "surrogateescape")

    def check(self) -> None:
        """Do nothing: strings of equal length have no offsets to check."""

    def bounds(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and end offsets of ``rows``: int64."""
        rows = np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows
        starts = rows.astype(np.int64) * self._width
        return starts, starts + self._width

    def __reduce__(self) -> tuple[Callable[..., Even], tuple[Any, ...]]:
        """Pickle the vector and the number of strings: see ``Numbers``."""
        return Even, (self._texts, self._count)


Compact = Stepped | Even


def compact(ends: NDArray[np.int64], data: NDArray[np.uint8]) -> Compact:
    """Copy strings, given end to end with one more offset than strings, into memory that workers map."""
    lengths = np.diff(ends)
    if not len(lengths) or (lengths == lengths[0]).all():
        return Even(pack([data])[0], len(lengths))
    blocks = -(-len(lengths) // _STEP)
    at = np.minimum(np.arange(blocks)[:, None] * _STEP + np.arange(_STEP + 1), len(lengths))
    bases, inner = ends[at[:, 0]], (ends[at] - ends[at[:, :1]]).ravel()[: len(lengths) + blocks]
    small = np.min_scalar_type(int(inner.max()))
    return Stepped(*pack([bases.astype(np.uint64), inner.astype(small), data]))


class Joinable(Protocol):
    """The part of a column that ``chained`` needs."""

    def __len__(self) -> int:
        """Return the number of strings."""

    def joined(self, rows: Rows, /) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return some strings, as ``Strings.joined`` does."""


def chained(first: Joinable, second: Joinable) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the strings of both columns, in the form that ``Strings.joined`` returns."""
    (ends, data), (others, more) = (each.joined(range(len(each))) for each in (first, second))
    return np.concatenate((ends, others[1:] + ends[-1])), np.concatenate((data, more))
