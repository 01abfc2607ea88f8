"""The view of a table that a catalog shows: entries in a fixed order, with labels, columns and byte spans."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.data.catalog.columns.column import encode, taken
from penstock.data.catalog.columns.compact import Derived, Versioned
from penstock.data.catalog.columns.units import UnitRows
from penstock.data.catalog.comparison import fingerprint_rows
from penstock.data.catalog.groups import key_of
from penstock.data.catalog.labels import label_of
from penstock.data.catalog.rows import entry_of, span_of
from penstock.data.catalog.saved import Saved, digest_of, version_of_saved
from penstock.display import counted, panel, size, table
from penstock.errors import Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Categorical, Rows
    from penstock.data.catalog.columns.table import Table
    from penstock.data.catalog.groups import FieldGroup, FieldObjects
    from penstock.data.catalog.rows import Entry, Picked
    from penstock.data.shards.format import ShardFormat

_new = tuple.__new__
_TEXTS = 1 << 12  # objects whose texts are kept
_SHOWN = 5  # entries, classes and columns in a notebook
# Most bytes between two ranges of one request, which are read and dropped: a second request costs more.
GAP_BYTES = 64 << 10
_SLICE = 1 << 15  # entries that are handled together


def _derivation(first: FieldObjects, part: FieldObjects) -> Callable[[str], str] | None:
    """Return the function from a key of ``first`` to the key of ``part`` in the same row, if one exists."""
    keys = part.table.keys
    return keys.text_beside if isinstance(keys, Derived) and keys.origin is first.table.keys else None


class Contents:
    """Rows of a table in a fixed order, as a catalog shows them: no method here makes a request."""

    def __init__(self, root: str, base: str, table: Table, rows: range | Picked | None = None) -> None:
        self.root = root
        self.base = base
        self._table = table
        self._rows = range(table.rows) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names by label; () without classes. A part of a catalog keeps the classes of the whole."""
        return () if self._table.classes is None else self._table.classes.categories

    @property
    def labels(self) -> NDArray[np.int64]:
        """The labels as class numbers: int64, shape (len,), a copy.

        Raises:
            Unusable: The catalog has no classes.
        """
        if self._table.classes is None:
            raise Unusable('this catalog has no classes: scan(…, labels="folder"), or with_labels(…)')
        return taken(self._table.classes.numbers.values, self._indices).astype(np.int64)

    @property
    def columns(self) -> Mapping[str, NDArray[Any] | Categorical]:
        """The user's columns by name: arrays of numbers or ``Categorical``, of length ``len(self)``; read-only."""
        return {name: column.seen(self._indices) for name, column in self._table.columns.items()}

    def row(self, index: int) -> dict[str, Any]:
        """Return one entry's values of the user's columns, as Python objects."""
        table = self._table
        return (
            {name: column.value(self._rows[index]) for name, column in table.columns.items()} if table.columns else {}
        )

    @property
    def _indices(self) -> Rows:
        """The rows in a form that can index arrays: a range, or an array of row numbers."""
        return self._rows if isinstance(self._rows, range) else self._rows.values

    def __iter__(self) -> Iterator[Entry]:
        return (entry_of(self._table, row) for row in self._rows)

    def __repr__(self) -> str:
        if self.fields:
            held = f"{counted(len(self), 'sample')} of {', '.join(self.fields)}"
        elif self._table.format is not None:
            shards = counted(len(self._table.keys), f"{self._table.format.name} shard")
            held = f"{counted(len(self), 'sample')} in {shards}"
        else:
            held = counted(len(self), "object")
        return f"<Catalog of {held} under {self.root}{self.base}>"

    def _repr_html_(self) -> str:
        total, names = self.total_bytes, self.classes
        rows: list[tuple[str, object]] = [("bytes", "unknown" if total < 0 else size(total))]
        for title, values in (("classes", names), ("columns", (*self._table.columns,))):
            if values:
                more = ", …" if len(values) > _SHOWN else ""
                rows.append((title, f"{len(values):,}: {', '.join(values[:_SHOWN])}{more}"))
        first = []
        for index in range(min(_SHOWN, len(self))):
            entry, label = entry_of(self._table, self._rows[index]), self.label(index)
            name = self.key(index) if self.fields else entry.key[len(self.base) :]
            shown = names[label] if names and isinstance(label, int) else "" if label is None else label
            first.append((name, "" if entry.size < 0 else size(entry.size), shown))
        head = ("first samples", "bytes", "label")
        return panel(repr(self)[1:-1], table(rows), table(first, head, align="lrl") if first else "")

    def span(self, index: int) -> Span:
        """Return the byte span of one entry, pinned to the listed version; an unknown size gives ``stop`` None.

        Called once per sample; takes about 1 µs. Of a sample in a unit, the span that covers the unit.
        """
        return span_of(self._table, self._rows[index])

    def spans(self, indices: Iterable[int], texts: dict[int, tuple[str, str]] | None = None) -> Iterator[Span]:
        """Yield ``span`` of each entry; the columns are looked up only once.

        ``texts`` keeps keys and ETags of ranged objects from one call to the next.
        """
        rows, table = self._rows, self._table
        sizes, key, etag = table.sizes.view, table.keys.text, table.etags.text
        if table.units is not None:
            yield from map(self.span, indices)
            return
        if table.ranges is not None:
            objects, offsets = table.ranges.objects.view, table.ranges.offsets.view
            texts = {} if texts is None else texts
            for index in indices:
                row = rows[index]
                start, of = offsets[row], objects[row]
                if start < 0:
                    yield self.span(index)
                    continue
                found = texts.get(of)
                if found is None:
                    if len(texts) >= _TEXTS:
                        texts.clear()
                    found = texts[of] = key(of), etag(of)
                yield _new(Span, (found[0], start, start + sizes[row], found[1], False, 0, None))
            return
        for index in indices:
            row = rows[index]
            size = sizes[row]
            # Build the tuple directly: calling the class runs a Python function.
            yield _new(Span, (key(row), 0, size if size >= 0 else None, etag(row), True, 0, None))

    @property
    def units(self) -> UnitRows | None:
        """The units of the samples; None if each entry has separate bytes."""
        table = self._table
        if table.units is None or table.ranges is None:
            return None
        return UnitRows(table.units, *table.ranges, table.keys, table.etags, self._indices)

    def fetched(self) -> Iterator[Span]:
        """Yield the byte spans that reading all entries takes, each range of a unit once."""
        units, entries = self.units, range(len(self))
        return self.spans(entries) if units is None else units.fetched(entries)

    @cached_property
    def unlabelled(self) -> bool:
        """Whether the entries have neither labels nor values of the user's columns."""
        table = self._table
        return table.classes is None and not table.columns and not table.labels.parts

    @cached_property
    def bare(self) -> bool:
        """Whether the entries are single, and have neither labels nor values of the user's columns."""
        return self.unlabelled and self._table.group is None

    @cached_property
    def plain(self) -> bool:
        """Whether the entries are bare, and objects or plain bytes of these."""
        return self.bare and self._table.format is None

    @cached_property
    def format(self) -> ShardFormat | None:
        """The format of the shards that hold the samples; None if each entry is an object, or plain bytes of one."""
        return self._table.format

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, if several objects make one sample; () if each sample is one object or range."""
        group: FieldGroup | None = self._table.group
        return () if group is None else group.fields

    @cached_property
    def parts(self) -> tuple[FieldObjects, ...]:
        """The objects of each field, in order; () without fields."""
        group: FieldGroup | None = self._table.group
        return () if group is None else group.all(self.root, self.base, self._table)

    @cached_property
    def homes(self) -> tuple[tuple[str, str, ShardFormat | None], ...]:
        """The name of each field, the URL of its bucket, and the format of its shards (None: objects), in order."""
        return tuple((field, part.root, part.table.format) for field, part in zip(self.fields, self.parts, strict=True))

    def members(self, indices: Iterable[int]) -> Iterator[tuple[Span | None, ...]]:
        """Yield the byte spans of each sample's objects, in the order of ``fields``; None for a missing one."""
        rows, parts = self._rows, self.parts
        if any(part.places is not None or part.table.ranges is not None for part in parts):
            for index in indices:
                row = rows[index]
                yield tuple([part.span(row) for part in parts])
            return
        columns = [
            (each.table.sizes.view, each.table.keys.text, _derivation(parts[0], each), each.table.etags.text)
            for each in parts
        ]
        for index in indices:
            row, spans, first = rows[index], [], ""
            for sizes, key, derived, etag in columns:
                size = sizes[row]
                name = key(row) if derived is None else derived(first)
                first = first or name
                spans.append(_new(Span, (name, 0, size if size >= 0 else None, etag(row), True, 0, None)))
            yield tuple(spans)

    def key(self, index: int) -> str:
        """Return the key of a sample of several objects: its group's key, below ``base``."""
        table, row = self._table, self._rows[index]
        of = row if table.ranges is None else table.object(row)
        return self.group_key(table.keys.text(of))

    def group_key(self, first: str) -> str:
        """Return the key of the sample of several objects whose first one has the full key ``first``."""
        name, group = first[len(self.base) :], self._table.group
        return (group is not None and group.rule and key_of(group.rule)(name)) or name

    def label(self, index: int) -> object:
        """Return one entry's label."""
        return label_of(self._table, self._rows[index])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each entry, -1 where unknown: int64, shape (len,), a read-only copy; about 1 ns per object.

        For samples of several objects, the bytes of all of them together.
        """
        table = self._table
        if table.group is not None:
            sizes: NDArray[np.int64] = table.group.sizes(table, self._indices)
        else:
            sizes = taken(table.sizes.values, self._indices).astype(np.int64)
        sizes.flags.writeable = False
        return sizes

    def extents(self, entries: range) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the locations of entries: object number, first byte (-1: the whole object), and bytes; all int64.

        None if every entry of the catalog is a whole object, consists of several, or is in a unit.
        """
        ranges = self._table.ranges
        if ranges is None or self._table.group is not None or self._table.units is not None:
            return None
        rows = self._rows[entries.start : entries.stop]
        found = [
            taken(each.values, rows if isinstance(rows, range) else rows.values).astype(np.int64)
            for each in (ranges.objects, ranges.offsets, self._table.sizes)
        ]
        return found[0], found[1], found[2]

    def offsets(self, first: int, stop: int) -> NDArray[np.integer[Any]]:
        """Return the first byte of each of some entries, where ``extents`` is not None; not copied if that can be."""
        ranges, rows = self._table.ranges, self._rows[first:stop]
        if ranges is None:
            raise Unusable("the samples of the catalog must be ranges of objects, got whole objects")
        return taken(ranges.offsets.values, rows if isinstance(rows, range) else rows.values)

    @cached_property
    def stretches(self) -> NDArray[np.int64]:
        """The first entry of each stretch of ranges of one object that follow one another, and the number of entries.

        A stretch ends where a range overlaps the one before, or begins more than ``GAP_BYTES`` after it. A whole object
        is a stretch by itself. Computed once, at about 10 ns an entry, where ``extents`` is not None.
        """
        total, found = len(self), [np.zeros(min(1, len(self)), np.int64)]
        for first in range(0, total, _SLICE):
            # One entry more than needed, which the next slice begins with.
            extents = self.extents(range(first, min(total, first + _SLICE + 1)))
            objects, offsets, sizes = cast("tuple[NDArray[np.int64], ...]", extents)
            stops = offsets + sizes
            apart = (objects[1:] != objects[:-1]) | (offsets[1:] < stops[:-1]) | (offsets[1:] > stops[:-1] + GAP_BYTES)
            apart |= (offsets[1:] < 0) | (offsets[:-1] < 0)
            found.append(np.flatnonzero(apart) + first + 1)
        return np.append(np.concatenate(found), total)

    @property
    def total_bytes(self) -> int:
        """Bytes of all entries together; -1 when any size is unknown."""
        sizes = self.sizes
        if (sizes < 0).any():
            return -1
        return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())  # the sum may pass 2⁶³

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the names below ``base`` and the sizes, in order.

        The location and the ETags are not included, so a copy of the objects elsewhere has the same digest. The digest
        is computed once, at about 0.1 µs per object, and pickled with the catalog.
        """
        return digest_of(self._table, self._indices, encode(self.base))

    @property
    def versioned(self) -> bool:
        """Whether version ids are recorded (``Catalog.scan(versions=True)``), of any field's objects.

        Reads then ask for these versions, and have the bytes of then although objects are replaced or deleted.
        """
        tables = [part.table for part in self.parts] if self.fields else [self._table]
        return any(isinstance(each.etags, Versioned) for each in tables)

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the SHA-256, in hex, of ``digest`` and the ETags, in order: which versions these are.

        Recorded version ids are included; the location, labels and columns are not. If ETags are missing, the text ends
        with their number: ``(12 of 600 without ETag)``. Computed once, at about 0.2 µs per object, and pickled.
        """
        return fingerprint_rows(self._table, self._indices, self.base, self.digest)

    @property
    def version(self) -> str:
        """SHA-256, in hex, of all that ``save`` writes: places, names, sizes, ETags, labels and columns, in order.

        Unlike ``digest``, it changes when an object is replaced, or a label. Costs 0.1 s for a million objects.
        """
        return version_of_saved(self._saved())

    def _saved(self) -> Saved:
        return Saved(self.root, self.base, self.digest, self._table.take(self._indices))
