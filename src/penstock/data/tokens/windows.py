"""Locations of the samples of token files, by arithmetic: no table has an entry for each window.

A unit is a piece of a file in which windows run: the whole file, or a document; or it is all files, concatenated. A
stretch is a piece of it whose samples are close enough to each other to be read together. ``runs`` cuts stretches to
runs.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.columns.column import pack
from penstock.errors import Bug
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Numbers
    from penstock.source import Source

# Bytes between two samples that are read and thrown away, at most, and as a multiple of a window's.
_GAP_BYTES, _GAP_WINDOWS = 64 << 10, 4


class Shape(NamedTuple):
    """The samples that are cut from units."""

    length: int  # tokens of a window; 0: each unit is a sample
    stride: int  # tokens from the beginning of a window to that of the next
    # ``"tokens"`` (each file is a unit), ``"stream"`` (all files are one), ``"sequences"`` or ``"documents"``.
    units: str


class TokenPiece(NamedTuple):
    """Tokens of one read: a sample, or adjacent samples."""

    start: int  # first byte in the file; in the stream, if files are one; among all packed rows
    stop: int  # the end, counted likewise
    spans: list[Span]  # the bytes, in one file or several; empty: the samples are empty documents


class TokenFiles(NamedTuple):
    """Files of tokens of one type, in order, and their units."""

    source: Source
    base: str  # the prefix of their keys that is not part of their names
    keys: Sequence[str]
    etags: Sequence[str]
    dtype: np.dtype[np.integer]  # type of the tokens
    # First byte and number of bytes of each unit of each file, in order and without overlap: int64. For a stream, one
    # unit of each file.
    units: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
    # Of each file with an index: key, size and ETag of both.
    twins: Sequence[tuple[str, int, str, str, int, str]] = ()
    # Of each file its loss mask, one byte a token: key, size and ETag; empty without ``loss``.
    losses: Sequence[tuple[str, int, str]] = ()


class Windows:
    """The samples of token files: the ``Contents`` of a dataset.

    Sample numbers are not checked. Pickling for a worker passes the memory of the tables, which have 16 bytes for each
    file, or for each document that has a sample.
    """

    def __init__(self, files: TokenFiles, shape: Shape) -> None:
        """Count the samples of each unit; a unit without a sample takes no memory."""
        self.source, self.base, self.dtype, self.shape = files.source, files.base, files.dtype, shape
        self.keys, self._etags = files.keys, files.etags
        nothing, item = np.zeros(0, np.int64), self.dtype.itemsize
        begins, sizes = (np.concatenate([nothing, *(each[at] for each in files.units)]) for at in (0, 1))
        owners = np.cumsum([0, *(len(each) for each, _ in files.units)], dtype=np.int64)
        self._file_bytes = [int(each.sum()) for _, each in files.units]
        self.tokens = sum(self._file_bytes) // item
        length, stride, kind = shape
        # Of a stream: where each file begins in it, and where it ends; and the first byte of tokens in each file.
        self._joints: tuple[Numbers, Numbers] | None = None
        if kind == "stream":
            borders = np.append(0, np.cumsum(sizes))
            first, last = pack([borders, begins])
            self._joints = first, last
            owners, begins, sizes = np.array([0, 1]), borders[:1], borders[-1:]
        self._width, self._step = length * item, stride * item
        self._gap_bytes = min(_GAP_BYTES, _GAP_WINDOWS * self._width)
        # Whether neighbours in a unit are close enough to be read together.
        self.joined = self._step - self._width <= self._gap_bytes
        if length:
            counts = np.maximum((sizes // item - length) // stride + 1, 0)
            full = counts > 0
            owners = np.append(0, np.cumsum(full))[owners]
            begins, counts = begins[full], counts[full]
            firsts = np.append(0, np.cumsum(counts))
            covered = int(((counts - 1) * min(stride, length) + length).sum())
        else:
            firsts, covered = None, self.tokens
        self.left_out = self.tokens - covered  # also of a part: tokens that are in no sample of the whole
        self._fill(owners, begins, begins + sizes if firsts is None else None, firsts)
        self._slice = (0, self._count)

    def _fill(
        self,
        owners: NDArray[np.int64],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64] | None,
        firsts: NDArray[np.int64] | None,
    ) -> None:
        """Keep the tables of the units: ``ends`` if each unit is a sample, otherwise ``firsts``."""
        if firsts is not None:
            ends = begins + (np.diff(firsts) - 1) * self._step + self._width
        elif ends is not None:
            firsts = np.arange(len(begins) + 1)
        else:
            raise Bug("units have neither ends nor first samples")
        stretches = _stretches(begins, ends, owners, self._gap_bytes)
        held = int((ends[np.append(stretches[1:], len(ends)) - 1] - begins[stretches]).sum()) if len(ends) else 0
        self.mean_bytes = max(-(-held // max(int(firsts[-1]), 1)), 1) if self.joined else self._width
        length = self.shape.length
        tables = pack([owners, begins, firsts[stretches], firsts if length else ends])
        self._owners, self._begins, self.stretches, last = tables
        self._firsts: Numbers | None = last if length else None
        self._ends: Numbers | None = None if length else last
        self._count = int(firsts[-1])

    def part(self, first: int, stop: int) -> Windows:
        """Return samples ``first`` to ``stop``: the tables of their units are copied."""
        found = copy(self)
        found.__dict__.pop("digest", None)
        begin = self._slice[0]
        found._slice = begin + first, begin + stop  # noqa: SLF001  itself
        begins, owners, step = self._begins.values, self._owners.values, self._step
        if self._firsts is None or self._ends is not None:
            start, end, ends, firsts = first, stop, self._ends.values[first:stop], None  # type: ignore[union-attr]
            chosen = begins[start:end]
        else:
            known = self._firsts.values
            start = int(np.searchsorted(known, first, side="right")) - 1
            end = int(np.searchsorted(known, stop)) if first < stop else start
            ends, firsts = None, np.clip(known[start : end + 1] - first, 0, stop - first)
            chosen = begins[start:end].copy()
            chosen[:1] += (first - known[start]) * step
        found._fill(np.clip(owners - start, 0, end - start), chosen, ends, firsts)  # noqa: SLF001  itself
        return found

    def __len__(self) -> int:
        return self._count

    @property
    def root(self) -> str:
        return self.source.root

    # Cached: every state contains the digest.
    @cached_property
    def digest(self) -> str:
        """Digest of the names and sizes of the files, the type, length and stride, and the index that is used."""
        names = [key[len(self.base) :] for key in self.keys]
        text = json.dumps([1, names, self._file_bytes, self.dtype.str, self.shape, self._slice])
        hashed = hashlib.sha256(text.encode())
        if self.shape.units not in ("tokens", "stream"):
            for each in filter(None, (self._owners, self._begins, self._firsts, self._ends)):
                hashed.update(each.values.data)
        return hashed.hexdigest()[:32]

    def places(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first byte of each sample in its file or stream, and the end: int64, the shape of ``samples``."""
        begins = self._begins.values
        if self._firsts is None:
            return begins[samples], self._ends.values[samples]  # type: ignore[union-attr]  # one of both is there
        firsts = self._firsts.values
        units = np.searchsorted(firsts, samples, side="right") - 1
        starts = begins[units] + (samples - firsts[units]) * self._step
        return starts, starts + self._width

    def piece(self, first: int, last: int) -> TokenPiece:
        """Return the bytes from sample ``first`` to the end of sample ``last``, which is in the same file or stream."""
        unit, start, _ = self._place(first)
        stop = self._place(last)[2]
        if self._joints is None:
            file = self._file(unit, start)
            return TokenPiece(start, stop, [self.span(file, start, stop)] if start < stop else [])
        borders, heads = (each.view for each in self._joints)
        spans, at = list[Span](), start
        while at < stop:
            file = self._file(unit, at)
            begin, shift = at, heads[file] - borders[file]
            at = min(stop, borders[file + 1])
            spans.append(self.span(file, begin + shift, at + shift))
        return TokenPiece(start, stop, spans)

    def span(self, file: int, start: int, stop: int) -> Span:
        return Span(self.keys[file], start, stop, self._etags[file])

    def decode(self, _piece: TokenPiece, parts: list[bytes]) -> NDArray[Any]:
        """Return the tokens of a piece, whose spans have the bytes ``parts``."""
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), self.dtype)

    def url_of(self, sample: int) -> str:
        """Return the URL of the file in which a sample begins."""
        return self.root + self.keys[self._file(*self._place(sample)[:2])]

    def _file(self, unit: int, at: int) -> int:
        """Return the number of the file with byte ``at`` of a unit."""
        return bisect_right(*((self._owners.view, unit) if self._joints is None else (self._joints[0].view, at))) - 1

    def _place(self, sample: int) -> tuple[int, int, int]:
        """Return the unit of a sample, its first byte and its end."""
        begins = self._begins.view
        if self._firsts is None:
            return sample, begins[sample], self._ends.view[sample]  # type: ignore[union-attr]  # as above
        firsts = self._firsts.view
        unit = bisect_right(firsts, sample) - 1
        start = begins[unit] + (sample - firsts[unit]) * self._step
        return unit, start, start + self._width

    def positions(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the first byte of units ``first`` to ``stop``, counted over all files: int64."""
        before = np.cumsum([0, *self._file_bytes])
        found: NDArray[np.int64] = before[self.owners_of(np.arange(first, stop))] + self._begins.values[first:stop]
        return found

    @property
    def owners(self) -> NDArray[np.int64]:
        """The first unit of each file, and the number of units."""
        return self._owners.values

    def owners_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the file of each unit."""
        return np.searchsorted(self.owners, units, side="right") - 1

    @property
    def kind(self) -> str:
        return f"windows of {self.shape.length:,} tokens" if self.shape.length else f"whole {self.shape.units}"


def _stretches(
    begins: NDArray[np.int64], ends: NDArray[np.int64], owners: NDArray[np.int64], gap_bytes: int
) -> NDArray[np.int64]:
    """Return the first unit of each stretch: it ends with its file, or before a wide gap."""
    if not len(begins):
        return np.zeros(0, np.int64)
    apart = begins[1:] - ends[:-1] > gap_bytes
    borders = owners[1:-1]
    apart[borders[(borders > 0) & (borders < len(begins))] - 1] = True
    return np.append(0, np.flatnonzero(apart) + 1)
