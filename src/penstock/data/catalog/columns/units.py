"""Columns of a table for samples in units: the unit of each row, and the byte ranges of each unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.data.catalog.columns.column import Numbers, blocks, list_used, pack, taken
from penstock.data.shards.format import UnitPiece
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.catalog.columns.compact import ETags, Keys
    from penstock.data.shards.format import Units

# Between two ranges of a unit, fetched and thrown away: a request of their own costs more.
_GAP_BYTES = 16 << 10
# Roles of the vectors in a file, in the order of the columns.
UNIT_ROLES = ("unit", "unit first", "unit bytes", "unit end", "unit start", "unit stop")


class UnitTable(NamedTuple):
    """Units of samples that are decoded together, after the unit of each row: see ``shards.format.Units``."""

    rows: Numbers
    firsts: Numbers
    decoded: Numbers
    ends: Numbers
    starts: Numbers
    stops: Numbers

    @classmethod
    def of(cls, columns: Sequence[NDArray[np.integer[Any]]]) -> UnitTable:
        """Copy columns of int64 into memory that workers map, in as few bytes as they need."""
        return cls(*pack(columns, narrow=True))

    def ranges(self, unit: int) -> list[tuple[int, int]]:
        ends = self.ends.view
        return [(self.starts.view[at], self.stops.view[at]) for at in range(ends[unit - 1] if unit else 0, ends[unit])]

    def cover(self, unit: int) -> tuple[int, int]:
        """Return the first byte and the end of the smallest range that covers a unit."""
        ends = self.ends.view
        return self.starts.view[ends[unit - 1] if unit else 0], self.stops.view[ends[unit] - 1]

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of each decoded unit: at least those of its ranges."""
        _, decoded, ends, starts, stops = self._units()
        fetched = np.concatenate(([0], np.cumsum(stops - starts)))
        return np.maximum(decoded, np.diff(fetched[np.concatenate(([0], ends))]))

    def _units(self) -> list[NDArray[np.int64]]:
        return [each.values.astype(np.int64) for each in self[1:]]

    def take(self, rows: Rows) -> UnitTable:
        """Return a copy of some rows, and of the units that these need."""
        used, numbers = list_used(taken(self.rows.values, rows), len(self.firsts))
        firsts, decoded, ends, starts, stops = self._units()
        counts = np.diff(ends, prepend=0)[used]
        kept = np.cumsum(counts)
        # Range r of the copy is range r - (kept - counts) of its unit.
        ranges = np.arange(counts.sum()) + np.repeat(ends[used] - kept, counts)
        return UnitTable.of([numbers, firsts[used], decoded[used], kept, starts[ranges], stops[ranges]])

    def plus(self, other: UnitTable) -> UnitTable:
        shifts = (len(self.firsts), 0, 0, len(self.starts), 0, 0)
        return UnitTable.of(
            [
                np.concatenate((one.values.astype(np.int64), two.values.astype(np.int64) + shift))
                for one, two, shift in zip(self, other, shifts, strict=True)
            ]
        )

    def check(self, objects: NDArray[Any], offsets: NDArray[Any]) -> None:
        """Raise ValueError if the columns, which came from a file, contradict each other or the rows."""
        if any(each.values.dtype.kind not in "iu" or each.values.dtype == np.uint64 for each in self):
            raise ValueError("units of another type")
        rows, firsts, decoded, ends, starts, stops = (each.values for each in self)
        count, known = len(firsts), list(blocks(range(len(rows))))
        if len(rows) != len(offsets) or {len(decoded), len(ends)} != {count} or len(starts) != len(stops):
            raise ValueError("columns of units with different lengths")
        if len(rows) and (rows.min() < 0 or rows.max() >= count):
            raise ValueError("rows of unknown units")
        if any((taken(offsets, some) < firsts[taken(rows, some)]).any() for some in known):
            raise ValueError("rows of unknown units")
        if (ends[:1] <= 0).any() or (ends[1:] <= ends[:-1]).any() or (int(ends[-1]) if count else 0) != len(starts):
            raise ValueError("units without ranges")
        overlap = starts[1:] < stops[:-1]
        # From one unit to the next.
        overlap[ends[:-1].astype(np.int64) - 1] = False
        if (
            overlap.any()
            or (stops <= starts).any()
            or min(each.min(initial=0) for each in (starts, firsts, decoded)) < 0
        ):
            raise ValueError("units whose ranges overlap, or are outside of every object")
        owners = np.zeros(count, objects.dtype)
        for some in known:
            owners[taken(rows, some)] = taken(objects, some)
        if any((owners[taken(rows, some)] != taken(objects, some)).any() for some in known):
            raise ValueError("a unit of two objects")


class SamplePlace(NamedTuple):
    """Location of a sample: its unit in the table, the unit's first sample within the shard, its number in the unit."""

    unit: int
    first: int
    number: int


class UnitRows(NamedTuple):
    """Rows of a table whose samples are in units, in the catalog's order.

    ``objects`` and ``numbers`` are each row's object and its number in the object, ``keys`` and ``etags`` those of the
    objects, and ``rows`` the rows that the catalog shows.
    """

    units: UnitTable
    objects: Numbers
    numbers: Numbers
    keys: Keys
    etags: ETags
    rows: Rows

    def of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the unit of each of some entries."""
        rows = self.rows
        chosen = rows.start + entries * rows.step if isinstance(rows, range) else rows[entries]
        return self.units.rows.values[chosen].astype(np.int64)

    def place(self, entry: int) -> SamplePlace:
        row, units = self.rows[entry], self.units
        unit = units.rows.view[row]
        first = units.firsts.view[unit]
        return SamplePlace(unit, first, self.numbers.view[row] - first)

    def spans(self, entry: int) -> list[Span]:
        """Return spans, pinned to the listed version, that hold the ranges of the unit of an entry; see ``pieces``."""
        row, units = self.rows[entry], self.units
        of = self.objects.view[row]
        key, etag = self.keys.text(of), self.etags.text(of)
        merged: list[Span] = []
        for start, stop in units.ranges(units.rows.view[row]):
            if merged and start <= cast("int", merged[-1].stop) + _GAP_BYTES:
                merged[-1] = merged[-1]._replace(stop=stop)
            else:
                merged.append(Span(key, start, stop, etag))
        return merged

    def pieces(self, entry: int, found: Iterable[tuple[Span, bytes]]) -> list[UnitPiece]:
        """Return the ranges of the unit of an entry, given the result of ``spans`` with the bytes."""
        ranges = iter(self.units.ranges(self.units.rows.view[self.rows[entry]]))
        pieces: list[UnitPiece] = []
        for span, data in found:
            view, at = memoryview(data), 0
            while at < len(view) and (each := next(ranges, None)) is not None:
                at = each[1] - span.start
                pieces.append(UnitPiece(each[0], view[each[0] - span.start : at]))
        return pieces

    def fetched(self, entries: Sequence[int]) -> Iterator[Span]:
        """Yield the ranges of the units of some entries, each range once, in the order of the entries."""
        _, first = np.unique(self.of(np.asarray(entries, dtype=np.int64)), return_index=True)
        # Units may have ranges in common, such as a footer.
        found = (span for at in np.sort(first).tolist() for span in self.spans(entries[at]))
        return iter(dict.fromkeys(found))


def units_of(found: Sequence[Units], offsets: Sequence[NDArray[np.int64]]) -> UnitTable:
    """Return the units of several shards, given the numbers of the samples of each within their shard."""
    nothing = np.zeros(0, np.int64)
    columns: list[list[NDArray[np.int64]]] = [[nothing] for _ in UNIT_ROLES]
    units = ranges = 0
    for each, numbers in zip(found, offsets, strict=True):
        rows = np.searchsorted(each.firsts, numbers, side="right") - 1 + units
        for column, values in zip(columns, (rows, *each._replace(ends=each.ends + ranges)), strict=True):
            column.append(values)
        units, ranges = units + len(each.firsts), ranges + len(each.starts)
    return UnitTable.of([np.concatenate(each) for each in columns])
