"""Opening of regular files only: a FIFO would block, a device may never end, and opening one may have effects."""

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
    """Return the status of a regular file; links are followed.

    Raises:
        NotFound: The path is a directory.
        Unusable: The path is not a regular file, or its file system does not report the file's size.
        OSError: As ``os.stat``.

    """
    found = _readable(os.stat(path), path)
    if not found.st_size:
        # Only to check that the file is really empty.
        with suppress(PermissionError), reading(path):
            pass
    return found


def reading(path: str, *, listed: bool = False) -> FileIO:
    """Open a regular file for reading, unbuffered, as ``opened`` does."""
    return FileIO(opened(path, listed=listed)[0], "rb")


def opened(path: str, *, listed: bool = False) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return its descriptor and its status. Never blocks.

    The type is checked before the open, since opening a device may have effects, unless the file was ``listed`` as a
    regular file. It is always checked again after the open. Raises as ``describe``, and the errors of ``os.open``.
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
    """Raise ``Unusable`` if a path to be written is not a regular file."""
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
        # A size now means that the byte was written since.
        return bool(os.pread(descriptor, 1, 0)) and not os.fstat(descriptor).st_size
    except OSError:
        return False
