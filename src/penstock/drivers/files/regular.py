"""Opens regular files only: a FIFO would block, a device may never end, and opening one may do something."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from io import FileIO

from penstock.errors import NotFound, Unusable

__all__ = ["describe", "opened", "reading", "require"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def describe(path: str) -> os.stat_result:
    """Return what is known of a regular file; links are followed.

    Raises:
        NotFound: A directory.
        Unusable: Something else that is no regular file, or a file whose size is not told.
        OSError: As ``os.stat``.

    """
    found = _readable(os.stat(path), path)
    if not found.st_size:
        with suppress(PermissionError), reading(path):  # only to see that it is as empty as it says
            pass
    return found


def reading(path: str, *, listed: bool = False) -> FileIO:
    """Open a regular file to read, unbuffered, as ``opened`` does."""
    return FileIO(opened(path, listed=listed)[0], "rb")


def opened(path: str, *, listed: bool = False) -> tuple[int, os.stat_result]:
    """Open a regular file to read; return its descriptor, and what is known of it. Never blocks.

    It is looked at before it is opened, as opening a device may do something, unless it was ``listed`` as a regular
    file; and always once it is open. Raises as ``describe``, and what ``os.open`` raises.
    """
    if not listed:
        _readable(os.stat(path), path)
    descriptor = os.open(path, _FLAGS)
    try:
        found = _readable(os.fstat(descriptor), path)
        if not found.st_size and _has_more(descriptor):
            raise Unusable("its file system does not tell its size (as in /proc): copy it to a disk first", url=path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def require(found: os.stat_result, path: str) -> None:
    """Raise ``Unusable`` where a path to be written leads to what is no regular file."""
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise Unusable(f"this is {kind}, not a regular file: name a file", url=path)


def _readable(found: os.stat_result, path: str) -> os.stat_result:
    if stat.S_ISDIR(found.st_mode):
        raise NotFound("no such file (a directory is no object)", url=path)
    require(found, path)
    return found


def _has_more(descriptor: int) -> bool:
    try:
        return bool(os.pread(descriptor, 1, 0)) and not os.fstat(descriptor).st_size  # not: written since
    except OSError:
        return False
