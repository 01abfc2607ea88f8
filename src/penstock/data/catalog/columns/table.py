"""A table of entries: columns in memory that workers map, each in as few bytes as its values need.

``TableBuilder`` makes one row by row, without a Python object per row. ``vectors_of`` and ``table_of`` turn a table
into vectors of a file and back; nothing that a file declares is trusted.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.columns.column import (
    DTYPES,
    Column,
    Numbers,
    Packing,
    Strings,
    StringsBuilder,
    blocks,
    decode,
    joined,
    list_used,
    narrow_type,
    pack_narrow,
    taken,
)
from penstock.data.catalog.columns.compact import (
    IDS,
    SUMS,
    Affixed,
    Chosen,
    Compact,
    Derived,
    Digests,
    ETags,
    Even,
    Keys,
    Stepped,
    Versioned,
    compact,
    compact_etags,
    compact_keys,
    plus,
    take,
)
from penstock.data.catalog.columns.units import UNIT_ROLES, UnitTable
from penstock.data.region import Region
from penstock.engine.listing.names import Names
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.shards.format import ShardFormat
    from penstock.engine.listing.names import PackedEntries

    Parts = dict[tuple[str, str], dict[str, Numbers]]  # by role and name, then by part

RANGED_KEY_BYTES = 16 << 10  # limit for the key of an object with ranges; no store has longer keys


class Ranges(NamedTuple):
    """The object of each row, and the first byte of its range; -1 where the row is the whole object.

    For rows in units, the number of the row within its object.
    """

    objects: Numbers
    offsets: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Entries in mapped memory: sizes, columns of strings, and columns that only some catalogs have.

    Pickling it pickles its memory, so a worker maps the table (see ``Region``). Row numbers are not checked.

    Attributes:
        sizes: Bytes, -1 where unknown, as integers of the type that ``narrow_type`` chose.
        keys: One key per row; or, if rows are ranges, one per object.
        etags: The ETags of ``keys``.
        labels: The label of each row as JSON; empty without a label.
        ranges: The byte ranges of the rows; None when every row is a whole object.
        classes: The labels as codes of class names; None when labels are JSON, or there are none.
        columns: The user's columns, by name.
        format: The format of the shards that the ranges belong to; None when ranges are plain bytes.
        group: The other objects of each row's sample; None when each row is a separate sample.
        units: The units that the rows belong to; None when rows have bytes of their own.
    """

    sizes: Numbers
    keys: Keys
    etags: ETags
    labels: Compact
    ranges: Ranges | None = None
    classes: Column | None = None
    columns: dict[str, Column] = field(default_factory=dict)
    format: ShardFormat | None = None
    # A groups.Group, which holds tables: naming its type here would make a circle of imports.
    group: Any = None
    units: UnitTable | None = None

    @classmethod
    def of(
        cls, sizes: NDArray[np.int64], keys: Strings, etags: Strings, labels: Strings, ranges: Ranges | None = None
    ) -> Table:
        """Copy columns of any width into memory that workers map, in as few bytes as they need."""
        return cls(pack_narrow(sizes), compact_keys(keys), compact_etags(etags), compact(labels), ranges)

    @property
    def rows(self) -> int:
        return len(self.sizes)

    def object(self, row: int) -> int:
        """Return the index into ``keys`` and ``etags`` of an entry's object."""
        return row if self.ranges is None else int(self.ranges.objects.view[row])

    def objects(self, rows: Rows) -> Rows:
        """Return the indices into ``keys`` and ``etags`` of these entries' objects."""
        return rows if self.ranges is None else taken(self.ranges.objects.values, rows)

    def check(self) -> None:
        """Raise ValueError if the table, which came from a file, is inconsistent; takes about 5 ns per row.

        Rows are checked in slices, so that the memory needed meanwhile does not grow with the table.
        """
        for each in (self.keys, self.etags, self.labels):
            each.check()
        sizes, objects = self.sizes.values, len(self.keys)
        if sizes.dtype.kind not in "iu" or sizes.dtype == np.uint64 or sizes.min(initial=0) < -1:
            raise ValueError("invalid sizes")
        if len(self.etags) != objects or len(self.labels) != self.rows:
            raise ValueError("keys without an ETag, or rows without a label")
        if self.ranges is None and objects != self.rows:
            raise ValueError("keys of ranges without ranges")
        if self.ranges is not None:
            self._check_ranges(self.ranges, sizes)
        if self.units is not None:
            if self.ranges is None or self.ranges.offsets.values.min(initial=0) < 0:
                raise ValueError("units of whole objects")
            self.units.check(*(each.values for each in self.ranges))
        for column in (*self.columns.values(), *filter(None, [self.classes])):
            column.check(self.rows)
        if self.group is not None:
            self.group.check(self.rows)

    def _check_ranges(self, ranges: Ranges, sizes: NDArray[np.integer[Any]]) -> None:
        objects, offsets = (each.values for each in ranges)
        if objects.dtype.kind != "u" or offsets.dtype.kind not in "iu" or offsets.dtype == np.uint64:
            raise ValueError("ranges of another type")
        # Otherwise a small file could repeat a long key a million times.
        if any(self.keys.lengths(some).max() > RANGED_KEY_BYTES for some in blocks(range(len(self.keys)))):
            raise ValueError("ranges of an object whose key is too long")
        if {len(objects), len(offsets)} != {self.rows} or (len(objects) and objects.max() >= len(self.keys)):
            raise ValueError("ranges of unknown objects")
        outside = offsets.min(initial=0) < -1
        for rows in blocks(range(self.rows)):
            starts, lengths = (taken(each, rows).astype(np.int64) for each in (offsets, sizes))
            # The sum passes 2⁶³ only if it becomes negative.
            outside = outside or (((lengths < 0) | (starts + lengths < 0)) & (starts >= 0)).any()
        if outside:
            raise ValueError("ranges outside of all objects")

    def take(self, rows: Rows) -> Table:
        """Return a table with a copy of some rows, in their order; this table if they are all its rows."""
        if isinstance(rows, range) and rows == range(self.rows):
            return self
        keyed, ranges = rows, None
        if self.ranges is not None:
            keyed, numbers = list_used(taken(self.ranges.objects.values, rows), len(self.keys))
            ranges = ranges_of(numbers, taken(self.ranges.offsets.values, rows))
        keys = compact_keys(Chosen((self.keys, keyed)))
        return Table(
            pack_narrow(taken(self.sizes.values, rows)),
            keys,
            take(self.etags, keyed),
            compact(Chosen((self.labels, rows))),
            ranges,
            None if self.classes is None else self.classes.take(rows),
            {name: each.take(rows) for name, each in self.columns.items()},
            self.format,
            None if self.group is None else self.group.take(rows).beside(keys),
            None if self.units is None else self.units.take(rows),
        )

    def plus(self, other: Table) -> Table:
        """Return a table with a copy of the rows of both."""
        if self.format != other.format:
            raise Unusable("the catalogs are of shards of different formats, fields or keys: use ps.concat")
        if (self.group is None) != (other.group is None):
            raise Unusable("only one of the catalogs has samples of several objects: use ps.concat")
        columns, classes, ranges = _both_columns(self, other), _both_classes(self, other), None
        if self.ranges is not None or other.ranges is not None:
            first, second = (_as_ranges(each) for each in (self, other))
            total = len(self.keys) + len(other.keys)
            more = second[0].astype(np.min_scalar_type(max(total - 1, 0)))
            more += more.dtype.type(len(self.keys) if len(more) else 0)
            ranges = ranges_of(np.concatenate((first[0], more)), np.concatenate((first[1], second[1])))
        keys = compact_keys(Chosen((self.keys, range(len(self.keys))), (other.keys, range(len(other.keys)))))
        return Table(
            pack_narrow(np.concatenate([each.sizes.values for each in (self, other)])),
            keys,
            plus(self.etags, other.etags),
            compact(Chosen(*((each.labels, range(each.rows)) for each in (self, other)))),
            ranges,
            classes,
            columns,
            self.format,
            None if self.group is None else self.group.plus(other.group, (self.rows, other.rows)).beside(keys),
            None if self.units is None or other.units is None else self.units.plus(other.units),
        )

    def having(self, **changes: Any) -> Table:  # noqa: ANN401  fields
        """Return this table with changed fields, such as ``ranges`` or ``classes``, over the same memory."""
        return replace(self, **changes)


def ranges_of(objects: NDArray[np.integer[Any]], offsets: NDArray[np.integer[Any]]) -> Ranges:
    """Return ranges in the fewest bytes, given each range's object index and first byte."""
    small = np.min_scalar_type(int(objects.max(initial=0)))
    packing = Packing((small, len(objects)), (narrow_type(offsets), len(offsets)))
    packing.arrays[0][:], packing.arrays[1][:] = objects, offsets
    return Ranges(*packing.numbers())


def _as_ranges(table: Table) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    if table.ranges is None:
        return np.arange(table.rows, dtype=np.int64), np.full(table.rows, -1, np.int8)
    return table.ranges.objects.values, table.ranges.offsets.values


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
        raise Unusable("only one of the catalogs has classes: add classes to the other (with_labels)")
    return None


_ALIGN = 64  # alignment of vectors, for programs that map the file
_TYPES = {
    **dict.fromkeys(("numbers", "ends", "bounds", "cut"), "any"),
    "bases": "<u8",
    "texts": "|u1",
    "ending": "|u1",
    **dict.fromkeys(SUMS, "|u1"),
}
_TEXTS = {"numbers", "ends", "texts"}  # the parts of a column of texts


class Vector(NamedTuple):
    """A vector in a file.

    Attributes:
        role: "size", "key", "etag" or "label"; "object" (index of a row's key) or "offset" for ranges; "class" for
            labels; "column" for the user's columns; "place" for the rows of a field's objects; for units, those of
            ``UNIT_ROLES``.
        name: Name of the user's column; else "".
        part: "numbers"; or, for keys, ETags and labels, a name in ``parts`` of ``compact``, left out if
            the vector has no bytes. Columns of texts have codes as "numbers", and the "ends" (uint64) and the "texts"
            of their categories.
        dtype: numpy's type string, with byte order.
        offset: First byte, counted from the end of the header.
        bytes: Length in bytes.
    """

    role: str
    name: str
    part: str
    dtype: str
    offset: int
    bytes: int

    @property
    def stop(self) -> int:
        return self.offset + self.bytes


def vectors_of(table: Table, start: int = 0, places: Numbers | None = None) -> tuple[list[Vector], list[Numbers]]:
    """Return the vectors of a table without its group, and their values.

    ``start`` is the first free byte after the header; ``places`` are those of the objects of a field.
    """
    found: list[tuple[str, str, dict[str, Numbers]]] = [
        ("size", "", {"numbers": table.sizes}),
        ("key", "", table.keys.parts),
        ("etag", "", table.etags.parts),
        ("label", "", table.labels.parts),
    ]
    if table.ranges is not None:
        found += [("object", "", {"numbers": table.ranges.objects}), ("offset", "", {"numbers": table.ranges.offsets})]
    if table.units is not None:
        found += [(role, "", {"numbers": each}) for role, each in zip(UNIT_ROLES, table.units, strict=True)]
    found += [] if table.classes is None else [("class", "", table.classes.parts)]
    found += [("column", name, column.parts) for name, column in table.columns.items()]
    found += [] if places is None else [("place", "", {"numbers": places})]
    vectors, values = list[Vector](), list[Numbers]()
    for role, name, parts in found:
        for part, numbers in parts.items():
            array = numbers.values
            vectors.append(Vector(role, name, part, array.dtype.str, _round_up_offset(start), array.nbytes))
            values.append(numbers)
            start = vectors[-1].stop
    return vectors, values


def pad_vectors(vectors: list[Vector], values: list[Numbers]) -> Iterator[memoryview | bytes]:
    """Yield the bytes of the vectors, padded so that each begins at its offset."""
    at = 0
    for vector, numbers in zip(vectors, values, strict=True):
        yield bytes(vector.offset - at)
        yield numbers.values.view(np.uint8).data if len(numbers) else b""
        at = vector.stop


_NOTHING = Numbers(b"", "|u1", 0, 0)


def gather_regions(table: Table, *, anew: bool = False) -> Table:
    """Return a copy of a table in one region, which needs one descriptor; the table itself if it needs only one.

    With ``anew``, always a copy, without other contents of its region.
    """
    vectors, values = vectors_of(table)
    if not anew and len({id(each.region) for each in values if each.region is not None}) <= 1:
        return table
    region, rows, count, form = Region(vectors[-1].stop), table.rows, len(table.keys), table.format
    origin = table.keys.origin if isinstance(table.keys, Derived) else None
    group, keys = table.group, None if table.group is None else table.keys
    # A table without another user is freed vector by vector.
    del table
    for at, vector in enumerate(vectors):
        region.view[vector.offset : vector.stop] = values[at].values.view(np.uint8).data if vector.bytes else b""
        values[at] = _NOTHING
    found = table_of(parts_of(region, vectors), rows, count, origin)
    return found.having(format=form, group=None if group is None else group.moved(keys, found.keys))


def described(found: Iterable[dict[str, Any]], start: int = 0) -> list[Vector]:
    """Return the vectors that a header describes, which must follow each other from byte ``start`` on."""
    vectors = list[Vector]()
    for each in found:
        vector = Vector(**each)
        if vector.dtype not in DTYPES or type(vector.bytes) is not int or vector.bytes < 0:
            raise ValueError("a vector has an unknown type or an invalid length")
        if vector.offset != _round_up_offset(start) or vector.bytes % np.dtype(vector.dtype).itemsize:
            raise ValueError("the vectors do not follow one another")
        vectors.append(vector)
        start = vector.stop
    return vectors


def parts_of(region: Region, vectors: list[Vector]) -> Parts:
    parts: Parts = {}
    for each in vectors:
        if not isinstance(each.name, str):
            raise TypeError(f"the name of a vector must be a str, got {each.name!r}")
        known = parts.setdefault((each.role, each.name), {})
        if each.part in known or _TYPES.get(str(each.part).removeprefix(IDS), "") not in ("any", each.dtype):
            raise ValueError(f"a vector has an unknown part: {each.part!r}")
        known[each.part] = Numbers(region, each.dtype, each.offset, each.bytes // np.dtype(each.dtype).itemsize)
    return parts


def table_of(parts: Parts, rows: int, keys: int, origin: Keys | None = None) -> Table:
    """Return the table of these vectors, whose keys may derive from ``origin``; ``Table.check`` checks the values."""
    found = [parts.pop((role, ""), {}) for role in ("size", "key", "etag", "label")]
    sizes = _numbers(found[0])
    if not 0 <= keys <= rows == len(sizes):
        raise ValueError(f"{len(sizes)} sizes and {keys} keys for {rows} objects")
    named, versions, labels = _keys(found[1], keys, origin), _etags(found[2], keys), _strings(found[3], rows)
    table = Table(sizes, named, versions, labels, **_extras(parts))
    if len(table.keys) != keys:
        raise ValueError(f"{len(table.keys)} keys, but {keys} were written")
    return table


def _extras(parts: Parts) -> dict[str, Any]:
    """Return the optional fields of a table: its ranges, units, classes and columns."""
    extras: dict[str, Any] = {"columns": {}}
    ranges = [parts.pop((role, ""), {}) for role in ("object", "offset")]
    if any(ranges):
        extras["ranges"] = Ranges(*map(_numbers, ranges))
    units = [parts.pop((role, ""), {}) for role in UNIT_ROLES]
    if any(units):
        extras["units"] = UnitTable(*map(_numbers, units))
    for (role, name), known in parts.items():
        if role == "class" and not name and len(known) > 1:
            extras["classes"] = _column(known)
        elif role == "column":
            extras["columns"][name] = _column(known)
        else:
            raise ValueError(f"unexpected vector of {role!r} {name!r}")
    return extras


def _numbers(parts: dict[str, Numbers]) -> Numbers:
    if parts.keys() != {"numbers"}:
        raise ValueError(f"numbers cannot consist of {sorted(parts)}")
    return parts["numbers"]


def _keys(parts: dict[str, Numbers], count: int, origin: Keys | None) -> Keys:
    if parts.keys() == {"bases", "bounds", "texts"}:
        return Affixed(parts["bases"], parts["bounds"], parts["texts"])
    if "cut" not in parts:
        return _strings(parts, count)
    if origin is None or isinstance(origin, Derived) or parts.keys() - {"cut", "ending"}:
        raise ValueError(f"keys cannot consist of {sorted(parts)}")
    return Derived(origin, parts["cut"], parts.get("ending", _NOTHING))


def _strings(parts: dict[str, Numbers], count: int) -> Compact:
    if parts.keys() == {"bases", "ends", "texts"}:
        return Stepped(parts["bases"], parts["ends"], parts["texts"])
    if parts.keys() - {"texts"}:
        raise ValueError(f"strings cannot consist of {sorted(parts)}")
    return Even(parts.get("texts", _NOTHING), count)


def _etags(parts: dict[str, Numbers], count: int) -> ETags:
    if ids := {name.removeprefix(IDS): each for name, each in parts.items() if name.startswith(IDS)}:
        plain = {name: each for name, each in parts.items() if not name.startswith(IDS)}
        return Versioned(_plain_etags(plain, count), _strings(ids, count))
    return _plain_etags(parts, count)


def _plain_etags(parts: dict[str, Numbers], count: int) -> Compact | Digests:
    case = next((each for each in SUMS if each in parts), None)
    if case is None:
        return _strings(parts, count)
    endings = {name: numbers for name, numbers in parts.items() if name != case}
    if endings and endings.keys() != _TEXTS:
        raise ValueError(f"ETags cannot consist of {sorted(parts)}")
    return Digests(parts[case], case, _column(endings) if endings else None)


def _column(parts: dict[str, Numbers]) -> Column:
    if parts.keys() == {"numbers"}:
        return Column(parts["numbers"])
    if parts.keys() != _TEXTS or parts["ends"].values.dtype != np.uint64:
        raise ValueError(f"a column cannot consist of {sorted(parts)}")
    return Column(parts["numbers"], (parts["ends"], parts["texts"]))


def _round_up_offset(start: int) -> int:
    return -(-start // _ALIGN) * _ALIGN


_LIMIT = 1 << 63  # bytes: where int64 ends


class TableBuilder:
    """Builder of a table: 8 bytes of a size for each row, and its compressed strings, never a Python object."""

    __slots__ = ("_last", "_objects", "_offsets", "_sizes", "_strings")

    def __init__(self) -> None:
        self._sizes = array("q")
        self._strings: tuple[StringsBuilder, ...] = (StringsBuilder(), StringsBuilder(), StringsBuilder())
        # The object of each row, and the first byte of its range; None and empty until a row is a range.
        self._objects: array[int] | None = None
        self._offsets = array("q")
        self._last: tuple[bytes, str] | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, key: bytes, size: int, etag: str = "", label: object = None, offset: int = -1) -> None:
        """Append one row; consecutive ranges of the same object share its key and ETag."""
        try:
            text = b"" if label is None else json.dumps(label).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(f"the label of {decode(key)!r} is not a JSON value ({error}): use plain values") from error
        if offset < -1:
            raise Unusable(
                f"offset {offset} of {decode(key)!r}: a range begins at byte 0 or later; -1 is the whole object"
            )
        if offset >= 0 or self._objects is not None:
            self._range(key, size, etag, offset)
        else:
            self._object(key, etag)
        self._strings[2].add(text)
        self._sizes.append(size)

    def add_all(self, page: PackedEntries) -> None:
        """Append a page of a listing: whole objects without labels; the table must have no ranges."""
        self._strings[0].add_all(page.keys)
        self._strings[1].add_all(page.etags)
        self._strings[2].add_all(Names(page.keys.data[:0], np.zeros(len(page.keys) + 1, np.int64)))
        self._sizes.frombytes(page.sizes.tobytes())

    def _object(self, key: bytes, etag: str) -> None:
        self._strings[0].add(key)
        self._strings[1].add(etag.encode())

    def _range(self, key: bytes, size: int, etag: str, offset: int) -> None:
        if offset >= 0 and not 0 <= size < _LIMIT - offset:
            raise Unusable(f"a range of {decode(key)!r} from byte {offset} has size {size}: a range needs its length")
        if len(key) > RANGED_KEY_BYTES:
            raise Unusable(f"a key of a catalog with ranges may have {RANGED_KEY_BYTES} bytes, got {len(key)}")
        if self._objects is None:
            self._objects = array("Q", range(len(self)))
            self._offsets = array("q", [-1]) * len(self)
        if offset < 0 or (key, etag) != self._last:
            self._object(key, etag)
        self._last = (key, etag) if offset >= 0 else None
        self._objects.append(len(self._strings[0]) - 1)
        self._offsets.append(offset)

    def extend(self, other: TableBuilder) -> None:
        """Append all rows of ``other``, which must not be used afterwards; neither has ranges."""
        self._sizes.extend(other._sizes)
        for mine, theirs in zip(self._strings, other._strings, strict=True):
            mine.extend(theirs)

    def freeze(self) -> Table:
        """Return the table, copied into memory that workers map; the builder must not be used afterwards.

        Each column is dropped as soon as it was copied.
        """
        ranges, columns, sizes = None, [*self._strings], [self._sizes]
        if self._objects is not None:
            ranges = ranges_of(np.frombuffer(self._objects, np.uint64), np.frombuffer(self._offsets, np.int64))
        self._sizes, self._strings = array("q"), ()
        return gather_regions(
            Table(
                pack_narrow(np.frombuffer(sizes.pop(), np.int64)),
                compact_keys(columns.pop(0)),
                compact_etags(columns.pop(0)),
                compact(columns.pop(0)),
                ranges,
            )
        )
