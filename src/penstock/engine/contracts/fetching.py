"""Contract between readers and the fetcher below them: a store's engine, or a layer in front of it, such as a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.buffer import Buffer
    from penstock.errors import PenstockError
    from penstock.values import Span


class ReadOperation(Protocol):
    """A read in progress.

    Attributes:
        span: The span to read.
        error: The error, once complete; None if the read succeeded.
        attempts: Requests made for it, including retries; 0 if none was needed.
        retries: Number of these that were retries.
        version: Version of the object that the bytes are of, once complete: that of the span, else the one that the
            answer named, or that the cache recorded. Empty if the store names none to which later reads can be pinned.
    """

    span: Span
    error: PenstockError | None
    attempts: int
    retries: int
    version: str

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes read; only once complete."""

    @property
    def complete(self) -> bool:
        """Whether it has ended; set before its owner is notified."""

    def look(self) -> None:
        """Log the cause of a delay, if it takes long; called about once a second by the thread that waits for it."""

    def check(self) -> None:
        """Raise the error, if any; only once complete."""

    def take(self) -> bytes:
        """Return the bytes, or raise the error; only once complete."""


@dataclass(slots=True)
class ReadCounts:
    """Totals of the reads that one thread has taken; any thread may read them.

    Attributes:
        requests: Requests made for them, including retries.
        retries: Number of these that were retries.
        errors: Reads that failed after all retries.
        size_bytes: Bytes of the successful reads.
        cached: Reads that a cache, or another worker process, served without a request.
        read_bytes: Bytes of the successful reads that needed a request.
        waiting_s: Seconds that the thread waited for bytes.
        starved_s: Part of these seconds in which the budget of bytes or items allowed fewer reads than the transport
            carries at once.
        opening_s: Seconds before the first requests were sent: modules, credentials, a thread for requests.
    """

    requests: int = 0
    retries: int = 0
    errors: int = 0
    size_bytes: int = 0
    cached: int = 0
    read_bytes: int = 0
    waiting_s: float = 0.0
    starved_s: float = 0.0
    opening_s: float = 0.0


class Owner(Protocol):
    """The receiver of a read's end: an ``Inbox``, or a layer that passes it on to one."""

    def finished(self, read: ReadOperation, /) -> None:
        """Record that ``read`` is complete; called on any thread, must not block."""


class Fetching(Protocol):
    """A reader of spans of one store's objects, many at once: prepare, send, and wait at the owner.

    Reads are prepared before they are sent, so that the sender already holds them if Ctrl-C comes in between. Methods
    may be called from any thread. An instance belongs to one process: after a fork the child makes a new one.
    """

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        """Return a read of each span, in order, into its buffer (of the span's size) or into new memory.

        A read that needs no request (it is in a cache, say) is complete at once, and ``owner`` is not notified of it.
        ``Unusable`` if a buffer's size differs from its span's. May block for credentials or a HEAD.
        """

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Send the prepared reads that are not complete; returns at once."""

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads; returns at once. A read that had begun may still write into its memory for a while."""

    def stop_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads and wait until none of them can still write into its buffer."""

    def concurrency(self) -> int:
        """Return how many requests may currently be in flight at once."""


@runtime_checkable
class CachedFetching(Protocol):
    """Additional methods of a ``Fetching`` with a cache in front of the engine."""

    def contains(self, span: Span) -> bool:
        """Return whether a read of ``span`` would currently need no request for its bytes."""

    def room_bytes(self) -> int:
        """Return how many bytes fit into the cache without evicting anything."""
