"""``os.path.exists``, ``isdir`` and ``isfile`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compat.multistorageclient.pathlib import MultiStoragePath

if TYPE_CHECKING:
    from os import PathLike


def exists(path: str | PathLike[str]) -> bool:
    """Return whether an object exists at the path, or anything below it."""
    return MultiStoragePath(path).exists()


def isdir(path: str | PathLike[str], strict: bool = True) -> bool:
    """Return whether anything exists below the path."""
    return MultiStoragePath(path).is_dir(strict)


def isfile(path: str | PathLike[str]) -> bool:
    """Return whether an object exists at the path."""
    return MultiStoragePath(path).is_file(strict=False)
