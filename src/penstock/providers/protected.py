"""Says which places are never deleted as a whole: roots, and the directories a process lives in."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InvalidURL
from penstock.providers.urls import LOCAL_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.providers.urls import Location

__all__ = ["check_deletable"]


def check_deletable(location: Location) -> None:
    """Refuse to delete a location that is never meant, alone or with all below it; no request is made.

    Refused are a bucket's root, a key that leads back to it (``.``, ``..``, ``a/..``) and, on this machine, the working
    directory, the home directory and every directory above one of them: by any name, through links and ``..`` too.
    What is not there is not refused.

    Raises:
        InvalidURL: It is one of those.

    """
    if _is_root(location.key):
        where = "every file of this machine" if location.local else "a whole bucket"
        raise InvalidURL(f"this is {where}: name what is to be deleted in it", url=location.url)
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
    """Yield the working and the home directory, and each directory above, that can be looked at."""
    for what, path in (("the working directory", "."), ("the home directory", "~")):
        with suppress(OSError, RuntimeError):  # a working directory that is gone, no home
            place = Path(path).expanduser().resolve()
            for directory in (place, *place.parents):
                yield what, directory.stat()
