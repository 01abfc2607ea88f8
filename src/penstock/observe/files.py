"""A file that several processes append to: whole pieces in one write each."""

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
    """Return an absolute path; ``{pid}`` and ``{rank}`` (``RANK`` of the environment, 0 without) are filled in.

    Raises:
        Unusable: Another name in braces.

    """
    text = os.fspath(path)
    try:
        text = text.format(pid=os.getpid(), rank=os.environ.get("RANK", "0"))
    except (KeyError, IndexError, ValueError) as error:
        raise Unusable(f"{text!r}: a sink's path may hold {{pid}} and {{rank}}, and no other braces") from error
    return os.path.abspath(text)  # noqa: PTH100  a worker may have another working directory


def filled(text: str) -> str:
    """Return a text in which this process fills in ``{pid}``, ``{rank}`` and ``{host}``; other braces stay."""
    words = {"pid": str(os.getpid()), "rank": os.environ.get("RANK", "0"), "host": gethostname()}
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text


class AppendedFile:
    """A file opened for appending. Linux writes each piece whole, also where several processes append to one file.

    That holds on local file systems; on NFS give each process a file of its own (``{pid}``).
    """

    def __init__(self, path: str) -> None:
        """Open it, or make it. ``OSError`` where that cannot be."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Append ``data``; what a full disk has cut off goes first the next time.

        Raises:
            OSError: It was not written; where it was in part, the rest is kept.

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
        """Say whether no other process has taken ``share``, and keep others from it until ``share`` or ``close``."""
        with suppress(OSError):  # some network file systems have no locks: then there may be others
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def share(self) -> None:
        """Take note, for ``alone`` in other processes, that this one writes."""
        with suppress(OSError):  # see alone
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def size(self) -> int:
        """Return how many bytes it has."""
        return os.fstat(self._descriptor).st_size

    def head(self, count: int) -> bytes:
        """Return its first bytes, ``count`` at most."""
        return os.pread(self._descriptor, count, 0)

    def tail(self, count: int) -> bytes:
        """Return its last bytes, ``count`` at most."""
        return os.pread(self._descriptor, count, max(0, self.size() - count))

    def cut(self, size: int) -> None:
        """Shorten it to ``size`` bytes; only while ``alone``."""
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close it; twice does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
