"""What a dataset of arrays is given, a URL, a mapping or an open array, becomes arrays with their stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.datasets.zarr.arrays import StoredArray
from penstock.datasets.zarr.objects.absent import absent
from penstock.datasets.zarr.objects.foreign import foreign_objects
from penstock.datasets.zarr.objects.locations import OwnObjects
from penstock.datasets.zarr.objects.virtual import document_at, of_manifests, records_above, records_at
from penstock.datasets.zarr.samples.arrangement import dims_of
from penstock.errors import NotFound, Unusable
from penstock.formats.zarr.objects import arrays_of, is_opened, manifests_of
from penstock.formats.zarr.opening import open_arrays, with_names
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datasets.zarr.objects.virtual import VirtualArrays
    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.opening import Arrays
    from penstock.options import StoreOptions

__all__ = ["opened"]

_NAMING = ("coordinates", "bounds", "grid_mapping", "ancillary_variables")  # attributes that name other variables: CF


def opened(
    given: object, what: str, store: StoreOptions | str | None, *, decode_cf: bool | None
) -> dict[str, StoredArray]:
    """Return the arrays that an argument means, by name; an array that was given itself has the name "".

    Args:
        given: The URL of an array or group, or a mapping from names to them.
        what: The argument's name, for errors.
        store: Options, or the name of a profile.
        decode_cf: Decode values by the CF attributes; None: of arrays that have any.

    Raises:
        Unusable: It is none of these, or a group without arrays.
        NotFound: Nothing is there.
        Damaged: The metadata cannot be what it says.
        Unsupported: It uses an extension that Penstock has not.

    """
    if isinstance(given, str | os.PathLike):
        return _at(given, what, store, decode_cf=decode_cf)
    if is_opened(given):  # among them xarray's datasets, which are mappings
        return _of_object(given, what, store, decode_cf=decode_cf)
    if isinstance(given, Mapping):
        if not given:
            raise Unusable(f"{what} is an empty mapping: it names arrays by what they are called in a sample")
        for name in given:
            if not name or not isinstance(name, str):
                raise Unusable(f"{what} maps names to arrays, and {name!r} is no name")
        return {name: _single(name, each, what, store, decode_cf=decode_cf) for name, each in given.items()}
    raise Unusable(
        f"{what} is the URL of a Zarr array or group, or a mapping from names to URLs, not a {type(given).__name__}"
        + ': of several arrays write {"name": URL, …}' * isinstance(given, list | tuple | set)
    )


def _single(
    name: object, given: object, what: str, store: StoreOptions | str | None, *, decode_cf: bool | None
) -> StoredArray:
    found = opened(given, f"{what}[{name!r}]", store, decode_cf=decode_cf)
    if [*found] != [""]:
        raise Unusable(f"{what}[{name!r}] is a group, and one name stands for one array: {', '.join(found)}")
    return found[""]


def _at(
    url: str | os.PathLike[str], what: str, store: StoreOptions | str | None, *, decode_cf: bool | None
) -> dict[str, StoredArray]:
    document = document_at(url, store)
    if document is not None:
        return _virtual(document, what, decode_cf=decode_cf)
    source, key = open_source(url, store)
    try:
        layouts = open_arrays(source, as_folder(key))
    except NotFound as error:
        above = None if error.missing == "bucket" else records_above(url, store)
        if above is None:
            raise absent(source, key, url, error) from None
        return _virtual(above, what, decode_cf=decode_cf)
    if layouts.record_size is not None:
        return _virtual(records_at(source, layouts, key, store), what, decode_cf=decode_cf)
    return {
        name: StoredArray.of(
            source,
            layout,
            OwnObjects(source, document=layouts.documents[layout.name].removeprefix(source.root)),
            decode_cf=decode_cf,
        )
        for name, layout in _sampled(layouts, what).items()
    }


def _virtual(found: VirtualArrays, what: str, *, decode_cf: bool | None) -> dict[str, StoredArray]:
    return {
        name: StoredArray.of(found.source, layout, found.objects(layout), decode_cf=decode_cf)
        for name, layout in _sampled(found.arrays, what).items()
    }


def _sampled(layouts: Arrays, what: str) -> dict[str, Layout]:
    """Return the arrays that a sample has: a group's but coordinates, an image's finest, or the one that was named."""
    if not layouts and not layouts.refused:
        raise NotFound(f"{what} is a group without arrays", url=layouts.url)
    if layouts.whole:
        return {"": layouts[layouts.whole]}
    chosen = layouts if [*layouts] == [""] else _data(layouts)
    for name, error in layouts.refused.items():
        error.add_note(
            f'of a group, name the arrays that a sample has: {what}={{"name": "{layouts.url.rstrip("/")}/…"}}'
        )
        if name not in _coordinates(layouts):
            raise error
    if not chosen:
        raise Unusable(f"this group has coordinates only ({', '.join(layouts)}): name an array", url=layouts.url)
    return chosen


def _of_object(
    given: object, what: str, store: StoreOptions | str | None, *, decode_cf: bool | None
) -> dict[str, StoredArray]:
    """Return the arrays of an object of zarr or xarray: read from its store's URL, or through a store without one."""
    manifests = manifests_of(given)
    if manifests:
        return _virtual(of_manifests(manifests, store), what, decode_cf=decode_cf)
    found = arrays_of(given)
    if found.arrays.whole:
        chosen: Mapping[str, Layout] = {"": found.arrays[found.arrays.whole]}
    else:
        chosen = found.arrays if [*found.arrays] == [""] else _data(found.arrays)
        for name in chosen or found.arrays.refused:
            found.arrays[name]  # raises why there is none
    if not found.url:
        objects = foreign_objects(found.store)
        return {
            name: StoredArray.of(objects.source, layout, objects, decode_cf=decode_cf)
            for name, layout in chosen.items()
        }
    source, key = open_source(found.url, store)
    prefix = as_folder(key)
    moved = {name: replace(layout, key=prefix + layout.key) for name, layout in chosen.items()}
    if [*moved] == [""]:
        moved[""] = with_names(source, moved[""])
    return {name: StoredArray.of(source, layout, decode_cf=decode_cf) for name, layout in moved.items()}


def _data(layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """Return a group's arrays without coordinates: what is named as its own dimension, or by an attribute of others."""
    named = _coordinates(layouts)
    return {
        name: layout
        for name, layout in layouts.items()
        if dims_of(layout) != (name.rpartition("/")[2],) and name not in named
    }


def _coordinates(layouts: Mapping[str, Layout]) -> set[str]:
    return {word for layout in layouts.values() for word in _named(layout.attributes)}


def _named(attributes: Mapping[str, Any]) -> Iterable[str]:
    for each in _NAMING:
        value = attributes.get(each)
        if isinstance(value, str):
            yield from value.split()
