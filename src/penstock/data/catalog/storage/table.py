"""A table of entries: columns in memory that workers map, each in as few bytes as its values need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.storage.column import Column, Numbers, joined, narrowest, pack, taken
from penstock.data.catalog.storage.compact import Compact, chained, compact
from penstock.data.catalog.storage.etags import ETags, compact_etags, plus, take
from penstock.errors import Unusable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.catalog.storage.column import Rows, Strings

__all__ = ["RANGED_KEY_BYTES", "Ranges", "Table", "ranges_of"]

RANGED_KEY_BYTES = 16 << 10  # limit for the key of an object with ranges; no store has longer keys


class Ranges(NamedTuple):
    """The object of each row, and the first byte of its range; -1 where the row is the whole object."""

    objects: Numbers
    offsets: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Entries in mapped memory: sizes, columns of strings, and columns that only some catalogs have.

    Pickling it pickles its memory, so a worker maps the table (see ``Region``). Row numbers are not checked.

    Attributes:
        sizes: Bytes, -1 where unknown, as integers of the type that ``narrowest`` chose.
        keys: One key per row; or, if rows are ranges, one per object.
        etags: The ETags of ``keys``.
        labels: The label of each row as JSON; empty without a label.
        ranges: The byte ranges of the rows; None when every row is a whole object.
        classes: The labels as codes of class names; None when labels are JSON, or there are none.
        columns: The user's columns, by name.

    """

    sizes: Numbers
    keys: Compact
    etags: ETags
    labels: Compact
    ranges: Ranges | None = None
    classes: Column | None = None
    columns: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def of(
        cls, sizes: NDArray[np.int64], keys: Strings, etags: Strings, labels: Strings, ranges: Ranges | None = None
    ) -> Table:
        """Copy columns of any width into memory that workers map, in as few bytes as they need."""
        named, versioned, labelled = (each.joined(range(len(each))) for each in (keys, etags, labels))
        return cls(_sizes(sizes), compact(*named), compact_etags(*versioned), compact(*labelled), ranges)

    @property
    def rows(self) -> int:
        """The number of entries."""
        return len(self.sizes)

    def object(self, row: int) -> int:
        """Return the index into ``keys`` and ``etags`` of an entry's object."""
        return row if self.ranges is None else int(self.ranges.objects.view[row])

    def objects(self, rows: Rows) -> Rows:
        """Return the indices into ``keys`` and ``etags`` of these entries' objects."""
        return rows if self.ranges is None else taken(self.ranges.objects.values, rows)

    def check(self) -> None:
        """Raise ValueError if the table, which came from a file, is inconsistent; takes about 10 ns per row."""
        for each in (self.keys, self.etags, self.labels):
            each.check()
        sizes, objects = self.sizes.values, len(self.keys)
        if sizes.dtype.kind not in "iu" or sizes.dtype == np.uint64 or (sizes < -1).any():
            raise ValueError("sizes that are none")
        if len(self.etags) != objects or len(self.labels) != self.rows:
            raise ValueError("keys without an ETag, or rows without a label")
        if self.ranges is None and objects != self.rows:
            raise ValueError("keys of ranges, and no ranges")
        if self.ranges is not None:
            self._check_ranges(self.ranges, sizes.astype(np.int64))
        for column in (*self.columns.values(), *filter(None, [self.classes])):
            column.check(self.rows)

    def _check_ranges(self, ranges: Ranges, sizes: NDArray[np.int64]) -> None:
        objects, offsets = (each.values for each in ranges)
        if objects.dtype.kind != "u" or offsets.dtype.kind not in "iu" or offsets.dtype == np.uint64:
            raise ValueError("ranges of another type")
        starts, stops = self.keys.bounds(range(len(self.keys)))
        # Otherwise a small file could repeat a long key a million times.
        if (stops - starts).max(initial=0) > RANGED_KEY_BYTES:
            raise ValueError("ranges of an object with a longer key than any")
        if {len(objects), len(offsets)} != {self.rows} or (objects >= len(self.keys)).any():
            raise ValueError("ranges of objects that are not there")
        ranged = offsets >= 0
        if (offsets < -1).any() or (sizes[ranged] < 0).any() or ((offsets + sizes)[ranged] < 0).any():
            raise ValueError("ranges that lie outside of every object")

    def take(self, rows: Rows) -> Table:
        """Return a table with a copy of some rows, in their order; this table if they are all its rows."""
        if isinstance(rows, range) and rows == range(self.rows):
            return self
        keyed, ranges = rows, None
        if self.ranges is not None:
            keyed, numbers = np.unique(self.objects(rows), return_inverse=True)
            ranges = ranges_of(numbers, taken(self.ranges.offsets.values, rows))
        return Table(
            _sizes(taken(self.sizes.values, rows)),
            compact(*self.keys.joined(keyed)),
            take(self.etags, keyed),
            compact(*self.labels.joined(rows)),
            ranges,
            None if self.classes is None else self.classes.take(rows),
            {name: each.take(rows) for name, each in self.columns.items()},
        )

    def plus(self, other: Table) -> Table:
        """Return a table with a copy of the rows of both.

        Raises:
            Unusable: Only one table has classes, or a column; or the types of a column do not match.

        """
        columns, classes, ranges = _both_columns(self, other), _both_classes(self, other), None
        if self.ranges is not None or other.ranges is not None:
            first, second = (_as_ranges(each) for each in (self, other))
            ranges = ranges_of(
                np.concatenate((first[0], second[0] + len(self.keys))), np.concatenate((first[1], second[1]))
            )
        return Table(
            _sizes(np.concatenate([each.sizes.values.astype(np.int64) for each in (self, other)])),
            compact(*chained(self.keys, other.keys)),
            plus(self.etags, other.etags),
            compact(*chained(self.labels, other.labels)),
            ranges,
            classes,
            columns,
        )

    def having(self, **changes: Any) -> Table:  # noqa: ANN401  fields
        """Return this table with other ``ranges``, ``classes`` or ``columns``, over the same memory."""
        return replace(self, **changes)


def _sizes(sizes: NDArray[np.integer[Any]]) -> Numbers:
    return pack([narrowest(sizes)])[0]


def ranges_of(objects: NDArray[np.integer[Any]], offsets: NDArray[np.integer[Any]]) -> Ranges:
    """Return ranges, given the index of each one's object and its first byte, in as few bytes as these need."""
    small = np.min_scalar_type(int(objects.max(initial=0)))
    return Ranges(*pack([objects.astype(small), narrowest(offsets)]))


def _as_ranges(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if table.ranges is None:
        return np.arange(table.rows, dtype=np.int64), np.full(table.rows, -1)
    return table.ranges.objects.values.astype(np.int64), table.ranges.offsets.values.astype(np.int64)


def _both_columns(first: Table, second: Table) -> dict[str, Column]:
    if odd := sorted(first.columns.keys() ^ second.columns.keys()):
        raise Unusable(
            f"only one of the catalogs has the columns {', '.join(odd)}: add them to the other (with_columns)"
        )
    return {name: joined(name, column, second.columns[name]) for name, column in first.columns.items()}


def _both_classes(first: Table, second: Table) -> Column | None:
    if first.classes is not None and second.classes is not None:
        return joined("label", first.classes, second.classes)
    if first.classes is not None or second.classes is not None:
        raise Unusable("only one of the catalogs has classes: give the other some, too (with_labels)")
    return None
