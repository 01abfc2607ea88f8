"""Tables as vectors in a file, each with a description; nothing that a file declares is trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.storage.column import DTYPES, Column, Numbers
from penstock.data.catalog.storage.compact import Compact, Even, Stepped
from penstock.data.catalog.storage.etags import SUMS, Digests, ETags
from penstock.data.catalog.storage.region import Region
from penstock.data.catalog.storage.table import Ranges, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Parts = dict[tuple[str, str], dict[str, Numbers]]  # by role and name, then by part

__all__ = ["Vector", "described", "gathered", "padded", "parts_of", "table_of", "vectors_of"]

_ALIGN = 64  # alignment of vectors, for programs that map the file
_TYPES = {"numbers": "any", "ends": "any", "bases": "<u8", "texts": "|u1", **dict.fromkeys(SUMS, "|u1")}
_TEXTS = {"numbers", "ends", "texts"}  # the parts of a column of texts


class Vector(NamedTuple):
    """A vector in a file.

    Attributes:
        role: "size", "key", "etag" or "label"; "object" (index of a row's key) or "offset" for ranges; "class" for
            labels; "column" for the user's columns.
        name: Name of the user's column; else "".
        part: "numbers"; or, for keys, ETags and labels, a name in ``parts`` of ``compact`` and ``etags``, left out if
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
        """The end of the vector, counted as ``offset``."""
        return self.offset + self.bytes


def vectors_of(table: Table) -> tuple[list[Vector], list[Numbers]]:
    """Return the descriptions of a table's vectors, with their places in a file, and their values."""
    found: list[tuple[str, str, dict[str, Numbers]]] = [
        ("size", "", {"numbers": table.sizes}),
        ("key", "", table.keys.parts),
        ("etag", "", table.etags.parts),
        ("label", "", table.labels.parts),
    ]
    if table.ranges is not None:
        found += [("object", "", {"numbers": table.ranges.objects}), ("offset", "", {"numbers": table.ranges.offsets})]
    found += [] if table.classes is None else [("class", "", table.classes.parts)]
    found += [("column", name, column.parts) for name, column in table.columns.items()]
    vectors, values, start = list[Vector](), list[Numbers](), 0
    for role, name, parts in found:
        for part, numbers in parts.items():
            array = numbers.values
            vectors.append(Vector(role, name, part, array.dtype.str, _aligned(start), array.nbytes))
            values.append(numbers)
            start = vectors[-1].stop
    return vectors, values


def padded(vectors: list[Vector], values: list[Numbers]) -> Iterator[memoryview | bytes]:
    """Yield the bytes of the vectors, padded so that each begins at its offset."""
    at = 0
    for vector, numbers in zip(vectors, values, strict=True):
        yield bytes(vector.offset - at)
        yield numbers.values.view(np.uint8).data if len(numbers) else b""
        at = vector.stop


def gathered(table: Table) -> Table:
    """Return a copy of a table in one region, which needs one descriptor; the table itself if it needs no more."""
    vectors, values = vectors_of(table)
    if len({id(each.region) for each in values if each.region is not None}) <= 1:
        return table
    region = Region(vectors[-1].stop)
    for vector, numbers in zip(vectors, values, strict=True):
        if len(numbers):
            region.view[vector.offset : vector.stop] = numbers.values.view(np.uint8).data
    return table_of(parts_of(region, vectors), table.rows, len(table.keys))


def described(found: Iterable[dict[str, Any]]) -> list[Vector]:
    """Return the vectors that a header describes, which must lie one after another.

    Raises:
        TypeError, ValueError: They do not, or a description is invalid.

    """
    vectors, start = list[Vector](), 0
    for each in found:
        vector = Vector(**each)
        if vector.dtype not in DTYPES or type(vector.bytes) is not int or vector.bytes < 0:
            raise ValueError("a vector of no such type or length")
        if vector.offset != _aligned(start) or vector.bytes % np.dtype(vector.dtype).itemsize:
            raise ValueError("its vectors do not lie as they should")
        vectors.append(vector)
        start = vector.stop
    return vectors


def parts_of(region: Region, vectors: list[Vector]) -> Parts:
    """Return the vectors by role and name.

    Raises:
        TypeError, ValueError: A vector occurs twice, or its type does not match its part.

    """
    parts: Parts = {}
    for each in vectors:
        if not isinstance(each.name, str):
            raise TypeError(f"{each.name!r} is no string")
        known = parts.setdefault((each.role, each.name), {})
        if each.part in known or _TYPES.get(each.part, "") not in ("any", each.dtype):
            raise ValueError(f"a vector {each.part!r} that does not belong there")
        known[each.part] = Numbers(region, each.dtype, each.offset, each.bytes // np.dtype(each.dtype).itemsize)
    return parts


def table_of(parts: Parts, rows: int, keys: int) -> Table:
    """Return the table of these vectors, with ``rows`` rows and ``keys`` keys; ``Table.check`` checks the values.

    Raises:
        ValueError: The vectors do not form such a table.

    """
    found = [parts.pop((role, ""), {}) for role in ("size", "key", "etag", "label")]
    sizes = _numbers(found[0])
    if not 0 <= keys <= rows == len(sizes):
        raise ValueError(f"{len(sizes)} sizes and {keys} keys of {rows} objects")
    table = Table(sizes, _strings(found[1], keys), _etags(found[2], keys), _strings(found[3], rows), **_extras(parts))
    if len(table.keys) != keys:
        raise ValueError(f"{len(table.keys)} keys, where {keys} were written")
    return table


def _extras(parts: Parts) -> dict[str, Any]:
    """Return the optional fields of a table: its ranges, classes and columns.

    Raises:
        ValueError: A vector belongs to none of these.

    """
    extras: dict[str, Any] = {"columns": {}}
    ranges = [parts.pop((role, ""), {}) for role in ("object", "offset")]
    if any(ranges):
        extras["ranges"] = Ranges(*map(_numbers, ranges))
    for (role, name), known in parts.items():
        if role == "class" and not name and len(known) > 1:
            extras["classes"] = _column(known)
        elif role == "column":
            extras["columns"][name] = _column(known)
        else:
            raise ValueError(f"a vector of {role!r} {name!r} that does not belong there")
    return extras


def _numbers(parts: dict[str, Numbers]) -> Numbers:
    if parts.keys() != {"numbers"}:
        raise ValueError(f"numbers made of {sorted(parts)}")
    return parts["numbers"]


def _strings(parts: dict[str, Numbers], count: int) -> Compact:
    if parts.keys() == {"bases", "ends", "texts"}:
        return Stepped(parts["bases"], parts["ends"], parts["texts"])
    if parts.keys() - {"texts"}:
        raise ValueError(f"strings made of {sorted(parts)}")
    return Even(parts.get("texts", Numbers(b"", "|u1", 0, 0)), count)


def _etags(parts: dict[str, Numbers], count: int) -> ETags:
    case = next((each for each in SUMS if each in parts), None)
    if case is None:
        return _strings(parts, count)
    endings = {name: numbers for name, numbers in parts.items() if name != case}
    if endings and endings.keys() != _TEXTS:
        raise ValueError(f"ETags made of {sorted(parts)}")
    return Digests(parts[case], case, _column(endings) if endings else None)


def _column(parts: dict[str, Numbers]) -> Column:
    if parts.keys() == {"numbers"}:
        return Column(parts["numbers"])
    if parts.keys() != _TEXTS or parts["ends"].values.dtype != np.uint64:
        raise ValueError(f"a column made of {sorted(parts)}")
    return Column(parts["numbers"], (parts["ends"], parts["texts"]))


def _aligned(start: int) -> int:
    return -(-start // _ALIGN) * _ALIGN
