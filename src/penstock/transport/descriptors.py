"""This process's file descriptors: how many are left for connections, and whether they are still its own."""

from __future__ import annotations

import os
from errno import EMFILE, ENFILE
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from sys import maxsize
from typing import Final

__all__ = ["Token", "crowded", "room"]

_LEAST: Final = 4


def room() -> int:
    """Return how many connections the limit of open files leaves room for: a third of what is not in use.

    Each may need a second descriptor or a third while it looks up a name, and the user opens files, too.
    """
    most = getrlimit(RLIMIT_NOFILE)[0]
    try:
        used = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        used = 0
    return maxsize if most == RLIM_INFINITY else max(_LEAST, (most - used) // 3)


def crowded() -> str:
    """Return what to do where this process can open no further file; empty where it can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (EMFILE, ENFILE):
            most = getrlimit(RLIMIT_NOFILE)[0]
            return f"too many open files (this process may have {most}); raise the limit (ulimit -n), or close some"
    return ""


class Token:
    """A descriptor that tells whether this process's descriptors are still its own.

    ``os.closerange``, as in daemonising, closes it with all others; its number may then be another file's.
    """

    __slots__ = ("_descriptor", "_identity")

    def __init__(self) -> None:
        """Open it; OSError where no file can be opened any more."""
        self._descriptor, other = os.pipe()  # each pipe is a file of its own, which no path leads to
        os.close(other)
        self._identity = self._look()

    def close(self) -> None:
        """Close it, while no other code can have done so."""
        os.close(self._descriptor)

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def there(self) -> bool:
        """Say whether it is what was opened: about 1 µs."""
        try:
            return self._look() == self._identity
        except OSError:
            return False
