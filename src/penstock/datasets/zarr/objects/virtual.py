"""Virtual arrays: references of a document, or of an xarray dataset of VirtualiZarr, and the stores they lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets.zarr.objects.locations import ReferencedObjects
from penstock.errors import Damaged, Denied, NotFound, Unusable
from penstock.formats.zarr.opening import Arrays, open_arrays
from penstock.formats.zarr.virtual.records import METADATA
from penstock.formats.zarr.virtual.references import references_of, references_of_manifests, references_of_records
from penstock.options import HTTPOptions, StoreOptions
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.objects import Manifest
    from penstock.formats.zarr.virtual.references import References
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Opener", "VirtualArrays", "document_at", "of_manifests", "records_above", "records_at"]

_MOST_BYTES = 2 << 30  # of a document of references
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens the stores that references lead to. Picklable.

    Attributes:
        store: Options for those of their provider, or the name of a profile.
        home: The store of the document: no other has the secrets of ``HTTPOptions``. None where all of them have.

    """

    store: StoreOptions | str | None
    home: str | None = None

    def __call__(self, url: str) -> Source:
        """Return the store of a URL."""
        source, _ = open_source(url, _fitting(url, self.store))
        if self.home not in (None, source.root) and isinstance(source.options, HTTPOptions):  # a profile's, too
            public = replace(source.options, token=None, username=None, password=None, headers=None)
            source, _ = open_source(url, public)
        return source


class VirtualArrays(NamedTuple):
    """Arrays whose chunks lie in other objects.

    Attributes:
        arrays: By name.
        source: Of the document; where there is none, the first store that references lead to.
        references: Where each chunk lies.
        sources: The stores of these objects, by their roots: those that are known.
        opener: Opens others.

    """

    arrays: Arrays
    source: Source
    references: References
    sources: Mapping[str, Source]
    opener: Opener

    def objects(self, layout: Layout) -> ReferencedObjects:
        """Return where the objects of an array lie."""
        return ReferencedObjects.of(self.references, self.sources, layout, self.opener)


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
    opener = Opener(store, None if location.local else location.root)
    return VirtualArrays(arrays, source, found, _stores(found, opener), opener)


def records_at(
    source: Source, layouts: Arrays, key: str, store: StoreOptions | str | None, path: str = ""
) -> VirtualArrays:
    """Return the arrays of references in Parquet, or of the array or group among them that a path names.

    Nothing is read: ``layouts`` are those of the ``.zmetadata`` in the folder ``key`` of ``source``. ``store`` is that
    of ``document_at``.

    Raises:
        Damaged: They are no references.
        NotFound: They have no such array.

    """
    found = references_of_records(layouts, source, as_folder(key))
    opener = Opener(store, None if parse(source.root).local else source.root)
    return VirtualArrays(_below(layouts, path.strip("/")), source, found, {source.root: source}, opener)


def records_above(url: str | os.PathLike[str], store: StoreOptions | str | None) -> VirtualArrays | None:
    """Return the arrays that a URL names below a folder of references in Parquet; None: no folder above is one.

    One request for each folder above, in parallel, and six for the one that is. Where one is refused, because no more
    than what lies deeper may be read, the folders are asked for one by one, the deepest first.
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
    """Describe an object; None: there is none, or it may not be read."""
    try:
        return source.stat_existing([key])[0]
    except Denied:
        return None


def of_manifests(manifests: Mapping[str, Manifest], store: StoreOptions | str | None) -> VirtualArrays:
    """Return the virtual arrays of an xarray dataset: nothing is read.

    Raises:
        Damaged: A manifest cannot be meant.
        Unusable: It names no object.

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
    """Return options where they are ones of the URL's provider: a document and its objects may lie in two stores."""
    if not isinstance(store, StoreOptions) or type(store) is StoreOptions:
        return store
    return store if isinstance(store, parse(url).provider.options) else None


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
