"""Reads that pass the cache: those that it had, and those that the store answers and it keeps."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.errors import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.buffer import Buffer
    from penstock.cache.key import Part
    from penstock.errors import PenstockError
    from penstock.protocols.fetching import PendingRead, ReadOwner
    from penstock.values import Span

__all__ = ["CachedRead", "FetchedRead", "Flight", "Request"]


class CachedRead:
    """A read that needed no request; complete from the beginning (see ``protocols.fetching.PendingRead``).

    Attributes:
        span: What is read.

    """

    __slots__ = ("_data", "_target", "span")

    error: PenstockError | None = None
    attempts = 0
    retries = 0
    complete = True

    def __init__(self, span: Span, data: bytes | None, target: Buffer | None) -> None:
        """Hold bytes, or the memory that was filled with them."""
        self.span, self._data, self._target = span, data, target

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds."""
        if self._data is not None:
            return len(self._data)
        return 0 if self._target is None else self._target.size

    def look(self) -> None:
        """Log nothing: it took no time."""

    def check(self) -> None:
        """Raise nothing."""

    def take(self) -> bytes:
        """Return the bytes."""
        if self._data is not None:
            return self._data
        return b"" if self._target is None else self._target.take()


class Request(NamedTuple):
    """Something that the cache does not have.

    Attributes:
        span: Which bytes of the object.
        parts: The parts that they are kept as.
        etag: The version; empty where that is not known.
        object_bytes: The object's size; -1 where that is not known.

    """

    span: Span
    parts: tuple[Part, ...]
    etag: str
    object_bytes: int


class Flight:
    """One read of the store, for all who want the same at once.

    Threads that join or leave it, and the transport's thread, which ends it, share no lock: the one that takes a member
    out of ``members`` tells it.

    Attributes:
        request: What it brings.
        read: The store's; set once it is prepared.
        members: Reads that wait for it.
        leader: The read that sends it.
        joinable: Whether others may wait for it: what it brings lies in memory of its own.

    """

    __slots__ = ("_ended", "joinable", "leader", "members", "read", "request")

    read: PendingRead

    def __init__(
        self, request: Request, leader: FetchedRead, ended: Callable[[Flight], None], *, joinable: bool
    ) -> None:
        """Begin with ``leader``, which sends it; ``ended`` is told first of its end."""
        self.request, self.leader, self._ended, self.joinable = request, leader, ended, joinable
        self.members: dict[FetchedRead, None] = {leader: None}

    def finished(self, _read: PendingRead) -> None:
        """Tell all members, on the transport's thread."""
        self._ended(self)
        while self.members:
            try:
                member, _ = self.members.popitem()
            except KeyError:  # it left meanwhile
                break
            member.landed()

    def leave(self, member: FetchedRead) -> bool:
        """Take a member out; says whether it was one."""
        return self.members.pop(member, self) is None


class FetchedRead:
    """A read for which the store is asked for all or a part; what comes is kept when it is taken.

    Attributes:
        span: What is read.
        flights: What the store is asked for.
        called_off: Why it ended before its flights did.
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
        """Read into ``target``, or into memory of the flight's; ``keep`` is given what a flight has brought."""
        self.span, self._target, self._owner, self._keep = span, target, owner, keep
        self._start = span.start  # ``span`` may become that of a caller who counts from the object's end
        self.flights: list[Flight] = []
        self.called_off: Cancelled | None = None
        self._ended = count(1)  # counts in one step: a transport may have several threads
        self._waits = 0
        self.complete = False

    def begin(self, flights: list[Flight]) -> None:
        """Wait for these; those that have ended already (they failed at once) are not told of."""
        self.flights = flights
        self._waits = sum(not each.read.complete for each in flights)
        self.complete = not self._waits

    def join(self, flight: Flight) -> None:
        """Wait for a flight that another read has sent; it may end, and tell of it, from here on."""
        self.flights, self._waits = [flight], 1
        flight.members[self] = None

    def landed(self) -> None:
        """Take note that one more flight has ended."""
        if next(self._ended) == self._waits:
            self.complete = True
            self._owner.finished(cast("PendingRead", self))

    def abandon(self, flight: Flight) -> None:
        """Leave a flight that others wait for, too."""
        if flight.leave(self):
            self.called_off = Cancelled("called off")
            self.landed()

    @property
    def error(self) -> PenstockError | None:
        """Return what went wrong."""
        return self.called_off or next((each.read.error for each in self.flights if each.read.error is not None), None)

    @property
    def attempts(self) -> int:
        """Return how many requests were made for it: of a flight that it has joined none."""
        return sum(each.read.attempts for each in self.flights if each.leader is self)

    @property
    def retries(self) -> int:
        """Return how many of them repeated another one."""
        return sum(each.read.retries for each in self.flights if each.leader is self)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes it holds; only once complete."""
        return self._target.size if self._target is not None else sum(each.read.size_bytes for each in self.flights)

    def look(self) -> None:
        """Let each flight look."""
        for each in self.flights:
            each.read.look()

    def check(self) -> None:
        """Raise what went wrong, if anything did, and else have the cache keep what came."""
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
        """Return the bytes, or raise what went wrong."""
        self.check()
        if self._target is not None:
            return self._target.take()
        (flight,) = self.flights
        data = flight.read.take()
        self._keep(flight, data)
        return data
