"""Inventories, read file by file into a table instead of listing the prefix.

Manifests of inventories: the bucket, the inventory's files, and their format.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from dataclasses import dataclass
from itertools import compress, islice, pairwise
from logging import getLogger
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import numpy as np

from penstock.data.catalog.columns.table import TableBuilder
from penstock.data.catalog.discovery.manifest import columns as parquet_columns
from penstock.data.unpacking import GZIP, UnpackedFile, check_unpacked, most_unpacked
from penstock.engine.listing.names import PackedEntries
from penstock.engine.listing.select import Leftovers, selector
from penstock.errors import ChecksumMismatch, Damaged, ManifestError, NotFound, Unusable
from penstock.schema import COUNT, check_json, read_json
from penstock.source import object_at
from penstock.values import Span

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.data.catalog.columns.table import Table
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.stores.urls import Location
    from penstock.values import ObjectMeta

_LOG = getLogger("penstock")
_MANIFEST = "/manifest.json"
_MANIFEST_BYTES = 16 << 20  # enough to name 100,000 files


def listed(
    manifest: str | os.PathLike[str],
    place: Location,
    globs: tuple[str | Iterable[str], str | Iterable[str]],
    progress: Callable[[int], None],
    store: StoreOptions | str | None,
) -> Table:
    """Return the objects below ``place`` that the inventory at ``manifest`` lists, in UTF-8 byte order of keys.

    ``globs`` are include and exclude, relative to the prefix up to its last ``/``; directory markers and leftovers
    of other tools are left out, as by ``Catalog.scan``. Every file is read whole; sizes, MD5 sums and the number of
    rows are verified as far as the manifest has them. Needs memory for the largest file and for the table.
    """
    source, key = object_at(manifest, store)
    name = source.url(key)
    meta = source.head(key)
    if meta.size > _MANIFEST_BYTES:
        raise ManifestError(f"not the manifest of an inventory: it has {meta.size} bytes", url=name)
    data = _read_whole(source, meta)
    _check_manifest(source, key, data)
    inventory = parse_inventory_manifest(data, name)
    if inventory.bucket != place.bucket:
        raise Unusable(f"the inventory is of {inventory.bucket!r}, but {place.url} is in another bucket", url=name)
    growing, base = TableBuilder(), place.key[: place.key.rfind("/") + 1]
    chosen, rows = selector(*globs), 0
    left = Leftovers(place.key, globs[0])
    for part in inventory.parts:
        url, found = _file(source, key, part)
        for keys, sizes, versions, count in records(found, inventory, url):
            rows += count
            wanted = [
                each.startswith(place.key) and chosen(name := each[len(base) :], size) and left.wanted(name)
                for each, size in zip(keys, sizes, strict=True)
            ]
            growing.add_all(PackedEntries.of(*([*compress(each, wanted)] for each in (keys, sizes, versions))))  # type: ignore[arg-type]
            progress(len(growing))
    if len(left):
        _LOG.warning("left out below %s: %s", place.url, left)
    # Google's files have no checksums, and a truncated file cannot be told from a complete one.
    if rows < inventory.rows:
        message = f"the inventory has {rows} rows, but the manifest declares {inventory.rows}: a file is truncated"
        raise ManifestError(message, url=name)
    return _sort_table(growing.freeze(), name)


def _check_manifest(source: Source, key: str, data: bytes) -> None:
    """Verify Amazon's manifest against the MD5 in the file next to it, if there is such a file."""
    if not key.endswith(_MANIFEST):
        return
    beside = f"{key.removesuffix('json')}checksum"
    try:
        text = _read_whole(source, source.head(beside)).strip()
    except NotFound:
        return
    if text.decode("ascii", "replace").lower() != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise ChecksumMismatch("the manifest does not match manifest.checksum", url=source.url(key))


def _file(source: Source, manifest: str, part: InventoryFile) -> tuple[str, bytes]:
    key = part.name if "/" in part.name else manifest[: manifest.rfind("/") + 1] + part.name
    url, meta = source.url(key), source.head(key)
    if part.size not in (-1, meta.size):
        raise ChecksumMismatch(f"the file has {meta.size} bytes, but the manifest says {part.size}", url=url)
    data = _read_whole(source, meta)
    if part.md5 and hashlib.md5(data, usedforsecurity=False).hexdigest() != part.md5:
        raise ChecksumMismatch("the MD5 of a file of the inventory does not match the manifest", url=url)
    return url, data


def _read_whole(source: Source, meta: ObjectMeta) -> bytes:
    """Return an object in the version and size that was looked up."""
    return source.read(Span(meta.key, 0, meta.size, meta.etag, whole=True))


def _sort_table(table: Table, name: str) -> Table:
    keys = [table.keys[row] for row in range(table.rows)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    twice = next((keys[one] for one, other in pairwise(order) if keys[one] == keys[other]), None)
    if twice is not None:
        raise ManifestError(
            f"the inventory lists {twice!r} twice: an inventory of all versions needs the field IsLatest", url=name
        )

    return table if order == [*range(len(keys))] else table.take(np.array(order, np.int64))


Records = tuple[list[str], list[int], list[str], int]  # keys, sizes, versions; number of rows read
_ROWS = 8192  # at once
_FEW = 64  # rows between two checks of their size
_CHUNK_CHARS = 16 << 20  # after which the rows read are yielded
# A key takes 3 KiB, and an access control list some more.
_LINE_CHARS = 1 << 20
_MOST = 1 << 63
# The stores' names of each field, without underscores and in lower case. Google's version is the generation, as in the
# driver for its stores.
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
    """Yield the objects of a file, some thousand at a time, without older versions and delete markers."""
    source = parquet_columns(data, name, _find_columns) if inventory.form == "parquet" else _csv(data, inventory, name)
    try:
        for found in source:
            yield _present(found, escaped=inventory.escaped and inventory.form == "csv")
    except (csv.Error, ValueError, TypeError, OSError, Damaged) as error:
        raise ManifestError(f"cannot read this file of the inventory ({error})", url=name) from error


def _csv(data: bytes, inventory: Inventory, name: str) -> Iterator[dict[str, Sequence[object]]]:
    raw = io.BufferedReader(UnpackedFile(memoryview(data))) if data.startswith(GZIP) else io.BytesIO(data)
    with io.TextIOWrapper(raw, "utf-8", newline="") as text:
        lines = _Lines(text)
        reader = csv.reader(lines, delimiter=inventory.delimiter, strict=True)
        columns = inventory.columns or tuple(next(reader, ()))
        places = {field: columns.index(column) for field, column in _find_columns(columns, name).items()}
        rows: list[list[str]] = []
        told = lines.chars
        while few := list(islice(reader, _FEW)):
            if {*map(len, few)} != {len(columns)}:
                raise ManifestError(
                    f"rows must have {len(columns)} cells, got more or fewer up to line {reader.line_num}", url=name
                )
            rows += few
            if len(rows) >= _ROWS or lines.chars - told > _CHUNK_CHARS:
                yield {field: [row[at] for row in rows] for field, at in places.items()}
                rows, told = [], lines.chars
        if rows:
            yield {field: [row[at] for row in rows] for field, at in places.items()}


class _Lines:
    """The lines of a decompressed text; ``Damaged`` beyond a bound that no inventory reaches."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self.chars = 0
        self._text, self._most = text, most_unpacked()

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(_LINE_CHARS):
            self.chars += len(line)
            if len(line) == _LINE_CHARS and not line.endswith("\n"):
                raise ValueError(f"a line of more than {_LINE_CHARS} characters")
            check_unpacked(self.chars, "a file of an inventory", self._most)
            yield line


def _find_columns(columns: Sequence[str], name: str) -> dict[str, str]:
    plain = {column.lower().replace("_", ""): column for column in columns}
    found = {field: plain[each] for field, names in _NAMES.items() for each in names[::-1] if each in plain}
    if "key" not in found:
        raise ManifestError(f"the inventory has no column of keys, only {', '.join(columns)[:200]}", url=name)
    return found


def _present(found: dict[str, Sequence[object]], *, escaped: bool) -> Records:
    keys, nothing = found["key"], [None] * len(found["key"])
    latest, marker, deleted = (found.get(field, nothing) for field in ("latest", "marker", "deleted"))
    at = [
        row for row in range(len(keys)) if latest[row] not in _FALSE and marker[row] not in _TRUE and not deleted[row]
    ]
    sizes, versions = found.get("size", nothing), found.get("version", nothing)
    texts = ["" if versions[row] is None else str(versions[row]).strip('"') for row in at]
    return [_key(keys[row], escaped=escaped) for row in at], [_size(sizes[row]) for row in at], texts, len(keys)


def _key(value: object, *, escaped: bool) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a key must be a str that is not empty, got {value!r}")
    value.encode()
    return unquote_plus(value, errors="strict") if escaped else value


def _size(value: object) -> int:
    if value is None or value == "":
        return -1
    size = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _MOST:
        raise ValueError(f"a size must be a number of bytes, got {value!r}")
    return size


_WHAT = "the manifest of an inventory (S3's manifest.json, or Google's _manifest.json)"
_SOME = re.compile(".+", re.DOTALL)
_NUMBER = (COUNT, re.compile("[0-9]{1,18}"))
_AMAZON = {
    "sourceBucket": _SOME,
    "fileFormat": re.compile("(?i)csv|parquet|orc"),
    "fileSchema": _SOME,
    "files": [{"key": _SOME, "size": _NUMBER, "MD5checksum": re.compile("[0-9a-fA-F]{32}")}],
}
_GOOGLE = {
    "report_config": {"object_metadata_report_options": {"storage_filters": {"bucket": _SOME}}},
    "report_shards_file_names": [_SOME],
    "shard_count": _NUMBER,
    "records_processed?": _NUMBER,
}
_GOOGLE_CSV = {
    "csv_options": {"header_required?": bool, "delimiter?": (re.compile(".", re.DOTALL), "", None)},
    "object_metadata_report_options": {"metadata_fields": [_SOME]},
}


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """A file of an inventory: its key, or its name next to the manifest; bytes and MD5 are -1 and "" if not stated."""

    name: str
    size: int = -1
    md5: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory of one bucket, in files of the format ``form``, ``csv`` or ``parquet``.

    ``columns`` are those of CSV in order, lower case; () if each file begins with a header. ``escaped`` tells whether
    keys in CSV are escaped as in URLs, and ``rows`` is the number of rows in all files, -1 if it is not stated.
    """

    bucket: str
    form: str
    parts: tuple[InventoryFile, ...]
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    escaped: bool = False
    rows: int = -1


def parse_inventory_manifest(data: bytes, name: str) -> Inventory:
    """Read a manifest: Amazon's ``manifest.json``, or Google's ``…_manifest.json`` of Storage Insights."""
    found = read_json(data, dict, _WHAT, name, ManifestError)
    google = "report_shards_file_names" in found
    check_json(found, _GOOGLE if google else _AMAZON, _WHAT, name, ManifestError)
    inventory = _google(found, name) if google else _amazon(found)
    if not inventory.form:
        raise Unusable("ORC inventories are not supported: configure Parquet or CSV", url=name)
    return inventory


def _amazon(found: dict[str, Any]) -> Inventory:
    """Parse a manifest as described in the Amazon S3 user guide under "Inventory manifest"."""
    form = found["fileFormat"].lower()
    columns = tuple(each.strip().lower() for each in found["fileSchema"].split(",")) if form == "csv" else ()
    parts = tuple(InventoryFile(each["key"], int(each["size"]), each["MD5checksum"].lower()) for each in found["files"])
    return Inventory(found["sourceBucket"], form if form != "orc" else "", parts, columns, escaped=True)


def _google(found: dict[str, Any], name: str) -> Inventory:
    """Parse a manifest as described in Google's guide "View an inventory report"."""
    config = found["report_config"]
    options = config["object_metadata_report_options"]
    parts = tuple(map(InventoryFile, found["report_shards_file_names"]))
    if int(found["shard_count"]) != len(parts):
        raise ManifestError(f"the inventory lists {len(parts)} files, but declares {found['shard_count']}", url=name)
    bucket, rows = options["storage_filters"]["bucket"], int(found.get("records_processed", -1))
    if "parquet_options" in config:
        return Inventory(bucket, "parquet", parts, rows=rows)
    check_json(config, _GOOGLE_CSV, _WHAT, name, ManifestError)
    told = config["csv_options"]
    columns = () if told.get("header_required") else tuple(map(str.lower, options["metadata_fields"]))
    return Inventory(bucket, "csv", parts, columns, told.get("delimiter") or ",", rows=rows)
