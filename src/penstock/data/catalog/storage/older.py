"""Readers for the columns of file versions 1 and 2: sizes and offsets of 8 bytes each, ETags as texts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.storage.column import Strings
from penstock.data.catalog.storage.table import Table, ranges_of

if TYPE_CHECKING:
    from penstock.data.catalog.storage.region import Region

__all__ = ["Shape", "converted", "layout", "shape_of"]

_WORD = 8


class Shape(NamedTuple):
    """Dimensions of these columns: rows, bytes of each column of strings (0: left out), and objects.

    ``objects`` is the number of keys and ETags: -1 for one of each per row, else rows are ranges of objects.
    """

    rows: int
    keys: int
    etags: int
    labels: int
    objects: int = -1

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns together."""
        return sum(column_bytes(self))


def layout(shape: Shape) -> list[dict[str, Any]]:
    """Return the name, numpy type string (with byte order), offset and length of each column, in order."""
    names = ("sizes", "key_ends", "etag_ends", "label_ends", "keys", "etags", "labels")
    types = [np.dtype(each).str for each in (np.int64, *3 * (np.uint64,), *3 * (np.uint8,))]
    lengths = column_bytes(shape)
    starts = itertools.accumulate(lengths, initial=0)
    return [
        {"name": name, "dtype": dtype, "offset": start, "bytes": length}
        # ``starts`` has one more item: the end of the last column.
        for name, dtype, start, length in zip(names, types, starts, lengths, strict=False)
    ]


def column_bytes(shape: Shape) -> tuple[int, ...]:
    """Return the bytes of each column: sizes, then the offsets of keys, etags and labels, then their strings.

    Columns of 8-byte words come first, so that they are aligned.
    """
    counts = _counts(shape)
    ends = (_WORD * (count + 1) if length else 0 for count, length in zip(counts, shape[1:4], strict=True))
    return (_WORD * shape.rows, *ends, *shape[1:4])


def shape_of(header: dict[str, Any], objects: int) -> Shape:
    """Return the only shape that has exactly the columns of a header, so that no offset has to be trusted.

    Raises:
        ValueError: No shape has these columns.

    """
    length = {column["name"]: column["bytes"] for column in header["columns"]}
    shape = Shape(header["objects"], length["keys"], length["etags"], length["labels"], objects)
    if min(shape[:-1]) < 0 or not -1 <= objects <= shape.rows or layout(shape) != header["columns"]:
        raise ValueError("its columns do not lie as they should")
    return shape


def converted(region: Region, shape: Shape, extras: dict[str, Any]) -> Table:
    """Return a table in the current format, copied from these columns and ``extras`` (``vectors.extras_of``).

    Raises:
        ValueError: The table is inconsistent.

    """
    lengths = column_bytes(shape)
    stops = list(itertools.accumulate(lengths))
    sizes, *rest = (region.view[stop - length : stop] for length, stop in zip(lengths, stops, strict=True))
    strings = []
    for count, ends, texts in zip(_counts(shape), rest[:3], rest[3:], strict=True):
        strings.append(Strings(texts, (ends or memoryview(bytes(_WORD * (count + 1)))).cast("Q")))
        strings[-1].check()
    keys, etags, labels = strings
    table = Table.of(np.frombuffer(sizes, np.int64), keys, etags, labels).having(**extras)
    table.check()
    return table.having(
        ranges=table.ranges and ranges_of(*(each.values for each in table.ranges)),
        classes=table.classes and table.classes.copy(),
        columns={name: each.copy() for name, each in table.columns.items()},
    )


def _counts(shape: Shape) -> tuple[int, int, int]:
    objects = shape.rows if shape.objects < 0 else shape.objects
    return objects, objects, shape.rows
