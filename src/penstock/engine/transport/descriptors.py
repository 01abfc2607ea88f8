"""File descriptors of this process: how many are left for connections, and whether they are still its own."""

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
    """Return how many connections fit into the limit of open files: a third of the unused descriptors.

    A connection may need a second or third descriptor while it looks up a name, and the user opens files, too.
    """
    most = getrlimit(RLIMIT_NOFILE)[0]
    try:
        used = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        used = 0
    return maxsize if most == RLIM_INFINITY else max(_LEAST, (most - used) // 3)


def crowded() -> str:
    """Return advice if this process cannot open another file, else an empty string."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (EMFILE, ENFILE):
            most = getrlimit(RLIMIT_NOFILE)[0]
            return f"too many open files (this process may have {most}); raise the limit (ulimit -n), or close some"
    return ""


class Token:
    """A descriptor that shows whether this process's descriptors are still its own.

    ``os.closerange``, as daemons call it, closes the token with all other descriptors. Its number may then belong to
    another file.
    """

    __slots__ = ("_descriptor", "_identity")

    def __init__(self) -> None:
        """Open the descriptor. Raises OSError if no more files can be opened."""
        # Each pipe is a separate file, and no path leads to it.
        self._descriptor, other = os.pipe()
        os.close(other)
        self._identity = self._look()

    def close(self) -> None:
        """Close the descriptor. Call this only while no other code can have closed it."""
        os.close(self._descriptor)

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def there(self) -> bool:
        """Return whether the descriptor is still the one that was opened; takes about 1 µs."""
        try:
            return self._look() == self._identity
        except OSError:
            return False
