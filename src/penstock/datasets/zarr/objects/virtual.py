"""Virtual arrays: references of a document, or of an xarray dataset of VirtualiZarr, and the stores they lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets.zarr.objects.locations import ReferencedObjects
from penstock.errors import Damaged, NotFound, Unusable
from penstock.formats.zarr.opening import Arrays
from penstock.formats.zarr.references import references_of, references_of_manifests
from penstock.options import HTTPOptions, StoreOptions
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import Span

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.objects import Manifest
    from penstock.formats.zarr.references import References
    from penstock.source import Source

__all__ = ["VirtualArrays", "document_at", "of_manifests"]

_MOST_BYTES = 2 << 30  # of a document of references
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")


class VirtualArrays(NamedTuple):
    """Arrays whose chunks lie in other objects.

    Attributes:
        arrays: By name.
        source: Of the document; where there is none, the first store that references lead to.
        references: Where each chunk lies.
        sources: The stores of these objects, by their roots.

    """

    arrays: Arrays
    source: Source
    references: References
    sources: Mapping[str, Source]

    def objects(self, layout: Layout) -> ReferencedObjects:
        """Return where the objects of an array lie."""
        return ReferencedObjects.of(self.references, self.sources, layout)


def document_at(url: str | os.PathLike[str], store: StoreOptions | str | None) -> VirtualArrays | None:
    """Return the arrays of a document of references, or of the array or group in it that the URL goes on to name.

    None where the URL names no document (``….json``, and what follows a ``/``), or none is there. Two requests.
    ``store`` is for the document and for what it leads to, each where it is an option of that provider; a document in
    a store has the secrets of ``HTTPOptions`` sent to no host but its own.

    Raises:
        Damaged: It is no such document.
        Unsupported: References that Penstock does not resolve.
        NotFound: It has no such array.

    """
    location = parse(url)
    parts = location.key.split("/")
    at = next((n for n, part in enumerate(parts) if part.endswith(".json") and part not in _METADATA), None)
    if at is None:
        return None
    address = location.at("/".join(parts[: at + 1])).url
    source, key = open_source(address, _fitting(address, store))
    [meta] = source.stat_existing([key])
    if meta is None:
        return None
    if meta.size > _MOST_BYTES:
        raise Damaged(f"a document of references has {meta.size:,} bytes: Penstock reads up to 2 GiB", url=address)
    found = references_of(source.read(Span(key, 0, meta.size, meta.etag)), address)
    arrays = _below(found.arrays, "/".join(parts[at + 1 :]).strip("/"))
    stores = _stores(found, store, None if location.local else location.root)
    return VirtualArrays(arrays, source, found, stores)


def of_manifests(manifests: Mapping[str, Manifest], store: StoreOptions | str | None) -> VirtualArrays:
    """Return the virtual arrays of an xarray dataset: nothing is read.

    Raises:
        Damaged: A manifest cannot be meant.
        Unusable: It names no object.

    """
    found = references_of_manifests(manifests)
    stores = _stores(found, store)
    if not stores:
        raise Unusable("the manifests of these virtual arrays name no object")
    return VirtualArrays(found.arrays, next(iter(stores.values())), found, stores)


def _stores(references: References, store: StoreOptions | str | None, home: str | None = None) -> dict[str, Source]:
    """Return the stores that references lead to; ``home`` is that of the document, unless it is this machine's own."""
    found = {}
    for root, url in references.roots().items():
        source, _ = open_source(url, _fitting(url, store))
        if home not in (None, root) and isinstance(source.options, HTTPOptions):  # a profile's, too
            public = replace(source.options, token=None, username=None, password=None, headers=None)
            source, _ = open_source(url, public)
        found[root] = source
    return found


def _fitting(url: str, store: StoreOptions | str | None) -> StoreOptions | str | None:
    """Return options where they are ones of the URL's provider: a document and its objects may lie in two stores."""
    if not isinstance(store, StoreOptions) or type(store) is StoreOptions:
        return store
    return store if isinstance(store, parse(url).provider.options) else None


def _below(arrays: Arrays, path: str) -> Arrays:
    """Return the arrays at or below a path, by their names there."""
    if not path:
        return arrays
    below = Arrays(f"{arrays.url}/{path}")
    for name, layout in arrays.items():
        if name == path or name.startswith(path + "/"):
            below[name[len(path) + 1 :]] = layout
    for name, error in arrays.refused.items():
        if name == path:
            raise error
        if name.startswith(path + "/"):
            below.refused[name[len(path) + 1 :]] = error
    if not below and not below.refused:
        have = ", ".join(sorted({*arrays, *arrays.refused})[:20]) or "none"
        raise NotFound(f"these references have no array or group {path!r}; there are {have}", url=arrays.url)
    return below
