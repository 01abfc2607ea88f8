"""One entry of a catalog: an object, or a range of one, as a named tuple."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.catalog.labels import label_of
from penstock.errors import ManifestError
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.catalog.storage.table import Table
    from penstock.providers.urls import Location

__all__ = ["Entry", "entry_of", "relocated"]


class Entry(NamedTuple):
    """One entry of a catalog or a manifest: an object, or a range of one.

    Attributes:
        key: Full key within the bucket; in a manifest, what stands there.
        size: Bytes, of the range if it is one; -1 when not known.
        label: The number of its class; or any JSON value that the manifest gives, None for nothing.
        etag: The version listed, without quotes; empty when not known.
        offset: The first byte of the range; -1 when the entry is the whole object.

    """

    key: str
    size: int = -1
    label: object = None
    etag: str = ""
    offset: int = -1


def entry_of(table: Table, row: int) -> Entry:
    """Return one row of a table."""
    ranges, of, offset = table.ranges, row, -1
    if ranges is not None:
        of, offset = ranges.objects.view[row], ranges.offsets.view[row]
    return Entry(table.keys.text(of), table.sizes.view[row], label_of(table, row), table.etags.text(of), offset)


def relocated(entries: Iterable[Entry], base: str, place: Location, *, labelled: bool) -> Iterator[Entry]:
    """Yield entries below ``base`` as those of the same names below ``place``; their versions are not known.

    Args:
        entries: With full keys, which begin with ``base``.
        base: What is replaced.
        place: Where copies of the objects are. In a local directory a name must not lead out of it: the entries may
            come from another user's file.
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
