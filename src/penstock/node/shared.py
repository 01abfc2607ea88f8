"""The file that the processes of a node share: read and written a few times a second, and never waited for."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import replace
from errno import EBADF, ENOSPC
from secrets import randbits
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError
from penstock.node.place import FILE, open_file
from penstock.node.table import HEADER, MEMBERS, SIZE, Row, Table, member_at, rate_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.node.table import Group

__all__ = ["Shared"]

_FRESH_S: Final = 2.0  # a row this new is a living process's
_EVERYONE: Final = 0  # the byte whose lock is for all; the ones after it tell which processes live


class Shared:
    """One process's place in the file. Not thread-safe, and of one process: a forked child makes its own.

    It is read and written by system calls, not mapped: whatever becomes of the file meanwhile (it is truncated, its
    disk is full) is an error of one call. Locks are POSIX record locks, which a child does not inherit and the kernel
    releases when a process ends, however that happens. So a place is free when its lock is.

    Attributes:
        where: The directory.

    """

    def __init__(self, where: Path) -> None:
        """Open it, and take no place yet; ``ConfigError`` or OSError where that cannot be."""
        self.where = where
        self._nonce = randbits(63) + 1
        self._place: int | None = None
        self._descriptor = open_file(where)
        found = os.fstat(self._descriptor)
        self._identity = found.st_dev, found.st_ino

    def close(self) -> None:
        """Give the place back, for the next process."""
        if self._there():
            os.close(self._descriptor)  # its locks go with it
        self._descriptor = -1

    def there(self) -> bool:
        """Say whether this is the file that other processes find: not once its directory was removed."""
        try:
            found = (self.where / FILE).stat(follow_symlinks=False)
        except OSError:
            return False
        return self._there() and (found.st_dev, found.st_ino) == self._identity

    def _there(self) -> bool:
        """Say whether the descriptor is still its own: daemons close all."""
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Exclude all other processes; False where one of them is within just now: come again later.

        OSError where the descriptor is another file's by now: that one is not touched.
        """
        if not self._there():
            raise OSError(EBADF, "this process closed its files", str(self.where / FILE))
        if not self._try(_EVERYONE):
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _EVERYONE)

    def read(self) -> Table:
        """Return what the file says, which is begun if it is empty; only while ``locked``."""
        data = os.pread(self._descriptor, SIZE, 0)
        if len(data) < SIZE and data[: len(HEADER)] == HEADER[: len(data)]:  # empty, or its writer was killed
            data = HEADER + bytes(SIZE - len(HEADER))  # all of it, lest a disk is full later
            if os.pwrite(self._descriptor, data, 0) < SIZE:
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.where / FILE))
        if len(data) != SIZE or not data.startswith(HEADER):
            raise ConfigError(f"{self.where / FILE} is not Penstock's, or broken: remove it")
        return Table.unpack(data)

    def living(self, table: Table, now: float) -> dict[int, Row]:
        """Return the rows of other processes that live, and empty those of the dead; only while ``locked``."""
        rows = {}
        for place, row in table.rows.items():
            if place == self._place and row.nonce == self._nonce:
                continue
            if not 0 <= now - row.seen_at <= _FRESH_S and self._try(1 + place):
                os.pwrite(self._descriptor, Row().pack(), member_at(place))
                if place != self._place:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, 1 + place)
                continue
            rows[place] = row
        return rows

    def write(self, row: Row, rows: dict[int, Row]) -> bool:
        """Show what this process asks for; False where there is no place for it. Only while ``locked``.

        ``rows`` are the others that live.
        """
        if self._place is None or self._place in rows or not self._try(1 + self._place):
            free = (place for place in range(MEMBERS) if place not in rows and self._try(1 + place))
            self._place = next(free, None)
        if self._place is None:
            return False
        named = replace(row, nonce=self._nonce, process=os.getpid())
        os.pwrite(self._descriptor, named.pack(), member_at(self._place))
        return True

    def keep(self, groups: dict[int, Group]) -> None:
        """Write groups to their places; only while ``locked``."""
        for place, group in groups.items():
            os.pwrite(self._descriptor, group.pack(), rate_at(place))

    def _try(self, at: int) -> bool:
        """Take the lock of one byte, if it is free or this process's already; never waits."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
        return True
