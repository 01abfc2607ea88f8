"""Entries of a catalog: objects, or byte ranges of objects, as named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.data.catalog.labels import label_of
from penstock.errors import ManifestError
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.data.catalog.storage.table import Table
    from penstock.stores.urls import Location

__all__ = ["Entry", "entry_of", "relocated"]


class Entry(NamedTuple):
    """An entry of a catalog or a manifest: an object, or a byte range of an object.

    Attributes:
        key: Full key within the bucket; in a manifest, the key as written there.
        size: Bytes of the object, or of the range; -1 if unknown.
        label: The class number; or any JSON value from the manifest, None without a label.
        etag: ETag of the listed version, without quotes; empty if unknown.
        offset: The first byte of the range; -1 when the entry is the whole object.

    """

    key: str
    size: int = -1
    label: object = None
    etag: str = ""
    offset: int = -1


def entry_of(table: Table, row: int) -> Entry:
    """Return one row of a table as an entry."""
    ranges, of, offset = table.ranges, row, -1
    if ranges is not None:
        of, offset = ranges.objects.view[row], ranges.offsets.view[row]
    return Entry(table.keys.text(of), table.sizes.view[row], label_of(table, row), table.etags.text(of), offset)


def relocated(entries: Iterable[Entry], base: str, place: Location, *, labelled: bool) -> Iterator[Entry]:
    """Yield the entries with the key prefix ``base`` replaced by that of ``place``, and without ETags.

    Args:
        entries: Entries with full keys, which begin with ``base``.
        base: The prefix to replace.
        place: Location of the copies. Names must not lead out of a local directory: the entries may come from another
            user's file.
        labelled: Keep the labels.

    Raises:
        ManifestError: A name leads out of a local directory.

    """
    below, skip = as_folder(place.key), len(base)
    for entry in entries:
        key = below + entry.key[skip:]
        if place.local and ".." in key.split("/"):
            raise ManifestError(f"{key[:200]!r} leads out of its directory")
        yield entry._replace(key=key, etag="", label=entry.label if labelled else None)
