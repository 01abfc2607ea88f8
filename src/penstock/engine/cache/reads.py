"""Reads through the cache: hits, and reads that the store answers and the cache keeps."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.errors import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.buffer import Buffer
    from penstock.engine.cache.key import Part
    from penstock.engine.contracts.fetching import PendingRead, ReadOwner
    from penstock.errors import PenstockError
    from penstock.values import Span

__all__ = ["CachedRead", "FetchedRead", "Flight", "Request"]


class CachedRead:
    """A read without a request, complete from the beginning (see ``contracts.fetching.PendingRead``).

    Attributes:
        span: The span to read.

    """

    __slots__ = ("_data", "_target", "span")

    error: PenstockError | None = None
    attempts = 0
    retries = 0
    complete = True

    def __init__(self, span: Span, data: bytes | None, target: Buffer | None) -> None:
        """Hold bytes, or the buffer that was filled with them."""
        self.span, self._data, self._target = span, data, target

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds."""
        if self._data is not None:
            return len(self._data)
        return 0 if self._target is None else self._target.size

    def look(self) -> None:
        """Log nothing: a hit takes no time."""

    def check(self) -> None:
        """Raise nothing."""

    def take(self) -> bytes:
        """Return the bytes."""
        if self._data is not None:
            return self._data
        return b"" if self._target is None else self._target.take()


class Request(NamedTuple):
    """A range that the cache does not have.

    Attributes:
        span: The bytes of the object.
        parts: The parts in which they are kept.
        etag: The version; empty if unknown.
        object_bytes: The object's size; -1 if unknown.

    """

    span: Span
    parts: tuple[Part, ...]
    etag: str
    object_bytes: int


class Flight:
    """A read of the store, shared by all reads that want the same span at once.

    Threads that join or leave a flight share no lock with the transport's thread, which ends it: whichever thread
    removes a read from ``members`` notifies that read.

    Attributes:
        request: The range that it fetches.
        read: The store's read; set once it is prepared.
        members: Reads that wait for it.
        leader: The read that sends it.
        joinable: Whether others may wait for it: its bytes go into separate memory, not into a caller's buffer.

    """

    __slots__ = ("_ended", "joinable", "leader", "members", "read", "request")

    read: PendingRead

    def __init__(
        self, request: Request, leader: FetchedRead, ended: Callable[[Flight], None], *, joinable: bool
    ) -> None:
        """Begin with ``leader``, which sends it; ``ended`` is called first at its end."""
        self.request, self.leader, self._ended, self.joinable = request, leader, ended, joinable
        self.members: dict[FetchedRead, None] = {leader: None}

    def finished(self, _read: PendingRead) -> None:
        """Notify all members; runs on the transport's thread."""
        self._ended(self)
        while self.members:
            try:
                member, _ = self.members.popitem()
            except KeyError:  # it left meanwhile
                break
            member.landed()

    def leave(self, member: FetchedRead) -> bool:
        """Remove a member; return whether it was one."""
        return self.members.pop(member, self) is None


class FetchedRead:
    """A read of which the store delivers all or a part; the cache keeps the bytes when they are taken.

    Attributes:
        span: The span to read.
        flights: The reads of the store that it waits for.
        called_off: The error, if it was cancelled before its flights ended.
        complete: Whether it has ended.

    """

    __slots__ = (
        "_ended",
        "_keep",
        "_owner",
        "_start",
        "_target",
        "_waits",
        "called_off",
        "complete",
        "flights",
        "span",
    )

    def __init__(
        self, span: Span, target: Buffer | None, owner: ReadOwner, keep: Callable[[Flight, memoryview | bytes], None]
    ) -> None:
        """Read into ``target``, or into the flight's memory; ``keep`` receives the bytes of each flight."""
        self.span, self._target, self._owner, self._keep = span, target, owner, keep
        # The layer may replace ``span`` by the caller's, which may count from the object's end.
        self._start = span.start
        self.flights: list[Flight] = []
        self.called_off: Cancelled | None = None
        # Counts atomically, because a transport may have several threads.
        self._ended = count(1)
        self._waits = 0
        self.complete = False

    def begin(self, flights: list[Flight]) -> None:
        """Wait for these flights; those that have ended already (they failed at once) do not notify this read."""
        self.flights = flights
        self._waits = sum(not each.read.complete for each in flights)
        self.complete = not self._waits

    def join(self, flight: Flight) -> None:
        """Wait for a flight that another read has sent; the flight may end, and notify this read, from here on."""
        self.flights, self._waits = [flight], 1
        flight.members[self] = None

    def landed(self) -> None:
        """Count one more flight as ended; the last one completes the read."""
        if next(self._ended) == self._waits:
            self.complete = True
            self._owner.finished(cast("PendingRead", self))

    def abandon(self, flight: Flight) -> None:
        """Leave a flight that other reads also wait for."""
        if flight.leave(self):
            self.called_off = Cancelled("called off")
            self.landed()

    @property
    def error(self) -> PenstockError | None:
        """The first error; None if nothing failed."""
        return self.called_off or next((each.read.error for each in self.flights if each.read.error is not None), None)

    @property
    def attempts(self) -> int:
        """Number of requests made for this read, without those of flights that it joined."""
        return sum(each.read.attempts for each in self.flights if each.leader is self)

    @property
    def retries(self) -> int:
        """Number of these requests that were retries."""
        return sum(each.read.retries for each in self.flights if each.leader is self)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds; only once complete."""
        return self._target.size if self._target is not None else sum(each.read.size_bytes for each in self.flights)

    def look(self) -> None:
        """Let each flight log what delays it."""
        for each in self.flights:
            each.read.look()

    def check(self) -> None:
        """Raise the error, if any; otherwise let the cache keep the bytes."""
        if self.called_off is not None:
            raise self.called_off
        for each in self.flights:
            each.read.check()
        target = self._target
        if target is not None:
            view, start = target.view(), self._start
            for each in self.flights:
                low = max(0, each.request.span.start - start)
                self._keep(each, view[low : low + each.read.size_bytes])

    def take(self) -> bytes:
        """Return the bytes, or raise the error."""
        self.check()
        if self._target is not None:
            return self._target.take()
        (flight,) = self.flights
        data = flight.read.take()
        self._keep(flight, data)
        return data
