"""How a table of entries lies in one region of memory: sizes and offsets first, then the strings end to end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.catalog.storage.column import Column, Numbers, joined, pack
from penstock.catalog.storage.region import Region
from penstock.catalog.storage.strings import Strings, taken
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.catalog.storage.strings import Rows

__all__ = ["Ranges", "Shape", "Table", "column_bytes", "layout", "ranges_of", "shape_of"]

_WORD = 8


class Shape(NamedTuple):
    """All that reading a region takes: rows, bytes of each column of strings (0: left out), and objects.

    ``objects`` is how many keys and ETags there are: -1 for one of each row, else rows are ranges of them.
    """

    rows: int
    keys: int
    etags: int
    labels: int
    objects: int = -1

    @property
    def size_bytes(self) -> int:
        """All columns together."""
        return sum(column_bytes(self))


def shape_of(rows: int, strings: list[int], objects: int) -> Shape:
    """Return the shape of ``rows`` with these bytes of keys, ETags and labels; ``objects`` as in ``Shape``."""
    keys, etags, labels = strings
    return Shape(rows, keys, etags, labels, objects)


def layout(shape: Shape) -> list[dict[str, Any]]:
    """Say of each column, in order, its name, numpy's name of its type (byte order included), its offset and length."""
    names = ("sizes", "key_ends", "etag_ends", "label_ends", "keys", "etags", "labels")
    types = [np.dtype(each).str for each in (np.int64, *3 * (np.uint64,), *3 * (np.uint8,))]
    lengths = column_bytes(shape)
    starts = itertools.accumulate(lengths, initial=0)
    return [
        {"name": name, "dtype": dtype, "offset": start, "bytes": length}
        for name, dtype, start, length in zip(names, types, starts, lengths, strict=False)  # starts end with the whole
    ]


def column_bytes(shape: Shape) -> tuple[int, ...]:
    """Bytes of: sizes, then the offsets of keys, etags, labels, then their strings. Words first keeps them aligned."""
    strings = shape[1:4]
    objects = shape.rows if shape.objects < 0 else shape.objects
    counts = (objects, objects, shape.rows)
    ends = (_WORD * (count + 1) if length else 0 for count, length in zip(counts, strings, strict=True))
    return (_WORD * shape.rows, *ends, *strings)


class Ranges(NamedTuple):
    """Which object each row is a range of, and the range's first byte; -1 where the row is the whole object."""

    objects: Numbers
    offsets: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Entries as mapped: ``sizes`` (int64, -1 unknown), columns of strings, and what only some catalogs have.

    It pickles as its memory does, so a worker maps it. Nothing here checks a row number.

    Attributes:
        region: Where the first columns lie.
        shape: How they lie there.
        ranges: Of rows that are byte ranges of objects; None when every row is a whole object.
        classes: The labels as codes of class names; None when labels are JSON, or there are none.
        columns: The user's, by name.

    """

    region: Region
    shape: Shape
    ranges: Ranges | None = None
    classes: Column | None = None
    columns: dict[str, Column] = field(default_factory=dict)
    sizes: memoryview = field(init=False)
    keys: Strings = field(init=False)
    etags: Strings = field(init=False)
    labels: Strings = field(init=False)

    def __post_init__(self) -> None:
        """Look at a region that ``TableBuilder.freeze`` has filled."""
        lengths = column_bytes(self.shape)
        stops = list(itertools.accumulate(lengths))
        view = self.region.view.toreadonly()
        sizes, *rest = (view[stop - length : stop] for length, stop in zip(lengths, stops, strict=True))
        object.__setattr__(self, "sizes", sizes.cast("q"))
        for i, name in enumerate(("keys", "etags", "labels")):
            object.__setattr__(self, name, Strings(rest[i + 3], rest[i].cast("Q")))

    @property
    def rows(self) -> int:
        """How many entries there are."""
        return self.shape.rows

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Any, ...]]:
        """Travel as the memory does."""
        return Table, (self.region, self.shape, self.ranges, self.classes, self.columns)

    def object(self, row: int) -> int:
        """Return the row of ``keys`` and ``etags`` that an entry's are."""
        return row if self.ranges is None else int(self.ranges.objects.view[row])

    def objects(self, rows: Rows) -> Rows:
        """Return the rows of ``keys`` and ``etags`` that these entries' are."""
        return rows if self.ranges is None else taken(self.ranges.objects.values, rows)

    def check(self) -> None:
        """Raise ValueError where the table contradicts itself: it came from elsewhere. About 10 ns per row."""
        for strings in (self.keys, self.etags, self.labels):
            strings.check()
        sizes = np.frombuffer(self.sizes, np.int64)
        if (sizes < -1).any():
            raise ValueError("sizes below nothing")
        if (self.ranges is None) != (self.shape.objects < 0):
            raise ValueError("keys of ranges, and no ranges")
        if self.ranges is not None:
            objects, offsets = (each.values for each in self.ranges)
            if objects.dtype.kind != "u" or offsets.dtype != np.int64:
                raise ValueError("ranges of another type")
            if {len(objects), len(offsets)} != {self.rows} or (objects >= self.shape.objects).any():
                raise ValueError("ranges of objects that are not there")
            ranged = offsets >= 0
            if (offsets < -1).any() or (sizes[ranged] < 0).any() or ((offsets + sizes)[ranged] < 0).any():
                raise ValueError("ranges that lie outside of every object")
        for column in (*self.columns.values(), *filter(None, [self.classes])):
            column.check(self.rows)

    def take(self, rows: Rows) -> Table:
        """Copy some rows, in their order, into a table of their own; itself when they are all."""
        if isinstance(rows, range) and rows == range(self.rows):
            return self
        keyed, ranges, count = rows, None, -1
        if self.ranges is not None:
            keyed, numbers = np.unique(self.objects(rows), return_inverse=True)
            ranges, count = ranges_of(numbers, taken(self.ranges.offsets.values, rows)), len(keyed)
        strings = ((self.keys, keyed), (self.etags, keyed), (self.labels, rows))
        ends = [each.ends(of) for each, of in strings]
        shape = shape_of(len(rows), [int(each[-1]) if len(each) else 0 for each in ends], count)
        region = Region(shape.size_bytes)
        start = _write(region, [taken(np.frombuffer(self.sizes, np.int64), rows), *ends])
        for (each, of), length in zip(strings, shape[1:4], strict=True):
            each.gather(of, region.view[start : start + length])
            start += length
        classes = None if self.classes is None else self.classes.take(rows)
        return Table(region, shape, ranges, classes, {name: each.take(rows) for name, each in self.columns.items()})

    def plus(self, other: Table) -> Table:
        """Copy the rows of both into one table.

        Raises:
            Unusable: Only one has classes, or a column; or a column's types do not fit.

        """
        columns, classes = _both_columns(self, other), _both_classes(self, other)
        ranges, counts = None, [_count(each) for each in (self, other)]
        if self.ranges is not None or other.ranges is not None:
            first, second = (_as_ranges(each) for each in (self, other))
            ranges = ranges_of(
                np.concatenate((first[0], second[0] + np.uint64(counts[0]))), np.concatenate((first[1], second[1]))
            )
        pairs = [(self.keys, other.keys), (self.etags, other.etags), (self.labels, other.labels)]
        rows = [counts, counts, [self.rows, other.rows]]
        whole = [
            [each.joined(range(n)) for each, n in zip(pair, of, strict=True)]
            for pair, of in zip(pairs, rows, strict=True)
        ]
        sizes = np.concatenate([np.frombuffer(each.sizes, np.int64) for each in (self, other)])
        lengths = [len(one[1]) + len(two[1]) for one, two in whole]
        ends = [
            np.concatenate((one[0], two[0][1:] + one[0][-1])) if length else np.zeros(0, np.int64)
            for (one, two), length in zip(whole, lengths, strict=True)
        ]
        shape = shape_of(len(sizes), lengths, -1 if ranges is None else sum(counts))
        region = Region(shape.size_bytes)
        _write(region, [sizes, *ends, *(part for both in whole for _, part in both)])
        return Table(region, shape, ranges, classes, columns)

    def having(self, **changes: Any) -> Table:  # noqa: ANN401  fields
        """Return this table with other ``ranges``, ``classes`` or ``columns``, over the same memory."""
        return replace(self, **changes)


def _count(table: Table) -> int:
    return table.rows if table.shape.objects < 0 else table.shape.objects


def ranges_of(objects: NDArray[Any], offsets: NDArray[Any]) -> Ranges:
    """Return ranges with the number of each one's object and its first byte, in as few bytes as the numbers take."""
    small = np.uint32 if len(objects) < 1 << 32 else np.uint64
    return Ranges(*pack([objects.astype(small), offsets.astype(np.int64)]))


def _as_ranges(table: Table) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    if table.ranges is None:
        return np.arange(table.rows, dtype=np.uint64), np.full(table.rows, -1)
    return table.ranges.objects.values.astype(np.uint64), table.ranges.offsets.values


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


def _write(region: Region, words: list[NDArray[Any]]) -> int:
    """Write arrays end to end; returns where the last of them ends."""
    start = 0
    for each in words:
        region.view[start : start + each.nbytes] = np.ascontiguousarray(each).view(np.uint8).data
        start += each.nbytes
    return start
