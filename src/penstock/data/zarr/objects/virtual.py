"""Virtual arrays: references of a document or of a VirtualiZarr dataset in xarray, and the stores of their targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.data.zarr.format.opening import Arrays, open_arrays
from penstock.data.zarr.format.references import METADATA, references_of, references_of_manifests, references_of_records
from penstock.data.zarr.objects.locations import ReferencedObjects
from penstock.errors import Damaged, Denied, NotFound, Unusable
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.stores.web.options import HTTPOptions
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.objects import Manifest
    from penstock.data.zarr.format.references import References
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Opener", "VirtualArrays", "document_at", "of_manifests", "records_above", "records_at"]

_MOST_BYTES = 2 << 30  # of a document of references
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")


@dataclass(frozen=True, slots=True)
class Opener:
    """Opener of the stores that references lead to. Picklable.

    Attributes:
        store: Options for stores of their provider, or the name of a profile.
        home: Root of the document's store: only this store receives the secrets of ``HTTPOptions``. None: all stores
            do.

    """

    store: StoreOptions | str | None
    home: str | None = None

    def __call__(self, url: str) -> Source:
        """Return the store of a URL."""
        source, _ = open_source(url, _fitting(url, self.store))
        # Also for options of a profile.
        if self.home not in (None, source.root) and isinstance(source.options, HTTPOptions):
            public = replace(source.options, token=None, username=None, password=None, headers=None)
            source, _ = open_source(url, public)
        return source


class VirtualArrays(NamedTuple):
    """Arrays whose chunks lie in other objects.

    Attributes:
        arrays: Layouts by name.
        source: Store of the document; without a document, the first store that references lead to.
        references: Location of each chunk.
        sources: Known stores of these objects, by root.
        opener: Opener of other stores.

    """

    arrays: Arrays
    source: Source
    references: References
    sources: Mapping[str, Source]
    opener: Opener

    def objects(self, layout: Layout) -> ReferencedObjects:
        """Return the locations of the objects of an array."""
        return ReferencedObjects.of(self.references, self.sources, layout, self.opener)


def document_at(url: str | os.PathLike[str], store: StoreOptions | str | None) -> VirtualArrays | None:
    """Return the arrays of a document of references, or of the array or group that the rest of the URL names in it.

    None if the URL does not name a document (``….json``, with or without ``/`` and a path after it), or the document
    does not exist. Two requests. ``store`` applies to the document and to the targets of its references, each where it
    is an option of that provider. A document in a store sends the secrets of ``HTTPOptions`` to its own host only.

    Raises:
        Damaged: The document is not a valid document of references.
        Unsupported: It has references that Penstock does not resolve.
        NotFound: It does not have such an array.

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
    opener = Opener(store, None if location.local else location.root)
    return VirtualArrays(arrays, source, found, _stores(found, opener), opener)


def records_at(
    source: Source, layouts: Arrays, key: str, store: StoreOptions | str | None, path: str = ""
) -> VirtualArrays:
    """Return the arrays of references in Parquet, or of the array or group among them that ``path`` names.

    Reads nothing: ``layouts`` are those of the ``.zmetadata`` in the folder ``key`` of ``source``. ``store`` is the
    same as in ``document_at``.

    Raises:
        Damaged: The metadata is not that of references.
        NotFound: The references do not have such an array.

    """
    found = references_of_records(layouts, source, as_folder(key))
    opener = Opener(store, None if parse(source.root).local else source.root)
    return VirtualArrays(_below(layouts, path.strip("/")), source, found, {source.root: source}, opener)


def records_above(url: str | os.PathLike[str], store: StoreOptions | str | None) -> VirtualArrays | None:
    """Return the arrays that a URL names below a folder of references in Parquet; None if no parent is such a folder.

    One request for each parent folder, in parallel, and six for the folder that is found. If one request is refused,
    because only deeper folders may be read, the folders are tried one by one, the deepest first.
    """
    source, key = open_source(url, store)
    parts = key.strip("/").split("/")
    folders = ["/".join(parts[:n]) for n in range(1, len(parts))]
    try:
        metas = source.stat_existing([as_folder(each) + METADATA for each in folders])
    except Denied:
        folders.reverse()
        metas = [_readable(source, as_folder(each) + METADATA) for each in folders]
    for folder, meta in zip(folders, metas, strict=True):
        if meta is not None and (layouts := open_arrays(source, folder)).record_size is not None:
            return records_at(source, layouts, folder, store, key.strip("/")[len(folder) :])
    return None


def _readable(source: Source, key: str) -> ObjectMeta | None:
    """Return the metadata of an object; None if it does not exist or may not be read."""
    try:
        return source.stat_existing([key])[0]
    except Denied:
        return None


def of_manifests(manifests: Mapping[str, Manifest], store: StoreOptions | str | None) -> VirtualArrays:
    """Return the virtual arrays of an xarray dataset; reads nothing.

    Raises:
        Damaged: A manifest is invalid.
        Unusable: The manifests do not name any object.

    """
    found = references_of_manifests(manifests)
    opener = Opener(store)
    stores = _stores(found, opener)
    if not stores:
        raise Unusable("the manifests of these virtual arrays name no object")
    return VirtualArrays(found.arrays, next(iter(stores.values())), found, stores, opener)


def _stores(references: References, opener: Opener) -> dict[str, Source]:
    """Return the stores that references lead to."""
    return {root: opener(url) for root, url in references.roots().items()}


def _fitting(url: str, store: StoreOptions | str | None) -> StoreOptions | str | None:
    """Return options if they fit the provider of the URL; a document and its objects may lie in two stores."""
    if not isinstance(store, StoreOptions) or type(store) is StoreOptions:
        return store
    return store if isinstance(store, parse(url).store.options) else None


def _below(arrays: Arrays, path: str) -> Arrays:
    """Return the arrays at or below a path, by their names there."""
    if not path:
        return arrays
    below = Arrays(f"{arrays.url}/{path}")
    if path in arrays.images:
        below.images[""] = arrays.images[path].removeprefix(f"{path}/")
    for name, layout in arrays.items():
        if name == path or name.startswith(path + "/"):
            below[name[len(path) + 1 :]] = layout
    for name, error in arrays.refused.items():
        if name == path:
            raise error
        if name.startswith(path + "/"):
            below.refused[name[len(path) + 1 :]] = error
    if not below and not below.refused:
        words = f"these references have no array or group {path!r}; there are {arrays.named(path)}"
        raise NotFound(words, url=arrays.url)
    return below
