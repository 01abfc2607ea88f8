"""Listing of a directory tree like a store's keys: files in byte order of their paths, not through linked folders."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ELOOP
from typing import TYPE_CHECKING

from penstock.stores.direct import key_bytes
from penstock.stores.local.aside import is_aside
from penstock.values import Upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["unfinished", "walk"]


def walk(root: str, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files below ``root`` whose key begins with ``prefix``, in key order; includes links to files.

    Directories wholly before ``after`` are skipped. A link to a directory is followed only if ``prefix`` itself leads
    through it, so a cycle of links ends.
    """
    folder = prefix.rpartition("/")[0]
    pending = [f"{folder}/" if folder else ""]
    while pending:
        at = pending.pop()
        if at.endswith("/") or not at:
            children = sorted(_children(root, at), key=key_bytes, reverse=True)
            pending += [
                child
                for child in children
                if (child.startswith(prefix) or prefix.startswith(child))
                and (key_bytes(child) > key_bytes(after) or after.startswith(child))
            ]
        elif at.startswith(prefix):
            with suppress(FileNotFoundError):  # deleted while listing
                yield at, os.stat(root + at)


def unfinished(root: str, prefix: str) -> list[Upload]:
    """Return the temporary files whose own path begins with ``prefix``; their final keys are unknown."""
    found = []
    for at, _, names in os.walk(root + prefix.rpartition("/")[0]):
        for path in (os.path.join(at, name) for name in names if is_aside(name)):
            if path.startswith(root + prefix):
                with suppress(FileNotFoundError):  # published or removed while listing
                    found.append(Upload(path[len(root) :], path, os.lstat(path).st_mtime))
    return sorted(found, key=lambda each: key_bytes(each.key))


def _children(root: str, folder: str) -> Sequence[str]:
    try:
        with os.scandir(root + folder) as entries:
            return [
                f"{folder}{entry.name}/" if entry.is_dir(follow_symlinks=False) else folder + entry.name
                for entry in entries
                if not is_aside(entry.name) and (entry.is_dir(follow_symlinks=False) or _is_file(entry))
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != ELOOP:  # a link to itself is not a file
            raise
        return False
