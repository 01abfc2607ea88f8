"""What a sink is: a plain value that names where records go, and opens a writer for it in each process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.events import Event

__all__ = ["Record", "Sink", "Writer"]


class Record(NamedTuple):
    """An event and when it happened.

    Attributes:
        at_ns: Nanoseconds since 1970, when the event was emitted.
        event: What happened.
        context: What the writer's ``capture`` returned on the thread of the event; None without one.

    """

    at_ns: int
    event: Event
    context: object = None


class Writer(Protocol):
    """A sink that was opened in this process. One thread calls it."""

    def write(self, records: Sequence[Record]) -> None:
        """Write records, in the order in which they happened; what it raises is logged, and the records are lost."""

    def close(self) -> None:
        """Write what is left and let go; it is called once, and not in a forked child."""

    def leave(self) -> None:
        """Let go without writing: this is the copy that a forked child has, which opens the sink anew."""


class Sink(Protocol):
    """Where records go. It is a plain value: it can be pickled, and holds nothing that is open.

    ``events`` (an attribute) says whether its writer takes events. One that reads counters instead costs requests
    nothing: without a sink that takes events no record is made.
    """

    @property
    def events(self) -> bool:
        """Whether its writer takes events."""

    def open(self, *, first: bool) -> Writer:
        """Return a writer for this process; ``first`` says that it is the one that called ``penstock.observe.to``.

        A writer may have ``capture(event)``, which is called on the thread where an event happens, and has to be quick.
        """
