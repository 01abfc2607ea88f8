"""Counts of several processes in one folder: each writes its own, and one adds them up."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from array import array
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from penstock.events import HOST_WORDS, HostTimings, measured

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Board", "Notice", "counted"]

_EVERY_S: Final = 1.0


class Board:
    """The folder as the process sees it that adds up: its own counts, and those of the processes it has started.

    Counts of a process that has ended stay in the sums; its file is removed once it has been read.
    """

    def __init__(self, name: str) -> None:
        """Make the folder, for this user alone."""
        self.folder = folder_of(name)
        self.folder.mkdir(0o700)
        self._ended: dict[str, HostTimings] = {}
        self._lock = threading.Lock()  # of threads that ask at once

    def gather(self) -> dict[str, HostTimings]:
        """Return the counts of all processes by host."""
        with self._lock:
            found = _added(self._ended, counted())
            for path in sorted(self.folder.glob("*.json")):
                ended = not _lives(path.name)
                counts = _read(path)
                found = _added(found, counts)
                if ended:  # it was looked at before it was read: nothing was written since
                    self._ended = _added(self._ended, counts)
                    path.unlink(missing_ok=True)
            return found

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Notice:
    """What a process that was started from another one writes onto its board: once a second, and when it ends."""

    def __init__(self, name: str) -> None:
        """Begin: a thread starts."""
        self._path = folder_of(name) / f"{os.getpid()}-{token_hex(4)}.json"
        self._stop: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="penstock-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with suppress(Empty):
                self._stop.get(timeout=_EVERY_S)
                return
            self.write()

    def write(self) -> None:
        """Write the counts of this moment: whole, or not at all."""
        aside = self._path.with_suffix(".tmp")
        with suppress(OSError):  # a full disk, or the board is gone: the next time, perhaps
            aside.write_text(json.dumps({name: [*host.words] for name, host in counted().items()}), "utf-8")
            aside.replace(self._path)

    def close(self) -> None:
        """Write for the last time."""
        self._stop.put(None)
        self._thread.join(_EVERY_S)
        self.write()


def counted() -> dict[str, HostTimings]:
    """Return the counts of this process by host; those of local files, which have no host, as ``file``."""
    found: dict[str, HostTimings] = {}
    for name, host in measured().items():
        found = _added(found, {"file" if name.startswith("/") or not name else name: host})
    return found


def folder_of(name: str) -> Path:
    """Return the folder of a board; ``name`` is not to be guessed."""
    return Path(tempfile.gettempdir()) / f"penstock-metrics-{name}"


def _added(one: Mapping[str, HostTimings], other: Mapping[str, HostTimings]) -> dict[str, HostTimings]:
    sums = dict(one)
    for name, host in other.items():
        sums[name] = sums[name] + host if name in sums else host
    return sums


def _read(path: Path) -> dict[str, HostTimings]:
    try:
        table = json.loads(path.read_text("utf-8"))
        return {name: HostTimings(array("q", words)) for name, words in table.items() if len(words) == HOST_WORDS}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _lives(name: str) -> bool:
    with suppress(PermissionError, ValueError):
        try:
            os.kill(int(name.partition("-")[0]), 0)
        except ProcessLookupError:
            return False
    return True
