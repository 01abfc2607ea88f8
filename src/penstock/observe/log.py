"""Events as records of Python's logging, by default at DEBUG, or as lines of JSON appended to a file."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import Unusable
from penstock.observe.sink import AppendedFile, named_path, process, sentence, serialize_record
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.observe.sink import Record


@dataclass(frozen=True)
class Log:
    """A log record for each event, made on a separate thread, so that handlers never delay a request.

    Warnings about retries and stalls need no sink: the logger ``penstock`` always has them.

    Attributes:
        level: Level of the records; the logger must enable it: ``logging.getLogger("penstock").setLevel("DEBUG")``.
        name: Name of the logger.

    Raises:
        Unusable: The level is not a number, or the name is not a text.

    Example:
        >>> import logging
        >>> from penstock.observe import Log, to
        >>> logging.getLogger("penstock.events").setLevel(logging.DEBUG)
        >>> with to(Log()):
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
    """

    level: int = logging.DEBUG
    name: str = "penstock.events"
    events: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse values that logging would reject for each record."""
        whole(self.level, "a log's level (logging.DEBUG, say)")
        if not isinstance(self.name, str):
            raise Unusable(f"a logger's name must be a str, got {self.name!r}")

    def open(self, *, first: bool) -> _LogWriter:  # noqa: ARG002  a sink's signature
        """Return a writer for the logger."""
        return _LogWriter(logging.getLogger(self.name), self.level)


class _LogWriter:
    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger, self._level = logger, level

    def write(self, records: Sequence[Record]) -> None:
        if not self._logger.isEnabledFor(self._level):
            return
        for record in records:
            event = record.event
            text = self._logger.name, self._level, "penstock", 0, sentence(event), (), None
            made = self._logger.makeRecord(*text, extra={"event": event})
            made.created, made.msecs = record.at_ns / 1e9, record.at_ns // 1_000_000 % 1000
            self._logger.handle(made)

    def close(self) -> None:
        """Do nothing: the logger stays open."""

    def leave(self) -> None:
        """Do nothing: the logger stays open."""


@dataclass(frozen=True)
class JsonLines:
    """A line of JSON for each event, appended to a file: the event's fields, ``time``, ``pid`` and ``event``.

    Worker processes append whole lines to the same file. On a network file system, give each process a separate file:
    ``JsonLines("events-{pid}.jsonl")``.

    Attributes:
        path: The file; ``{pid}`` and ``{rank}`` are filled in by each process.

    Example:
        >>> from penstock.observe import JsonLines, to
        >>> with to(JsonLines("events.jsonl")):
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> import json
        >>> [json.loads(line)["event"] for line in open("events.jsonl")][0]
        'RequestStarted'
    """

    path: str | os.PathLike[str]
    events: ClassVar[bool] = True

    def open(self, *, first: bool) -> _LineWriter:  # noqa: ARG002  a sink's signature
        """Return a writer of the file, opened or created; raise ``OSError`` if that fails."""
        return _LineWriter(AppendedFile(named_path(self.path)))


class _LineWriter:
    def __init__(self, file: AppendedFile) -> None:
        self._file = file
        self._where = process()

    def write(self, records: Sequence[Record]) -> None:
        lines = [json.dumps(serialize_record(record, self._where), default=str) for record in records]
        self._file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def close(self) -> None:
        self._file.close()

    def leave(self) -> None:
        self._file.close()
