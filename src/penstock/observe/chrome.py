"""Requests and operations as a trace in Chrome's format, which Perfetto and ``chrome://tracing`` show."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.errors import Unusable
from penstock.events import OperationEnded, OperationStarted, RequestEnded, RequestStarted, Retried
from penstock.observe.sink import AppendedFile, named_path, serialize_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.observe.sink import Record

_END: Final = b"\n]\n"
# First row of operations; the rows of requests begin at 1.
_OPERATIONS: Final = 100_000
# Maximum number of open starts, which bounds the memory of starts whose ends were dropped.
_MOST_OPEN: Final = 100_000


@dataclass(frozen=True)
class ChromeTrace:
    """A trace file: by process, a row for each request in flight, coloured by verb, and rows for operations.

    Open it at https://ui.perfetto.dev. Worker processes append to the same file. When the last process closes it, the
    file is a complete JSON array; after a kill, the closing bracket is missing, which viewers accept. An existing trace
    is replaced, unless another process (another rank, say) is writing it.

    Attributes:
        path: The file; ``{pid}`` and ``{rank}`` are filled in by each process.

    Example:
        >>> from penstock.observe import ChromeTrace, to
        >>> with to(ChromeTrace("trace.json")):
        ...     meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> import json
        >>> any(each["name"] == "head" for each in json.load(open("trace.json")))
        True
    """

    path: str | os.PathLike[str]
    events: ClassVar[bool] = True

    def open(self, *, first: bool) -> _ChromeWriter:
        """Return a writer of the file, opened or created; raise ``Unusable`` if the file is not a trace."""
        return _ChromeWriter(AppendedFile(named_path(self.path)), first=first)


class _ChromeWriter:
    def __init__(self, file: AppendedFile, *, first: bool) -> None:
        self._file = file
        self._pid = os.getpid()
        self._rows = {"request": _TraceRows(1), "operation": _TraceRows(_OPERATIONS)}
        self._begun: dict[tuple[int, int], tuple[int, int]] = {}  # (id, attempt) -> row, nanoseconds
        try:
            self._begin(first=first)
        except BaseException:
            file.close()
            raise

    def _begin(self, *, first: bool) -> None:
        file = self._file
        if file.alone():
            if file.size() and file.head(1) != b"[":
                raise Unusable(f"{file.path} exists, and is not a trace: name another file")
            if first:
                file.cut(0)
            elif file.tail(len(_END)) == _END:  # other processes have closed it
                file.cut(file.size() - len(_END))
        else:
            # Waits until the process with the exclusive lock has written the head.
            file.share()
        rank = os.environ.get("RANK")
        name = f"penstock {self._pid}" + (f", rank {rank}" if rank else "")
        mark = b",\n" if file.size() else b"[\n"
        file.write(mark + json.dumps(self._meta("process_name", name)).encode())
        file.share()

    def _meta(self, kind: str, name: str, row: int = 0) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": self._pid, "tid": row, "args": {"name": name}}

    def write(self, records: Sequence[Record]) -> None:
        made = [shown for record in records for shown in self._shown(record)]
        if made:
            self._file.write(b"".join(b",\n" + json.dumps(each, default=str).encode() for each in made))

    def _shown(self, record: Record) -> Iterator[dict[str, Any]]:
        event = record.event
        match event:
            case RequestStarted():
                yield from self._start(record, "request", (event.id, event.attempt))
            case OperationStarted():
                yield from self._start(record, "operation", (event.id, 0))
            case RequestEnded():
                yield from self._end(record, "request", (event.id, event.attempt), event.verb)
            case OperationEnded():
                yield from self._end(record, "operation", (event.id, 0), event.kind)
            case Retried():
                yield {**self._point(record), "name": "retry"}

    def _start(self, record: Record, kind: str, key: tuple[int, int]) -> Iterator[dict[str, Any]]:
        if len(self._begun) >= _MOST_OPEN:
            return
        row, new = self._rows[kind].take()
        self._begun[key] = row, record.at_ns
        if new:
            yield self._meta("thread_name", f"{kind}s {row % _OPERATIONS:03d}", row)

    def _end(self, record: Record, kind: str, key: tuple[int, int], name: str) -> Iterator[dict[str, Any]]:
        begun = self._begun.pop(key, None)
        if begun is None:
            # The start came before this trace, or was dropped.
            return
        row, at_ns = begun
        self._rows[kind].give(row)
        span = {"ph": "X", "ts": at_ns / 1e3, "dur": (record.at_ns - at_ns) / 1e3, "tid": row, "name": name}
        yield {**self._point(record), **span, "cat": kind}

    def _point(self, record: Record) -> dict[str, Any]:
        args = serialize_record(record, {})
        for known in ("time", "event"):
            del args[known]
        return {"ph": "i", "ts": record.at_ns / 1e3, "pid": self._pid, "tid": 0, "s": "p", "args": args}

    def close(self) -> None:
        try:
            if self._file.alone():
                self._file.write(_END)
        finally:
            self._file.close()

    def leave(self) -> None:
        with suppress(OSError):
            self._file.close()


class _TraceRows:
    """Allocator of rows of a trace: the lowest free row, so that overlapping spans have different rows."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._free: list[int] = []

    def take(self) -> tuple[int, bool]:
        if self._free:
            return heappop(self._free), False
        self._next += 1
        return self._next - 1, True

    def give(self, row: int) -> None:
        heappush(self._free, row)
