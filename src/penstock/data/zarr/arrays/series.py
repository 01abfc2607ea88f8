"""Arrays of several stores as one array: one store per year, member or region, along a dimension or a new one.

Nothing is copied: chunks are numbered through all stores, and each is read from its own store, by its own codecs.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from penstock.data.zarr.format.layout import Runs
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.engine.listing.select import fixed_part, selector
from penstock.errors import NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.options import StoreOptions
    from penstock.source import Source

_NUMBERS = re.compile(r"(\d+)")
# Ratio of difflib: a letter too few or too many in a short name.
_CLOSE = 0.8


def stores_of(given: object, store: StoreOptions | str | None) -> list[Any] | None:
    """Return the stores in a list or matching a pattern of URLs, in order; None for another value.

    Matches of a pattern come in the order of their names, and numbers in names by their value. One listing for each
    folder with wildcards in its names.
    """
    if isinstance(given, list | tuple):
        if not given:
            raise Unusable("a list of stores must not be empty")
        return [*given]
    if not isinstance(given, str | os.PathLike):
        return None
    source, key = open_source(given, store)
    if not fixed_part(key)[1]:
        return None
    if "**" in key:
        raise Unusable("a pattern of stores must not contain **: use * in names of folders", url=source.url(key))
    found = sorted(_matches(source, key), key=_sort_key)
    if not found:
        raise NotFound("no store matches this pattern", url=source.url(key))
    return [source.url(path) for path in found]


def _sort_key(path: str) -> list[int | str]:
    # Every second part of a name is a number.
    return [int(text) if place % 2 else text for place, text in enumerate(_NUMBERS.split(path))]


def _matches(source: Source, key: str) -> list[str]:
    paths, parts = [""], key.strip("/").split("/")
    for number, part in enumerate(parts, 1):
        literal, rest = fixed_part(part)
        if not rest:
            paths = [f"{path}{literal}/" for path in paths]
            continue
        is_last = number == len(parts)
        paths = [f"{path}{name}/" for path in paths for name in _names(source, path, part, below=not is_last)]
    return [path.rstrip("/") for path in paths]


def _names(source: Source, folder: str, part: str, *, below: bool) -> list[str]:
    """Return the folders, and objects that may be stores, in a folder, that match a part of a pattern.

    Those are documents of references, and all objects where no folder matches, of which the error names one. The
    documents of the folder itself, where it is a group, and hidden names are left out as by a shell. With ``below``,
    an array in each store is meant: the names of folders, or of documents where no folder matches or all end in .json.
    """
    literal, _ = fixed_part(part)
    chosen, folders, objects = selector(part, markers=True), list[str](), list[str]()
    for page in source.pages(folder + literal, delimiter="/"):
        for names, paths in ((folders, page.prefixes), (objects, [each.key for each in page.entries])):
            found = (path[len(folder) :].rstrip("/") for path in paths)
            names += [name for name in found if name and chosen(name, 1) and (part[0] == "." or name[0] != ".")]
    objects = [name for name in objects if name != "zarr.json"]
    documents = [name for name in objects if name.endswith(".json")]
    if below:
        return [*folders, *documents] if part.endswith(".json") or not folders else folders
    return [*folders, *documents] if folders else objects


def joined_along(
    stores: Sequence[Mapping[str, StoredArray]], shown: Sequence[str], along: str
) -> dict[str, StoredArray]:
    """Return the arrays of several stores as one each, along a dimension; without requests.

    If no array has the dimension, it becomes the first one of all arrays, with an element for each store. Otherwise
    arrays without it, such as an orography, are those of the first store. ``shown`` has each store in words.
    """
    cannot = f"cannot join stores along {along!r}"
    first = stores[0]
    for other, words in zip(stores[1:], shown[1:], strict=True):
        for there, where, lacks, whose in ((first, shown[0], other, words), (other, words, first, shown[0])):
            if missing := [name for name in there if name not in lacks]:
                raise Unusable(
                    f"{cannot}: {whose} has no array {missing[0]!r}, which {where} has; name the arrays that all have: "
                    '{"name": [URL, …]}'
                )
    stacks = _stacks(cannot, [*first.values()], along)
    found = {}
    for name, array in first.items():
        parts = [each[name] for each in stores]
        if stacks or along in dims_of(array.layout):
            _warn_of_units(parts)
            found[name] = _one(cannot, parts, along, stacked=stacks)
        else:
            _check_same(cannot, parts, "")
            found[name] = array
    return found


def _stacks(cannot: str, arrays: Sequence[StoredArray], along: str) -> bool:
    """Return whether the dimension is a new one; raise for a name that is probably a wrong spelling."""
    known = {name.casefold(): name for array in arrays for name in dims_of(array.layout)}
    if along in known.values():
        return False
    if near := get_close_matches(along.casefold(), known, 1, _CLOSE):
        raise Unusable(f"{cannot}: did you mean {known[near[0]]!r}? Another name adds a dimension")
    return True


def _one(cannot: str, parts: Sequence[StoredArray], along: str, *, stacked: bool) -> StoredArray:
    """Return arrays as one; its chunks are in the runs of the arrays."""
    first = parts[0].layout
    _check_same(cannot, parts, "" if stacked else along)
    dims = first.dims
    if stacked:
        axis, runs = 0, Runs((1,) * len(parts), (1,) * len(parts))
        shape, chunks, dims = (len(parts), *first.shape), (1, *first.chunks), (along, *dims_of(first))
    else:
        axis = dims_of(first).index(along)
        runs = Runs(*zip(*((each.layout.shape[axis], each.layout.chunks[axis]) for each in parts), strict=True))
        shape = _with(first.shape, axis, sum(runs.lengths))
        chunks = _with(first.chunks, axis, max(runs.sizes))
    layout = replace(first, shape=shape, chunks=chunks, dims=dims, shards=None, runs={axis: runs})
    return parts[0]._replace(layout=layout, stored=tuple(parts), along=axis, stacked=stacked)


def _warn_of_units(parts: Sequence[StoredArray]) -> None:
    """Warn of arrays whose units differ: they are spelled in many ways, so this may be no mistake."""
    units = [(str(each.layout.attributes.get("units", "")).strip(), each.url) for each in parts]
    if " since " in units[0][0]:
        # Times, which are decoded by the units of each store.
        return
    for unit, url in units:
        if unit != units[0][0]:
            warnings.warn(
                f"units of {units[0][1]} are {units[0][0]!r}, and of {url} {unit!r}: values are not converted",
                stacklevel=9,
            )
            return


def _with(sizes: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _check_same(cannot: str, parts: Sequence[StoredArray], along: str) -> None:
    """Raise for arrays that differ in more than length and chunks along a dimension."""
    first, *others = parts
    wanted = _list_common_traits(first, along)
    for other in others:
        for (what, one), (_, two) in zip(wanted, _list_common_traits(other, along), strict=True):
            if one != two:
                how = "; penstock zarr copy --chunks stores one like the other" if what == "chunks" else ""
                raise Unusable(f"{cannot}: {what} of {first.url} are {one}, and of {other.url} {two}{how}")


def _list_common_traits(array: StoredArray, along: str) -> list[tuple[str, object]]:
    layout, dims = array.layout, dims_of(array.layout)
    lengths, chunks = (
        {name: size for name, size in zip(dims, sizes, strict=True) if name != along}
        for sizes in (layout.shape, layout.chunks)
    )
    return [("dimensions", dims), ("lengths", lengths), ("chunks", chunks), ("values", str(array.decoded.dtype))]
