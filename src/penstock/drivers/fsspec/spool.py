"""Uploads in parts to filesystems that know none: they are put together in a temporary file of this machine."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

from penstock.errors import NotFound
from penstock.values import Upload

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Spool"]


class Spool:
    """The unfinished uploads of one driver, by their ids: the paths of their files, which the disk needs room for."""

    def __init__(self) -> None:
        """There are none."""
        self._uploads: dict[str, Upload] = {}

    def begin(self, key: str) -> str:
        """Return the id of a new upload."""
        descriptor, path = tempfile.mkstemp(prefix="penstock-")
        os.close(descriptor)
        self._uploads[path] = Upload(key, path, time())
        return path

    def write(self, upload: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write one part where it belongs."""
        view, done = memoryview(data).cast("B"), 0
        with open(self.path(upload), "r+b", buffering=0) as file:  # noqa: PTH123  by its descriptor
            while done < len(view):
                done += os.pwrite(file.fileno(), view[done:], offset + done)

    def path(self, upload: str) -> str:
        """Return the file of an upload; ``NotFound`` where it was completed or aborted."""
        if upload not in self._uploads:
            raise NotFound("no such upload")
        return upload

    def end(self, upload: str) -> None:
        """Remove an upload; a missing one is no error."""
        if self._uploads.pop(upload, None) is not None:
            with suppress(FileNotFoundError):
                os.unlink(upload)  # noqa: PTH108  see write

    def __iter__(self) -> Iterator[Upload]:
        """Iterate over the uploads."""
        return iter(list(self._uploads.values()))
