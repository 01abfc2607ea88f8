"""A file to which several processes append: one write for each whole piece."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from socket import gethostname
from typing import Final

from penstock.errors import Unusable

__all__ = ["AppendedFile", "filled", "named_path"]

_MODE: Final = 0o644


def named_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path with ``{pid}`` and ``{rank}`` (``RANK`` of the environment, default 0) filled in.

    Raises:
        Unusable: The path has another name in braces.

    """
    text = os.fspath(path)
    try:
        text = text.format(pid=os.getpid(), rank=os.environ.get("RANK", "0"))
    except (KeyError, IndexError, ValueError) as error:
        raise Unusable(f"{text!r}: a sink's path may hold {{pid}} and {{rank}}, and no other braces") from error
    return os.path.abspath(text)  # noqa: PTH100  a worker may have another working directory


def filled(text: str) -> str:
    """Return a text with this process's ``{pid}``, ``{rank}`` and ``{host}`` filled in; other braces stay."""
    words = {"pid": str(os.getpid()), "rank": os.environ.get("RANK", "0"), "host": gethostname()}
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text


class AppendedFile:
    """A file opened for appending. Linux writes each piece whole, also if several processes append to one file.

    This holds on local file systems; on NFS, give each process a separate file (``{pid}``).
    """

    def __init__(self, path: str) -> None:
        """Open or create the file; raise ``OSError`` on failure."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Append ``data``; first append the rest of earlier data that a full disk has cut off.

        Raises:
            OSError: ``data`` was not written, or only a part of it; the rest is then kept for the next call.

        """
        if self._rest:
            self._push(self._rest)
        self._push(data)

    def _push(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                count = os.write(self._descriptor, view)
            except OSError:
                self._rest = bytes(view) if len(view) < len(data) or data is self._rest else b""
                raise
            view = view[count:]
        self._rest = b""

    def alone(self) -> bool:
        """Return whether no other process has a lock; if so, lock the file exclusively until ``share`` or ``close``."""
        # Some network file systems have no locks: other processes may have the file open.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def share(self) -> None:
        """Take a shared lock, so that ``alone`` in other processes sees that this process writes."""
        with suppress(OSError):  # see alone
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def head(self, count: int) -> bytes:
        """Return the first bytes of the file, at most ``count``."""
        return os.pread(self._descriptor, count, 0)

    def tail(self, count: int) -> bytes:
        """Return the last bytes of the file, at most ``count``."""
        return os.pread(self._descriptor, count, max(0, self.size() - count))

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes; only while ``alone``."""
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
