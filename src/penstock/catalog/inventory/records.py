"""The objects that a file of an inventory lists: keys, sizes and versions, of those that are there."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from penstock.catalog.parquet import columns as parquet_columns
from penstock.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.catalog.inventory.described import Inventory

__all__ = ["Records", "records"]

Records = tuple[list[str], list[int], list[str], int]  # keys, sizes, versions; rows that they were chosen from
_ROWS = 8192  # at once
_GZIP = b"\x1f\x8b"
_MOST = 1 << 63
# What stores call each field, without underscores and in lower case. Google's version is the generation, as in the
# driver of its stores.
_NAMES = {
    "key": ("key", "name"),
    "size": ("size",),
    "version": ("generation", "etag"),
    "latest": ("islatest",),
    "marker": ("isdeletemarker",),
    "deleted": ("timedeleted",),
}
_FALSE, _TRUE = (False, "false", "False", "FALSE"), (True, "true", "True", "TRUE")


def records(data: bytes, inventory: Inventory, name: str) -> Iterator[Records]:
    """Yield the objects of a file, some thousands at a time, without older versions and delete markers.

    Raises:
        ManifestError: It cannot be read as what the inventory says it is; a key is no UTF-8, a size no count.
        MissingExtra: Parquet, and no pyarrow.

    """
    source = parquet_columns(data, name, _wanted) if inventory.form == "parquet" else _csv(data, inventory, name)
    try:
        for found in source:
            yield _present(found, escaped=inventory.escaped and inventory.form == "csv")
    except (csv.Error, ValueError, TypeError, EOFError, OSError, zlib.error) as error:
        raise ManifestError(f"not a file of an inventory that can be read ({error})", url=name) from error


def _csv(data: bytes, inventory: Inventory, name: str) -> Iterator[dict[str, Sequence[object]]]:
    raw = gzip.GzipFile(fileobj=io.BytesIO(data)) if data.startswith(_GZIP) else io.BytesIO(data)
    with io.TextIOWrapper(raw, "utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=inventory.delimiter, strict=True)
        columns = inventory.columns or tuple(next(reader, ()))
        places = {field: columns.index(column) for field, column in _wanted(columns, name).items()}
        while rows := list(islice(reader, _ROWS)):
            if {*map(len, rows)} != {len(columns)}:
                raise ManifestError(f"rows of other than {len(columns)} cells, by line {reader.line_num}", url=name)
            yield {field: [row[at] for row in rows] for field, at in places.items()}


def _wanted(columns: Sequence[str], name: str) -> dict[str, str]:
    """Return which column has each field.

    Raises:
        ManifestError: None has the keys.

    """
    plain = {column.lower().replace("_", ""): column for column in columns}
    found = {field: plain[each] for field, names in _NAMES.items() for each in names[::-1] if each in plain}
    if "key" not in found:
        raise ManifestError(f"an inventory without keys: it has {', '.join(columns)[:200]}", url=name)
    return found


def _present(found: dict[str, Sequence[object]], *, escaped: bool) -> Records:
    keys, nothing = found["key"], [None] * len(found["key"])
    rules = (
        (found.get("latest", nothing), _FALSE),
        (found.get("marker", nothing), _TRUE),
    )
    gone = [bool(each) for each in found.get("deleted", nothing)]
    there = [
        not dead and all(cells[at] not in absent for cells, absent in rules) for at, dead in enumerate(gone)
    ]  # fmt: skip
    at = [row for row, kept in enumerate(there) if kept]
    names = [_key(keys[row], escaped=escaped) for row in at]
    sizes = [_size(each) for each in _taken(found.get("size", nothing), at)]
    versions = ["" if each is None else str(each).strip('"') for each in _taken(found.get("version", nothing), at)]
    return names, sizes, versions, len(keys)


def _taken(cells: Sequence[object], at: Sequence[int]) -> list[object]:
    return [cells[row] for row in at]


def _key(value: object, *, escaped: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no key")
    value.encode()
    return unquote_plus(value, errors="strict") if escaped else value


def _size(value: object) -> int:
    if value is None or value == "":
        return -1
    size = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _MOST:
        raise ValueError(f"a size of {value!r} bytes")
    return size
