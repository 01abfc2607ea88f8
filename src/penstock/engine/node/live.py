"""Descriptions of running loops, for the command that watches them: each is a file of the process that runs the loop.

A watcher marks that it asks; a loop looks for the mark after a batch, at most twice a second, and describes itself only
then. The files are in the node's folder, so they are this user's alone. A process holds a lock on its files, which
the kernel releases with the process: files without one are of processes that were killed.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import finalize

from penstock.engine.node.member import directory, open_directory
from penstock.errors import ConfigError, Damaged
from penstock.schema import read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_EVERY_S: Final = 0.5
# Seconds for which a watcher's mark counts.
_ASKED_S: Final = 5.0
_MARK: Final = "watched"
_PREFIX: Final = "loop-"
_MOST_BYTES: Final = 4 << 20
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_numbers = count(1)


class Description(NamedTuple):
    """State of a loop as it described itself last, at ``written`` (seconds since 1970).

    ``number`` counts the loops of its process from 1. ``values`` is empty where it has not been asked, or has made no
    step since.
    """

    process: int
    number: int
    written: float
    values: dict[str, Any]


class Live:
    """Description of a loop of this process, which exists until ``close`` or the process's end.

    Errors of the file system, a full disk for example, leave the loop without a description.
    """

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe
        self._where: Path | None = None
        self._descriptor = -1
        self._next_s = 0.0
        self._begun = False
        self._process = os.getpid()

    @property
    def inherited(self) -> bool:
        return self._process != os.getpid()

    def note(self) -> None:
        """Announce the loop the first time, and describe it whenever a watcher asks."""
        now_s = monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        # A description must not end what it describes, whatever goes wrong.
        with suppress(Exception):
            if not self._begun:
                self._begun = True
                self._open()
            elif self._where is not None and _asked(self._where):
                data = json.dumps(self._describe()).encode()
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, data, 0)

    def _open(self) -> None:
        where = directory(os.environ)
        if where is None:
            return
        name = f"{self._process}-{next(_numbers)}.json"
        folder = open_directory(where)
        try:
            self._descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
            finalize(self, _remove, where / f"{_PREFIX}{name}", self._descriptor, self._process)
            # A watcher takes a file without a lock for one of a process that was killed.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._descriptor, b"{}", 0)
            os.rename(name, f"{_PREFIX}{name}", src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
        self._where = where


def _remove(path: Path, descriptor: int, process: int) -> None:
    with suppress(OSError):
        os.close(descriptor)
        # A forked child has inherited the object, not the loop.
        if process == os.getpid():
            path.unlink(missing_ok=True)


def _asked(where: Path) -> bool:
    try:
        return time() - (where / _MARK).stat().st_mtime < _ASKED_S
    except OSError:
        return False


def ask() -> Path | None:
    """Ask the loops of this user on this machine to describe themselves; return the directory they share, if any."""
    where = directory(os.environ)
    if where is None:
        return None
    try:
        folder = open_directory(where)
        try:
            os.close(os.open(_MARK, _NEW, 0o600, dir_fd=folder))
            os.utime(_MARK, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(f"cannot use {where}: {error.strerror}") from error
    return where


def running(where: Path) -> list[Description]:
    """Return the loops that are described in a directory, by process; remove files of processes that were killed.

    A file of this process must not be among them: closing it would release its lock.
    """
    found: list[Description] = []
    for path in sorted(where.glob(f"{_PREFIX}*-*.json")):
        with suppress(Damaged, OSError, ValueError):
            process, number = (int(each) for each in path.stem.removeprefix(_PREFIX).split("-"))
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if _is_unlocked(descriptor):
                    path.unlink(missing_ok=True)
                    continue
                # Shorter while it is being written: the next look finds it whole.
                values = read_json(os.pread(descriptor, _MOST_BYTES, 0), dict, "the description of a loader", str(path))
                found.append(Description(process, number, os.fstat(descriptor).st_mtime, values))
            finally:
                os.close(descriptor)
    return sorted(found, key=lambda each: (each.process, each.number))


def _is_unlocked(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
