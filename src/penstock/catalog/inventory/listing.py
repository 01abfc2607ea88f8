"""Reads an inventory, file by file, into a table: what a listing of the prefix would have brought."""

from __future__ import annotations

import hashlib
from itertools import compress, pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.catalog.inventory.described import described
from penstock.catalog.inventory.records import records
from penstock.catalog.select import selector
from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.strings import encode
from penstock.errors import ChecksumMismatch, ManifestError, NotFound, Unusable
from penstock.source import object_at
from penstock.values import Span

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from penstock.catalog.inventory.described import Part
    from penstock.catalog.storage.table import Table
    from penstock.options import StoreOptions
    from penstock.providers.urls import Location
    from penstock.source import Source

__all__ = ["listed"]

_MANIFEST = "/manifest.json"


def listed(
    manifest: str | os.PathLike[str],
    place: Location,
    globs: tuple[str | Iterable[str], str | Iterable[str]],
    progress: Callable[[int], None],
    store: StoreOptions | str | None,
) -> Table:
    """Return the objects below ``place`` that the inventory at ``manifest`` lists, in UTF-8 byte order of keys.

    ``globs`` are include and exclude, relative to the prefix up to its last ``/``; directory markers are left out.
    Every file is read whole and compared with its size and MD5 where the manifest has them, and all of them with its
    count of rows; memory for the largest file, and for the table.

    Raises:
        Unusable: The inventory is of another bucket, or in a form that is not read (ORC).
        ManifestError: The manifest or a file cannot be read, rows are missing, or a key is listed twice.
        ChecksumMismatch: A file, or the manifest, is not what was written.

    """
    source, key = object_at(manifest, store)
    name = source.url(key)
    data = source.read(Span(key, 0, source.head(key).size))
    _check_manifest(source, key, data)
    inventory = described(data, name)
    if inventory.bucket != place.bucket:
        raise Unusable(f"this inventory lists {inventory.bucket!r}, and {place.url} lies in another bucket", url=name)
    growing, base = TableBuilder(), place.key[: place.key.rfind("/") + 1]
    chosen, rows = selector(*globs), 0
    for part in inventory.parts:
        url, found = _file(source, key, part)
        for keys, sizes, versions, count in records(found, inventory, url):
            rows += count
            wanted = [
                each.startswith(place.key) and chosen(each[len(base) :], size)
                for each, size in zip(keys, sizes, strict=True)
            ]
            columns = ([*compress(each, wanted)] for each in ([*map(encode, keys)], sizes, versions))
            growing.add_all(*columns)  # type: ignore[arg-type]  # a column of each kind
            progress(len(growing))
    if rows < inventory.rows:  # Google's files have no checksums: one that was cut off ends like any other
        message = f"the inventory has {rows} rows, where the manifest says {inventory.rows}: a file was cut off"
        raise ManifestError(message, url=name)
    return _sorted(growing.freeze(), name)


def _check_manifest(source: Source, key: str, data: bytes) -> None:
    """Compare Amazon's manifest with its MD5, which lies beside it, where it does."""
    if not key.endswith(_MANIFEST):
        return
    beside = f"{key.removesuffix('json')}checksum"
    try:
        text = source.read(Span(beside, 0, source.head(beside).size)).strip()
    except NotFound:
        return
    if text.decode("ascii", "replace").lower() != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise ChecksumMismatch("the manifest is not what manifest.checksum was made of", url=source.url(key))


def _file(source: Source, manifest: str, part: Part) -> tuple[str, bytes]:
    key = part.name if "/" in part.name else manifest[: manifest.rfind("/") + 1] + part.name
    url, size = source.url(key), source.head(key).size
    if part.size not in (-1, size):
        raise ChecksumMismatch(f"a file of {size} bytes, where the manifest says {part.size}", url=url)
    data = source.read(Span(key, 0, size))
    if part.md5 and hashlib.md5(data, usedforsecurity=False).hexdigest() != part.md5:
        raise ChecksumMismatch("a file of the inventory has another MD5 than the manifest says", url=url)
    return url, data


def _sorted(table: Table, name: str) -> Table:
    keys = [table.keys[row] for row in range(table.rows)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    twice = next((keys[one] for one, other in pairwise(order) if keys[one] == keys[other]), None)
    if twice is not None:
        raise ManifestError(
            f"the inventory lists {twice!r} twice: one of all versions needs the field IsLatest", url=name
        )

    return table if order == [*range(len(keys))] else table.take(np.array(order, np.int64))
