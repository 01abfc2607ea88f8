"""``numpy.load``, ``save`` and ``memmap`` by URL; files that are not URLs or paths go to NumPy unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.compat.multistorageclient.pathlib import MultiStoragePath
from penstock.compat.multistorageclient.shortcuts import open as open_url


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Load one or several arrays; with ``mmap_mode`` from a local copy, unless the file is local."""
    if not isinstance(file, str | MultiStoragePath):
        return np.load(file, *args, **kwargs)
    if args[:1] != () or kwargs.get("mmap_mode") is not None:
        return np.load(_find_posix_path(file), *args, **kwargs)
    with open_url(str(file)) as opened:
        found = np.load(opened, *args, **kwargs)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return found
    # An archive reads its arrays on access, after ``opened`` is closed.
    return np.load(_find_posix_path(file), *args, **kwargs)


def save(file: Any, *args: Any, **kwargs: Any) -> None:
    """Save an array atomically; ``attributes`` are its object's metadata."""
    attributes = kwargs.pop("attributes", None)
    if not isinstance(file, str | MultiStoragePath):
        np.save(file, *args, **kwargs)
        return
    with open_url(str(file), "wb", attributes=attributes) as opened:
        np.save(opened, *args, **kwargs)


def memmap(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Map a file, read-only by default; for an object, map a local copy."""
    if not isinstance(file, str | MultiStoragePath):
        return np.memmap(file, *args, **kwargs)
    if len(args) < 2:  # noqa: PLR2004  dtype, mode
        kwargs.setdefault("mode", "r")
    return np.memmap(_find_posix_path(file), *args, **kwargs)


def _find_posix_path(file: str | MultiStoragePath) -> str:
    return MultiStoragePath(file).as_posix()
