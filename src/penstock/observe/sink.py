"""Protocols of sinks: a sink is a plain value that names a destination, and opens a writer for it in each process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.events import Event

__all__ = ["Record", "Sink", "Writer"]


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
