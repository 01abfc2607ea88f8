"""Protocols of sinks: a sink is a plain value that names a destination, and opens a writer for it in each process.

Encoding of events as plain values, for lines of JSON and log records.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.errors import discreet, printable
from penstock.events import Event, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = ["Record", "Sink", "Writer", "discreet_event", "plain", "process", "sentence"]


class Record(NamedTuple):
    """An event and its time.

    Attributes:
        at_ns: Time at which the event was emitted, in nanoseconds since 1970.
        event: The event.
        context: What the writer's ``capture`` returned on the thread of the event; None without one.

    """

    at_ns: int
    event: Event
    context: object = None


class Writer(Protocol):
    """A sink opened in this process; only one thread calls it."""

    def write(self, records: Sequence[Record]) -> None:
        """Write records, in the order of their events; an exception is logged, and the records are lost."""

    def close(self) -> None:
        """Write remaining data and release all resources; called once, and not in a forked child."""

    def leave(self) -> None:
        """Release this copy of a forked child without writing; the child opens the sink again."""


class Sink(Protocol):
    """A destination of records: a plain value, which can be pickled and holds nothing open.

    The attribute ``events`` says whether its writer takes events. A sink that reads counters instead adds no cost to
    requests: without a sink that takes events, no record is made.
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


def plain(record: Record, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON fields of a record: ``time`` (seconds since 1970), ``where``, ``event`` and the event's fields.

    An error is shown as its class; Penstock's errors also with their text, which holds no secret.
    """
    event = record.event
    shown: dict[str, Any] = {"time": record.at_ns / _NS, **where, "event": type(event).__name__}
    for name in _names(type(event)):
        value = getattr(event, name)
        shown[name] = named(value) if isinstance(value, BaseException) else value
    return shown


def sentence(event: Event) -> str:
    """Return an event as one line of text, its fields in their order: ``RequestEnded s3://b/k id=3 status=200``."""
    words = [type(event).__name__, event.url]
    for name in _names(type(event)):
        value = getattr(event, name)
        if name == "url" or value in ("", None):
            continue
        text = (
            named(value) if isinstance(value, BaseException) else f"{value:.6g}" if isinstance(value, float) else value
        )
        words.append(f"{name}={text}")
    # Another user's key may hold line breaks, which would forge records, and terminal escapes.
    return printable(" ".join(words))


def discreet_event(event: Event) -> Event:
    """Return an event without texts that look like a signature, a token or a password; mostly the same object."""
    texts = {name: value for name in _names(type(event)) if isinstance(value := getattr(event, name), str)}
    changed = {name: shown for name, value in texts.items() if (shown := discreet(value)) != value}
    return replace(event, **changed) if changed else event


def _names(kind: type[Event]) -> tuple[str, ...]:
    names = _known.get(kind)
    if names is None:
        names = _known[kind] = tuple(field.name for field in fields(kind))
    return names


_known: Final[dict[type[Event], tuple[str, ...]]] = {}
