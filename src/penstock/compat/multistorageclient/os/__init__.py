"""``os.makedirs`` and ``os.path`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.compat.multistorageclient.os import path
from penstock.compat.multistorageclient.os.path import exists, isdir, isfile
from penstock.compat.multistorageclient.pathlib import MultiStoragePath

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["exists", "isdir", "isfile", "makedirs", "path"]


def makedirs(name: str | PathLike[str], mode: int = 0o777, exist_ok: bool = False) -> None:
    """Create a local directory and its parents; elsewhere do nothing, because writes create directories."""
    MultiStoragePath(name).mkdir(mode, parents=True, exist_ok=exist_ok)
