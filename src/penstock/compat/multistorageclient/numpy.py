"""``numpy.load``, ``save`` and ``memmap`` by URL; what is no URL or path goes to numpy as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.shortcuts import open as open_url

__all__ = ["load", "memmap", "save"]


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Load an array, or several; with ``mmap_mode`` of a copy on this machine, where it is not there already."""
    if not isinstance(file, str | MultiStoragePath):
        return np.load(file, *args, **kwargs)
    if args[:1] != () or kwargs.get("mmap_mode") is not None:
        return np.load(_path(file), *args, **kwargs)
    with open_url(str(file)) as opened:
        found = np.load(opened, *args, **kwargs)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return found
    return np.load(_path(file), *args, **kwargs)  # an archive is read as its arrays are asked for


def save(file: Any, *args: Any, **kwargs: Any) -> None:
    """Save an array, atomically; ``attributes`` are its object's metadata."""
    attributes = kwargs.pop("attributes", None)
    if not isinstance(file, str | MultiStoragePath):
        np.save(file, *args, **kwargs)
        return
    with open_url(str(file), "wb", attributes=attributes) as opened:
        np.save(opened, *args, **kwargs)


def memmap(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Map a file, read-only by default; of an object a copy on this machine."""
    if not isinstance(file, str | MultiStoragePath):
        return np.memmap(file, *args, **kwargs)
    if len(args) < 2:  # noqa: PLR2004  dtype, mode
        kwargs.setdefault("mode", "r")
    return np.memmap(_path(file), *args, **kwargs)


def _path(file: str | MultiStoragePath) -> str:
    return MultiStoragePath(file).as_posix()
