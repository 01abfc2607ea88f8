"""No array or group at a URL: what the caller probably meant, from a few requests."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import NotFound, PenstockError
from penstock.formats.zarr.opening import open_arrays

if TYPE_CHECKING:
    from penstock.source import Source

__all__ = ["absent"]

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_GLOB = re.compile(r"[*?\[]")
_LEVELS = 3  # folders above that are looked at: the group of an array, and groups around it


def absent(source: Source, key: str, given: str | os.PathLike[str], error: NotFound) -> NotFound:
    """Return the error for a URL at which there is no array and no group; the text says what to write instead.

    A HEAD looks for an object of that name, and the groups above are opened: up to three times five requests, and a
    listing where the metadata is not consolidated. An error of these requests is left out.
    """
    if error.missing == "bucket":
        return error
    path, hints = key.strip("/"), list[str]()
    text = os.fspath(given)
    folder, _, name = path.rpartition("/")
    if name in _DOCUMENTS:
        hints.append(f"pass the URL of the array or group, without {name}")
    elif _GLOB.search(text):
        hints.append("a URL is literal: several arrays are a mapping from names to URLs")
    else:
        with suppress(PenstockError):
            hints.append(_object(source, path))
        if not any(hints):
            with suppress(PenstockError):
                hints.append(_group(source, folder, name))
    if not any(hints) and "://" not in text and not text.startswith(("/", "./", "../")):
        hints.append(f"{text!r} has no scheme, so it is a path of this machine: write s3://{text} for a bucket")
    return NotFound("; ".join([error.message, *filter(None, hints)]), url=error.url)


def _object(source: Source, path: str) -> str:
    [meta] = source.stat_existing([path])
    if meta is None:
        return ""
    return (
        "an object of that name is there, and no folder: NetCDF, HDF5, GRIB and TIFF files are read by references "
        "(kerchunk, VirtualiZarr), and a Zarr store in a ZIP file through zarr.open"
    )


def _group(source: Source, folder: str, name: str) -> str:
    """Name the arrays of the innermost group above."""
    for _ in range(_LEVELS):
        with suppress(NotFound):
            arrays = open_arrays(source, folder)
            return f"the group {source.url(folder)} has {arrays.named(name)}"
        if not folder:
            return ""
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    return ""
