"""Protocols of sinks, and their common parts: encoding of events, and files to which several processes append.

A sink is a plain value that names a destination, and opens a writer for it in each process.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.errors import Unusable, discreet, printable
from penstock.events import Event, describe_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MODE: Final = 0o644


def named_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path with ``{pid}`` and ``{rank}`` (``RANK`` of the environment, default 0) filled in."""
    text = os.fspath(path)
    try:
        text = text.format(pid=os.getpid(), rank=os.environ.get("RANK", "0"))
    except (KeyError, IndexError, ValueError) as error:
        raise Unusable(f"{text!r}: a sink's path may hold {{pid}} and {{rank}}, and no other braces") from error
    return os.path.abspath(text)  # noqa: PTH100  a worker may have another working directory


def fill_placeholders(text: str) -> str:
    """Return a text with this process's ``{pid}``, ``{rank}`` and ``{host}`` filled in; other braces stay."""
    words = {"pid": str(os.getpid()), "rank": os.environ.get("RANK", "0"), "host": gethostname()}
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text


class AppendedFile:
    """A file opened for appending. Linux writes each piece whole, also if several processes append to one file.

    This holds on local file systems; on NFS, give each process a separate file (``{pid}``).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Append ``data`` after the rest of earlier data; a rest that a full disk cuts off waits for the next call."""
        if self._rest:
            self._push(self._rest)
        self._push(data)

    def _push(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                count = os.write(self._descriptor, view)
            except OSError:
                self._rest = bytes(view) if len(view) < len(data) or data is self._rest else b""
                raise
            view = view[count:]
        self._rest = b""

    def alone(self) -> bool:
        """Return whether no other process has a lock; if so, lock the file exclusively until ``share`` or ``close``."""
        # Some network file systems have no locks: other processes may have the file open.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def share(self) -> None:
        """Take a shared lock, so that ``alone`` in other processes sees that this process writes."""
        with suppress(OSError):  # see alone
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def head(self, count: int) -> bytes:
        return os.pread(self._descriptor, count, 0)

    def tail(self, count: int) -> bytes:
        return os.pread(self._descriptor, count, max(0, self.size() - count))

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes; only while ``alone``."""
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Record(NamedTuple):
    """An event and its time.

    Attributes:
        at_ns: Time at which the event was emitted, in nanoseconds since 1970.
        event: The event.
        context: Result of the writer's ``capture`` on the thread of the event; None without one.

    Example:
        >>> from penstock.events import Committed
        >>> from penstock.observe import Record
        >>> Record(1_700_000_000_000_000_000, Committed("s3://bucket/key", 3, "etag")).event.size_bytes
        3
    """

    at_ns: int
    event: Event
    context: object = None


class Writer(Protocol):
    """A sink opened in this process; only one thread calls it.

    Example:
        >>> from penstock.observe import Writer
        >>> class Count(Writer):
        ...     records = 0
        ...     def write(self, records):
        ...         self.records += len(records)
        >>> counts = Count()
        >>> counts.write([])
        >>> counts.records
        0
    """

    def write(self, records: Sequence[Record]) -> None:
        """Write records; an exception is logged, and the records are lost.

        Args:
            records: The records, in the order of their events.
        """

    def close(self) -> None:
        """Write remaining data and release all resources; called once, and not in a forked child."""

    def leave(self) -> None:
        """Release this copy of a forked child without writing; the child opens the sink again."""


class Sink(Protocol):
    """A destination of records: a plain value, which can be pickled and holds nothing open.

    The attribute ``events`` says whether its writer takes events. A sink that reads counters instead adds no cost to
    requests: without a sink that takes events, no record is made.

    Example:
        >>> from penstock.observe import to
        >>> class Names:
        ...     events = True
        ...     def open(self, *, first):
        ...         return self
        ...     def write(self, records):
        ...         print(*(type(record.event).__name__ for record in records))
        ...     def close(self):
        ...         print("closed")
        >>> with to(Names()):
        ...     pass
        closed
    """

    @property
    def events(self) -> bool:
        """Whether its writer takes events."""

    def open(self, *, first: bool) -> Writer:
        """Return a writer for this process; ``first`` is True in the process that called ``penstock.observe.to``.

        A writer may have ``capture(event)``, which is called on the thread of an event, and must be quick.
        """


_NS: Final = 1_000_000_000


def process() -> dict[str, Any]:
    """Return the identity of this process: ``pid``, and ``rank`` if the environment has ``RANK``."""
    rank = os.environ.get("RANK")
    return {"pid": os.getpid(), **({"rank": rank} if rank else {})}


def serialize_record(record: Record, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON fields of a record: ``time`` (seconds since 1970), ``where``, ``event`` and the event's fields.

    An error is shown as its class; Penstock's errors also with their text, which holds no secret.
    """
    event = record.event
    shown: dict[str, Any] = {"time": record.at_ns / _NS, **where, "event": type(event).__name__}
    for name in event.__dataclass_fields__:
        value = getattr(event, name)
        shown[name] = describe_error(value) if isinstance(value, BaseException) else value
    return shown


def sentence(event: Event) -> str:
    """Return an event as one line of text, its fields in their order: ``RequestEnded s3://b/k id=3 status=200``."""
    words = [type(event).__name__, event.url]
    for name in event.__dataclass_fields__:
        value = getattr(event, name)
        if name == "url" or value in ("", None):
            continue
        if isinstance(value, BaseException):
            value = describe_error(value)
        words.append(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}")
    # Another user's key may hold line breaks, which would forge records, and terminal escapes.
    return printable(" ".join(words))


def discreet_event(event: Event) -> Event:
    """Return an event without texts that look like a signature, a token or a password; mostly the same object."""
    texts = {name: value for name in event.__dataclass_fields__ if isinstance(value := getattr(event, name), str)}
    changed = {name: shown for name, value in texts.items() if (shown := discreet(value)) != value}
    return replace(event, **changed) if changed else event
