"""Arrays of a dataset, opened from a URL, a mapping or an open array, each with its store.

Virtual arrays have references, of a document or of a VirtualiZarr dataset in xarray, to objects of other stores.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.zarr.arrays.foreign import arrays_of, classify_object, foreign_objects, manifests_of
from penstock.data.zarr.arrays.series import joined_along, stores_of
from penstock.data.zarr.arrays.stored import OwnObjects, ReferencedObjects, StoredArray
from penstock.data.zarr.format.metadata import Arrays, open_arrays, with_names
from penstock.data.zarr.format.references import METADATA, references_of, references_of_manifests, references_of_records
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.errors import Damaged, Denied, NotFound, PenstockError, Unusable, kind_of
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.stores.web.options import HTTPOptions
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.data.zarr.arrays.foreign import Manifest, Opened
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.references import References
    from penstock.source import Source
    from penstock.values import ObjectMeta

# CF attributes that name other variables.
_NAMING = ("coordinates", "bounds", "grid_mapping", "ancillary_variables")
_OPENED_AT_ONCE = 16  # stores


class Manner(NamedTuple):
    """Options for opening arrays: those of ``ZarrDataset``; ``files`` as in ``open_arrays``.

    Without ``along``, lists and patterns of URLs are refused.
    """

    store: StoreOptions | str | None
    decode_cf: bool | None = None
    forbidden_is_missing: bool = False
    along: str | None = None
    files: tuple[str, ...] = ()


def open_inputs(given: object, what: str, manner: Manner) -> dict[str, StoredArray]:
    """Return the arrays that the argument ``what`` stands for, by name; an array passed directly has the name "".

    Several stores are opened in parallel after the first one, by one request each where their metadata is consolidated
    as in the first.
    """
    if manner.along is not None and (several := stores_of(given, manner.store)) is not None:
        return _several(several, what, manner, manner.along)
    if isinstance(given, str | os.PathLike):
        return _at(given, what, manner)
    # Before mappings: datasets of xarray are mappings, too.
    if classify_object(given):
        return _of_object(given, what, manner)
    if isinstance(given, Mapping):
        if not given:
            raise Unusable(f"{what} must not be an empty mapping: map names in a sample to arrays")
        for name in given:
            if not name or not isinstance(name, str):
                raise Unusable(f"{what} must map names to arrays, got {name!r} as a name")
        return {name: _single(name, each, what, manner) for name, each in given.items()}
    if any(each.__name__ == "Store" for each in type(getattr(given, "store", given)).__mro__):
        kind = type(given).__name__
        raise Unusable(f'{what} must be an array or group: open this {kind} by zarr.open_group(…, mode="r")')
    raise Unusable(
        f"{what} must be the URL of a Zarr array or group, or a mapping of names to URLs, got {kind_of(given)}"
        + ': of several arrays write {"name": URL, …}; along= joins stores' * isinstance(given, list | tuple | set)
    )


def _several(given: Sequence[Any], what: str, manner: Manner, along: str) -> dict[str, StoredArray]:
    alone = manner._replace(along=None)
    found = [open_inputs(given[0], f"{what}[0]", alone)]
    objects = next(iter(found[0].values())).objects
    alone = alone._replace(files=objects.files if isinstance(objects, OwnObjects) else ())
    with ThreadPoolExecutor(_OPENED_AT_ONCE, "penstock-opening") as threads:
        names = (f"{what}[{number}]" for number in range(1, len(given)))
        found += threads.map(open_inputs, given[1:], names, repeat(alone))
    if any(array.chosen for arrays in found for array in arrays.values()):
        raise Unusable(f"{what} has a selection of xarray, and along= joins whole objects: pass them, and select=")
    shown = [
        os.fspath(each) if isinstance(each, str | os.PathLike) else f"{what}[{number}]"
        for number, each in enumerate(given)
    ]
    return joined_along(found, shown, along)


def _single(name: object, given: object, what: str, manner: Manner) -> StoredArray:
    found = open_inputs(given, f"{what}[{name!r}]", manner)
    if [*found] != [""]:
        raise Unusable(f"{what}[{name!r}] is a group, but each name must be one array: {', '.join(found)}")
    return found[""]


def _at(url: str | os.PathLike[str], what: str, manner: Manner) -> dict[str, StoredArray]:
    store, forbidden = manner.store, manner.forbidden_is_missing
    document = document_at(url, store)
    if document is not None:
        return _virtual(document, what, manner)
    source, key = open_source(url, store)
    try:
        layouts = open_arrays(source, as_folder(key), forbidden_is_missing=forbidden, files=manner.files)
    except NotFound as error:
        above = None if error.missing == "bucket" else records_above(url, store)
        if above is None:
            raise absent(source, key, url, error) from None
        return _virtual(above, what, manner)
    if layouts.record_size is not None:
        return _virtual(records_at(source, layouts, key, store), what, manner)
    return {
        name: StoredArray.of(
            source,
            layout,
            OwnObjects(
                source,
                document=layouts.documents[layout.name].removeprefix(source.root),
                forbidden_is_missing=forbidden,
                opened=layouts,
            ),
            decode_cf=manner.decode_cf,
        )
        for name, layout in _select_sample_arrays(layouts, what).items()
    }


def _virtual(found: VirtualArrays, what: str, manner: Manner) -> dict[str, StoredArray]:
    return {
        name: StoredArray.of(
            found.source,
            layout,
            ReferencedObjects.of(found.references, found.sources, layout, found.opener),
            decode_cf=manner.decode_cf,
        )
        for name, layout in _select_sample_arrays(found.arrays, what).items()
    }


def _select_sample_arrays(layouts: Arrays, what: str) -> dict[str, Layout]:
    """Return the arrays of a sample: a group's arrays without coordinates, an image's finest, or the named array."""
    if not layouts and not layouts.refused:
        raise NotFound(f"{what} is a group without arrays", url=layouts.url)
    # The group itself is an image.
    if image := layouts.images.get(""):
        return {"": layouts[image]}
    coordinates = _name_coordinates(layouts)
    chosen = (
        layouts
        if [*layouts] == [""]
        else {
            name: layout
            for name, layout in layouts.items()
            if dims_of(layout) != (name.rpartition("/")[2],) and name not in coordinates
        }
    )
    for name, error in layouts.refused.items():
        error.add_note(
            f'of a group, name the arrays that a sample has: {what}={{"name": "{layouts.url.rstrip("/")}/…"}}'
        )
        if name not in coordinates:
            raise error
    if not chosen:
        raise Unusable(f"this group has only coordinates ({', '.join(layouts)}): name an array", url=layouts.url)
    return chosen


def _of_object(given: object, what: str, manner: Manner) -> dict[str, StoredArray]:
    """Return the arrays of a zarr or xarray object: by the URL of its store, or through the store if it has no URL."""
    manifests = manifests_of(given)
    if manifests:
        return _virtual(of_manifests(manifests, manner.store), what, manner)
    found = arrays_of(given)
    chosen = _select_sample_arrays(found.arrays, what)
    # The values are those of the object: of xr.open_zarr(…, mask_and_scale=False), as they are stored.
    decode_cf = {
        name: False if manner.decode_cf is None and not found.decodes.get(name, True) else manner.decode_cf
        for name in chosen
    }
    if found.url:
        source, layouts, objects = _in_own_store(found, chosen, what, manner)
    else:
        through = foreign_objects(found.store)
        source, layouts, objects = through.source, chosen, dict.fromkeys(chosen, through)
    return {
        name: StoredArray.of(source, layout, objects[name], decode_cf=decode_cf[name])._replace(
            chosen=found.chosen.get(name, {})
        )
        for name, layout in layouts.items()
    }


def _in_own_store(
    found: Opened, chosen: Mapping[str, Layout], what: str, manner: Manner
) -> tuple[Source, dict[str, Layout], Mapping[str, OwnObjects]]:
    """Return the store of an open object, and layouts and objects of its arrays there."""
    if found.given is not None and manner.store not in (None, found.given):
        raise Unusable(
            f"{what} is open in a Store whose options differ from store=: leave out store=, and open arrays that "
            "need other options in a separate Store(url, store=…)",
            url=found.url,
        )
    if found.own is not None and manner.store in (None, found.given):
        source, key = found.own, parse(found.url).key
    else:
        source, key = open_source(found.url, manner.store)
    moved = {name: replace(layout, key=as_folder(key) + layout.key) for name, layout in chosen.items()}
    if [*moved] == [""]:
        moved[""] = with_names(source, moved[""])
    own = OwnObjects(source, forbidden_is_missing=manner.forbidden_is_missing or found.forbidden_is_missing)
    return source, moved, {name: replace(own, document=layout.document_key) for name, layout in moved.items()}


def _name_coordinates(layouts: Arrays) -> set[str]:
    values = (layout.attributes.get(each) for layout in layouts.values() for each in _NAMING)
    return layouts.coordinates | {word for value in values if isinstance(value, str) for word in value.split()}


_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_GLOB = re.compile(r"[*?\[]")
_LEVELS = 3  # levels of parent groups to look at
_NAMED = 3  # folders


def absent(source: Source, key: str, given: str | os.PathLike[str], error: NotFound) -> NotFound:
    """Return the error for a URL without array or group; the message suggests a replacement.

    Sends a HEAD for an object of that name, and opens the groups above: up to three times five requests, and a listing
    where the metadata is not consolidated. Without such groups it lists the folder. Ignores errors of these requests.
    """
    if error.missing == "bucket":
        return error
    path, hints = key.strip("/"), list[str]()
    text = os.fspath(given)
    if (name := path.rpartition("/")[2]) in _DOCUMENTS:
        hints.append(f"pass the URL of the array or group, without {name}")
    elif _GLOB.search(text):
        hints.append("a URL is literal: several arrays are a mapping from names to URLs; along= joins stores")
    else:
        for find_hint in (_hint_at_object, _hint_at_group, _hint_at_stores):
            if not any(hints):
                with suppress(PenstockError):
                    hints.append(find_hint(source, path, text))
    if not any(hints) and "://" not in text and not text.startswith(("/", "./", "../")):
        hints.append(f"{text!r} has no scheme, so it is a path of this machine: write s3://{text} for a bucket")
    return NotFound("; ".join([error.message, *filter(None, hints)]), url=error.url)


def _hint_at_object(source: Source, path: str, _given: str) -> str:
    [meta] = source.stat_existing([path])
    if meta is None:
        return ""
    return (
        "an object of that name is there, and no folder: NetCDF, HDF5, GRIB and TIFF files are read by references "
        "(kerchunk, VirtualiZarr), and a Zarr store in a ZIP file through zarr.open"
    )


def _hint_at_group(source: Source, path: str, _given: str) -> str:
    """Return a hint that names the arrays of the innermost group above; "" without such a group."""
    folder, _, name = path.rpartition("/")
    for _ in range(_LEVELS):
        with suppress(NotFound):
            arrays = open_arrays(source, folder)
            return f"the group {source.url(folder)} has {arrays.named(name)}"
        if not folder:
            return ""
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    return ""


def _hint_at_stores(source: Source, path: str, given: str) -> str:
    """Return a hint that names some folders below, and how to join them; "" without any."""
    prefix = as_folder(path)
    page = next(iter(source.pages(prefix, delimiter="/")))
    names = [each[len(prefix) :].rstrip("/") for each in page.prefixes]
    if not names:
        return ""
    if "snapshots" in names and not {"refs", "transactions"}.isdisjoint(names):
        return 'an Icechunk repository is there: open a session, and pass zarr.open_group(session.store, mode="r")'
    pattern = "*.zarr" if all(each.endswith(".zarr") for each in names) else "*"
    some = ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)
    return (
        f"the folder has {some}: pass the URL of one, or join stores that follow one another: "
        f'"{given.rstrip("/")}/{pattern}" with along="time"'
    )


_MOST_BYTES = 2 << 30  # of a document of references


def _open_target(store: StoreOptions | str | None, home: str | None, url: str) -> Source:
    """Return the store of a URL that a reference leads to.

    ``store`` applies to stores of its provider. Only the store with the root ``home``, that of the document, receives
    the secrets of ``HTTPOptions``; None: all do.
    """
    source, _ = open_source(url, _match_options(url, store))
    # Also for options of a profile.
    if home not in (None, source.root) and isinstance(source.options, HTTPOptions):
        public = replace(source.options, token=None, username=None, password=None, headers=None)
        source, _ = open_source(url, public)
    return source


class VirtualArrays(NamedTuple):
    """Arrays whose chunks are in other objects; ``source`` is the document's store, or the first of the others.

    ``sources`` are the known stores of these objects, by root; ``opener`` opens others.
    """

    arrays: Arrays
    source: Source
    references: References
    sources: Mapping[str, Source]
    opener: Callable[[str], Source]


def document_at(url: str | os.PathLike[str], store: StoreOptions | str | None) -> VirtualArrays | None:
    """Return the arrays of a document of references, or of an array or group in it, by the rest of the URL.

    None if the URL does not name a document (``….json``, with or without ``/`` and a path after it), or the document
    does not exist. Two requests. ``store`` applies to the document and to the targets of its references, each where it
    is an option of that provider. A document in a store sends the secrets of ``HTTPOptions`` to its own host only.
    """
    location = parse(url)
    parts = location.key.split("/")
    at = next((n for n, part in enumerate(parts) if part.endswith(".json") and part not in _DOCUMENTS), None)
    if at is None:
        return None
    address = location.at("/".join(parts[: at + 1])).url
    source, key = open_source(address, _match_options(address, store))
    [meta] = source.stat_existing([key])
    if meta is None:
        return None
    if meta.size > _MOST_BYTES:
        raise Damaged(f"a document of references has {meta.size:,} bytes: Penstock reads up to 2 GiB", url=address)
    found = references_of(source.read(Span(key, 0, meta.size, meta.etag)), address)
    arrays = _select_below(found.arrays, "/".join(parts[at + 1 :]).strip("/"))
    opener = partial(_open_target, store, None if location.local else location.root)
    return VirtualArrays(arrays, source, found, _stores(found, opener), opener)


def records_at(
    source: Source, layouts: Arrays, key: str, store: StoreOptions | str | None, path: str = ""
) -> VirtualArrays:
    """Return the arrays of references in Parquet, or of the array or group among them that ``path`` names.

    Reads nothing: ``layouts`` are those of the ``.zmetadata`` in the folder ``key`` of ``source``.
    """
    found = references_of_records(layouts, source, as_folder(key))
    opener = partial(_open_target, store, None if parse(source.root).local else source.root)
    return VirtualArrays(_select_below(layouts, path.strip("/")), source, found, {source.root: source}, opener)


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
    with suppress(Denied):
        return source.stat_existing([key])[0]
    return None


def of_manifests(manifests: Mapping[str, Manifest], store: StoreOptions | str | None) -> VirtualArrays:
    """Return the virtual arrays of an xarray dataset; reads nothing."""
    found = references_of_manifests(manifests)
    opener = partial(_open_target, store, None)
    stores = _stores(found, opener)
    if not stores:
        raise Unusable("the manifests of these virtual arrays name no object")
    return VirtualArrays(found.arrays, next(iter(stores.values())), found, stores, opener)


def _stores(references: References, opener: Callable[[str], Source]) -> dict[str, Source]:
    return {root: opener(url) for root, url in references.roots().items()}


def _match_options(url: str, store: StoreOptions | str | None) -> StoreOptions | str | None:
    """Return options if they fit the provider of the URL; a document and its objects may be in two stores."""
    if not isinstance(store, StoreOptions) or type(store) is StoreOptions:
        return store
    return store if isinstance(store, parse(url).store.options) else None


def _select_below(arrays: Arrays, path: str) -> Arrays:
    """Return the arrays at or below a path, by their names there."""
    if not path:
        return arrays
    below = Arrays(f"{arrays.url}/{path}")
    if path in arrays.images:
        below.images[""] = arrays.images[path].removeprefix(f"{path}/")
    below.coordinates = {each.removeprefix(f"{path}/") for each in arrays.coordinates if each.startswith(f"{path}/")}
    for name, layout in arrays.items():
        if name == path or name.startswith(path + "/"):
            below[name[len(path) + 1 :]] = layout
    for name, error in arrays.refused.items():
        if name == path:
            raise error
        if name.startswith(path + "/"):
            below.refused[name[len(path) + 1 :]] = error
    if not below and not below.refused:
        words = f"these references have no array or group {path!r}; arrays are {arrays.named(path)}"
        raise NotFound(words, url=arrays.url)
    return below
