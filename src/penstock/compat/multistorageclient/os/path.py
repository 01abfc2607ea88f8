"""``os.path.exists``, ``isdir`` and ``isfile`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compat.multistorageclient.pathlib import MultiStoragePath

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["exists", "isdir", "isfile"]


def exists(path: str | PathLike[str]) -> bool:
    """Return whether there is an object, or something below it."""
    return MultiStoragePath(path).exists()


def isdir(path: str | PathLike[str], strict: bool = True) -> bool:
    """Return whether something lies below it."""
    return MultiStoragePath(path).is_dir(strict)


def isfile(path: str | PathLike[str]) -> bool:
    """Return whether there is an object."""
    return MultiStoragePath(path).is_file(strict=False)
