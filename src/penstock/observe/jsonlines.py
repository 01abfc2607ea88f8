"""Events as lines of JSON, appended to a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.observe.encode import plain, process
from penstock.observe.files import AppendedFile, named_path

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.observe.sink import Record

__all__ = ["JsonLines"]


@dataclass(frozen=True)
class JsonLines:
    """A line of JSON for each event, appended to a file: the event's fields, ``time``, ``pid`` and ``event``.

    Worker processes append whole lines to the same file. On a network file system, give each process a separate file:
    ``JsonLines("events-{pid}.jsonl")``.

    Attributes:
        path: The file; ``{pid}`` and ``{rank}`` are filled in by each process.

    """

    path: str | os.PathLike[str]
    events: ClassVar[bool] = True

    def open(self, *, first: bool) -> _Writer:  # noqa: ARG002  a sink's signature
        """Open or create the file; raise ``OSError`` on failure."""
        return _Writer(AppendedFile(named_path(self.path)))


class _Writer:
    def __init__(self, file: AppendedFile) -> None:
        self._file = file
        self._where = process()

    def write(self, records: Sequence[Record]) -> None:
        lines = [json.dumps(plain(record, self._where), default=str) for record in records]
        self._file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def close(self) -> None:
        self._file.close()

    def leave(self) -> None:
        self._file.close()
