"""Batch write of small files, each atomic (temporary file, flush, rename); folders are flushed once for all."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError
from penstock.stores.local.aside import begin, flush, inherit, most_kept, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["NewFile", "set_time", "write_all", "write_files"]


class NewFile(NamedTuple):
    """File to be written: its path, its bytes, metadata (only ``mtime`` counts), and the function that renames it."""

    path: str
    data: bytes | bytearray | memoryview
    metadata: Mapping[str, str]
    rename: Callable[[str, str], None] = os.replace


def write_files(files: Sequence[NewFile]) -> list[os.stat_result | OSError | ValueError | PenstockError]:
    """Write files, and return for each its status or the error.

    All are written before the first is flushed, and all are flushed before the first is renamed: on most file systems
    the first flush commits the data of the others, too.
    """
    most = most_kept()
    begun = [_Aside(file, name, most) for file, name in zip(files, names(len(files)), strict=True)]
    try:
        for stage in (_Aside.write, _Aside.settle, _Aside.publish):
            _each(begun, stage)
        folders: dict[str, list[_Aside]] = {}
        for aside in begun:
            folders.setdefault(aside.file.path.rpartition("/")[0], []).append(aside)
        for folder, inside in folders.items():
            _flush(folder, inside)
    finally:
        for aside in begun:
            aside.close()
    return [aside.error or aside.found for aside in begun]


class _Aside:
    """File that is being written.

    Attributes:
        file: The requested file.
        found: Status of the file, once it is settled.
        error: Error that prevented the write.

    """

    __slots__ = ("_descriptor", "_most", "_name", "_old", "_path", "error", "file", "found")

    def __init__(self, file: NewFile, name: str, most: int) -> None:
        """Begin with nothing: ``name`` is the temporary file's; descriptors from ``most`` on are not kept open."""
        self.file = file
        self._name, self._most = name, most
        self.found: os.stat_result
        self.error: OSError | ValueError | PenstockError | None = None
        self._path = ""
        self._descriptor = -1
        self._old: os.stat_result | None = None

    def write(self) -> None:
        self._path, self._descriptor, self._old = begin(self.file.path, self._name)
        write_all(self._descriptor, self.file.data, 0)
        set_time(self._descriptor, self.file.metadata)
        if self._descriptor >= self._most:
            self._let_go()

    def settle(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if self._old is not None:
            inherit(self._descriptor, self._old)
        os.fsync(self._descriptor)
        self.found = os.fstat(self._descriptor)
        self._let_go()

    def publish(self) -> None:
        self.file.rename(self._path, self.file.path)
        self._path = ""

    def close(self) -> None:
        """Close the descriptor, and remove a file that was not published."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._let_go()
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _each(begun: Iterable[_Aside], stage: Callable[[_Aside], None]) -> None:
    for aside in begun:
        if aside.error is None:
            try:
                stage(aside)
            except (OSError, ValueError, PenstockError) as error:
                aside.error = error


def _flush(folder: str, inside: Sequence[_Aside]) -> None:
    try:
        if any(aside.error is None for aside in inside):
            flush(folder)
    except OSError as error:
        for aside in inside:
            aside.error = aside.error or error


def write_all(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write bytes at an offset."""
    view, done = memoryview(data).cast("B"), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def set_time(descriptor: int, metadata: Mapping[str, str]) -> None:
    """Set a file's modification time to ``mtime`` of the metadata, if there is one: seconds since the epoch."""
    if "mtime" not in metadata:
        return
    with suppress(ValueError, OverflowError):  # not a valid time
        nanoseconds = round(float(metadata["mtime"]) * 1e9)
        os.utime(descriptor, ns=(nanoseconds, nanoseconds))
