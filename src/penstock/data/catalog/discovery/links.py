"""Links in local folders that a listing does not follow: links to folders, and broken links."""

from __future__ import annotations

import os
from contextlib import suppress
from logging import getLogger
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.listing.select import Leftovers

_LOG = getLogger("penstock")
BROKEN, FOLDER = "a link to no file", "a link to a directory"
_SHOWN = 3


def left_out(base: str, holds: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield path and kind of each entry below a local folder that is neither a regular file nor a folder.

    ``base`` ends in a slash; ``holds`` chooses among names below it, and that of a folder ends in ``/``.
    """
    pending = [base]
    while pending:
        entries = _entries(pending.pop())
        for entry in entries:
            kind, name = _classify_entry(entry), entry.path[len(base) :]
            if kind == "link" and not Path(entry.path).is_file() and holds(name):
                yield entry.path, FOLDER if Path(entry.path).is_dir() else BROKEN
            elif not kind and holds(name):
                yield entry.path, "neither a file nor a directory"
        folders = [entry.path for entry in reversed(entries) if _classify_entry(entry) == "folder"]
        pending += [path for path in folders if holds(f"{path[len(base) :]}/")]


def _classify_entry(entry: os.DirEntry[str]) -> Literal["link", "folder", "file", ""]:
    """Return the kind of an entry; empty for other kinds, or if the file system cannot report it."""
    with suppress(OSError):
        return "link" if entry.is_symlink() else "folder" if entry.is_dir() else "file" if entry.is_file() else ""
    return ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name; a folder that cannot be read is reported by the listing."""
    with suppress(OSError), os.scandir(folder) as found:
        return sorted(found, key=attrgetter("name"))
    return []


def check_links(prefix: str, chosen: Callable[[str], bool], leftovers: Leftovers) -> None:
    """Refuse broken links among local data, and log links to folders, which no listing follows.

    ``chosen`` tells whether the data include a name below the folder of the prefix.
    """
    at = prefix.rfind("/") + 1
    base, typed = f"/{prefix[:at]}", prefix[at:]

    def holds(name: str) -> bool:
        known = name.startswith(typed) or (name.endswith("/") and typed.startswith(name))
        return known and not leftovers.mark(name)

    broken, folders = [], []
    for path, kind in left_out(base, holds):
        if kind == FOLDER and not leftovers.mark(f"{path[len(base) :]}/"):
            folders.append(path)
        elif kind == BROKEN and chosen(path[len(base) :]):
            broken.append(path)
    if broken:
        more = f", and {len(broken) - 1:,} more" if len(broken) > 1 else ""
        target = str(Path(broken[0]).readlink())
        raise NotFound(
            f"the link leads to {target!r}, which does not exist{more}: fetch the data (git annex get, "
            "dvc pull, or download again), or exclude the name",
            url=broken[0],
        )
    if folders:
        named = ", ".join(folders[:_SHOWN]) + (", …" if len(folders) > _SHOWN else "")
        _LOG.warning("%d links to folders were not followed: pass their targets, or copies: %s", len(folders), named)
