"""Checks that refuse to delete roots, and the directories that a process lives in."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InvalidURL
from penstock.stores.urls import LOCAL_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stores.urls import Location

__all__ = ["check_deletable", "check_lived_in"]


def check_deletable(location: Location) -> None:
    """Refuse to delete a protected location, by itself or recursively; no request is made.

    Protected are a bucket's root, a key that resolves to it (``.``, ``..``, ``a/..``) and, on this machine, the working
    directory, the home directory and every parent of either, under any name: also through links and ``..``.
    A directory that does not exist is not refused.

    Raises:
        InvalidURL: The location is protected.

    """
    if _is_root(location.key):
        where = "every file of this machine" if location.local else "a whole bucket"
        raise InvalidURL(f"this is {where}: name what is to be deleted in it", url=location.url)
    check_lived_in(location)


def check_lived_in(location: Location) -> None:
    """Refuse the working and home directories and their parents, under any name; allow other roots.

    Raises:
        InvalidURL: The location is such a directory.

    """
    target = location.provider.target
    if not (location.local or target.startswith(LOCAL_ROOT)):
        return
    folder = target.removeprefix(LOCAL_ROOT)  # of a profile
    try:
        found = os.stat(f"/{folder}{location.key}")  # noqa: PTH116  pathlib changes names
    except (OSError, ValueError):
        return
    for what, directory in _lived_in():
        if os.path.samestat(found, directory):
            message = f"this is {what}, or a directory above it: name what is to be deleted below it"
            raise InvalidURL(message, url=location.url)


def _is_root(key: str) -> bool:
    depth = 0
    for part in key.split("/"):
        if part == "..":
            depth = max(depth - 1, 0)
        elif part not in ("", "."):
            depth += 1
    return depth == 0


def _lived_in() -> Iterator[tuple[str, os.stat_result]]:
    """Yield a label and the status of the working directory, of the home directory and of each parent."""
    for what, path in (("the working directory", "."), ("the home directory", "~")):
        with suppress(OSError, RuntimeError):  # deleted working directory, no home
            place = Path(path).expanduser().resolve()
            for directory in (place, *place.parents):
                yield what, directory.stat()
