"""What readers ask of the thing that fetches for them: a store's engine, or a layer (a cache, say) before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.buffer import Buffer
    from penstock.errors import PenstockError
    from penstock.values import Span

__all__ = ["CachedFetching", "Fetching", "PendingRead", "ReadCounts", "ReadOwner"]


class PendingRead(Protocol):
    """A read on its way.

    Attributes:
        span: What is read.
        error: What went wrong, once complete; None where nothing did.
        attempts: Requests that were made for it, repeated ones included; 0 where none was needed.
        retries: How many of these repeated another one.

    """

    span: Span
    error: PenstockError | None
    attempts: int
    retries: int

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds; only once complete."""

    @property
    def complete(self) -> bool:
        """Say whether it has ended; set before its owner is told."""

    def look(self) -> None:
        """Log what it has met with, if it takes long; called about once a second by the thread that waits for it."""

    def check(self) -> None:
        """Raise what went wrong, if anything did; only once complete."""

    def take(self) -> bytes:
        """Return the bytes, or raise what went wrong; only once complete."""


@dataclass(slots=True)
class ReadCounts:
    """Reads that one thread has taken, in sum; any thread may look.

    Attributes:
        requests: Requests that were made for them, repeated ones included.
        retries: How many of these repeated another one.
        errors: Reads that failed in the end.
        size_bytes: Bytes of the others.
        cached: Reads that needed no request, because a cache had them.
        waiting_s: Seconds that the thread waited for bytes.
        starved_s: How many of these seconds the budget of bytes or items allowed fewer reads than the transport
            carries at once.
        opening_s: Seconds before the first requests were on their way: modules, credentials, a thread for requests.

    """

    requests: int = 0
    retries: int = 0
    errors: int = 0
    size_bytes: int = 0
    cached: int = 0
    waiting_s: float = 0.0
    starved_s: float = 0.0
    opening_s: float = 0.0


class ReadOwner(Protocol):
    """Who is told that a read has ended: an ``Inbox``, or a layer that passes it on to one."""

    def finished(self, read: PendingRead, /) -> None:
        """Take note that ``read`` is complete; on any thread, without blocking."""


class Fetching(Protocol):
    """Fetches spans of one store's objects, many at once: prepare, send, and wait at the owner.

    Reads are prepared first and sent then, so that the sender holds them already when Ctrl-C comes meanwhile. Methods
    may be called from any thread. A fetching belongs to one process: after a fork the child makes its own.
    """

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: ReadOwner) -> list[PendingRead]:
        """Return a read of each span, in order, into its buffer (of the span's size) or memory of its own.

        What needs no request (it is in a cache, say) is complete at once, and ``owner`` hears nothing of it.
        ``Unusable`` where a buffer has another size than its span. May block for credentials or a HEAD.
        """

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Send those of the prepared reads that are not complete; returns at once."""

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off; returns at once. One that had begun may write into its memory a while longer."""

    def stop_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off and wait until none of them writes into its buffer any more, nor ever will."""

    def concurrency(self) -> int:
        """Return how many requests are under way at once, at most, at present."""


@runtime_checkable
class CachedFetching(Protocol):
    """What a ``Fetching`` has besides where a cache stands before the engine."""

    def contains(self, span: Span) -> bool:
        """Say whether a read of ``span`` would need no request for its bytes, at present."""

    def room_bytes(self) -> int:
        """Return how many bytes fit into the cache without giving anything up."""
