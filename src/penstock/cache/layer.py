"""Reads one store through a cache: what the cache has costs no request, and what the store sends is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.buffer import Buffer
from penstock.cache.key import Part
from penstock.cache.objects import ALL, CachedObjects, Place
from penstock.cache.reads import CachedRead, FetchedRead, Flight, Request
from penstock.cache.tiers import open_cache
from penstock.events import CacheHit, CacheMiss, emit, listening
from penstock.values import UNKNOWN_SIZE, Span

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from penstock.cache.files import Hit
    from penstock.cache.objects import Stat
    from penstock.cache.tiers import Cache
    from penstock.options import CacheOptions
    from penstock.protocols.fetching import Fetching, PendingRead, ReadOwner
    from penstock.values import ObjectMeta

    Wanted = tuple[Span, Buffer | None]

__all__ = ["CacheLayer", "cached"]


def cached(
    options: CacheOptions | None,
    fetching: Fetching,
    address: tuple[Hashable, ...],
    stat: Stat,
) -> Fetching:
    """Return what reads ask instead of ``fetching``; ``address`` is that of the key "" (``Source.address``).

    That is ``fetching`` without options; and of a store in this process's memory: others have another of its name.
    """
    *store, base = address
    if options is None or store[0] == "memory":
        return fetching
    return CacheLayer(fetching, open_cache(options), Place(tuple(store), f"{store[0]}://{store[1]}/", str(base), stat))


class CacheLayer:
    """A ``Fetching`` before another one.

    Objects up to a block are kept whole, longer ones in blocks; other ranges as they are read, cut at blocks. Reads of
    a known version are served from it alone. Entries are written on the thread that takes the bytes.

    Attributes:
        cache: Where entries lie.

    """

    def __init__(self, fetching: Fetching, cache: Cache, place: Place) -> None:
        """Read through ``cache`` what ``fetching`` brings."""
        self.cache = cache
        self._below = fetching
        self._stat = place.stat
        self._objects = CachedObjects(cache, place)
        self._block_bytes = cache.options.block_bytes
        self._mode = cache.options.mode
        self._flights: dict[Span, Flight] = {}  # by what they read, into memory of their own

    def prepare_reads(self, wanted: Iterable[Wanted], owner: ReadOwner) -> list[PendingRead]:
        """Return reads: complete where the cache has all of it."""
        wanted = [*wanted]
        pinned = self._versions([span for span, _ in wanted]) if self._mode == "revalidate" else {}
        reads: list[CachedRead | FetchedRead | None] = []
        passed: list[Wanted] = []
        for span, buffer in wanted:
            read = self._read(pinned.get(span, span), buffer, owner)
            if read is None:
                passed.append((span, buffer))
            else:
                read.span = span
            reads.append(read)
        others = iter(self._below.prepare_reads(passed, owner) if passed else ())
        return [next(others) if each is None else cast("PendingRead", each) for each in reads]

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Send what the store is asked for."""
        fetched, below = self._split(reads)
        own = [each for read in fetched for each in read.flights if each.leader is read]
        self._below.send_reads([*below, *(each.read for each in own)])
        for each in own:
            if each.joinable:
                self._flights[each.request.span] = each
                if each.read.complete:  # it ended before others could know of it
                    self._close(each)

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off; what others wait for, too, goes on."""
        fetched, below = self._split(reads)
        self._below.cancel_reads([*below, *self._unwanted(fetched)])

    def stop_reads(self, reads: Iterable[PendingRead]) -> None:
        """Call reads off and wait until none of them writes any more."""
        fetched, below = self._split(reads)
        self._below.stop_reads([*below, *self._unwanted(fetched)])

    def concurrency(self) -> int:
        """Return how many requests are under way at once."""
        return self._below.concurrency()

    def contains(self, span: Span) -> bool:
        """Say whether a read of ``span`` would need no request for its bytes, at present."""
        return self._objects.contains(span)

    def room_bytes(self) -> int:
        """Return how many bytes fit into the cache without giving anything up."""
        return self.cache.room_bytes()

    def _split(self, reads: Iterable[object]) -> tuple[list[FetchedRead], list[PendingRead]]:
        """Return those of the reads that are under way: this layer's, and those of what is below."""
        fetched: list[FetchedRead] = []
        below: list[PendingRead] = []
        for each in reads:
            if isinstance(each, FetchedRead):
                if not each.complete:
                    fetched.append(each)
            elif not isinstance(each, CachedRead):
                below.append(cast("PendingRead", each))
        return fetched, below

    def _unwanted(self, reads: Iterable[FetchedRead]) -> list[PendingRead]:
        """Return what is to be called off below: what no other read waits for."""
        found: list[PendingRead] = []
        for read in reads:
            for flight in read.flights:
                self._close(flight)  # none joins from here on
                if all(member is read for member in list(flight.members)):
                    found.append(flight.read)
                else:
                    read.abandon(flight)
        return found

    def _close(self, flight: Flight) -> None:
        """Let no read join a flight any more."""
        span = flight.request.span
        if flight.joinable and self._flights.get(span) is flight:
            self._flights.pop(span, None)

    def _versions(self, spans: Sequence[Span]) -> dict[Span, Span]:
        """Return spans without a version as spans of the present one: a HEAD for each object."""
        keys = list(dict.fromkeys(span.key for span in spans if not span.etag))
        metas = dict(zip(keys, self._stat(keys), strict=True)) if keys else {}
        return {span: _pinned(span, meta) for span in spans if (meta := metas.get(span.key)) is not None and meta.etag}

    def _read(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> CachedRead | FetchedRead | None:
        """Return a read of a span; None where the cache has no say in it."""
        _, start, stop, etag, whole, _ = span
        fits = buffer is None or (stop is not None and buffer.size == stop - start)
        if not etag and fits:
            return self._unpinned(span, buffer, owner)
        if stop is not None:
            return self._known(span, buffer, owner) if fits and (stop > start >= 0 or whole) else None
        return self._unsized(span, owner) if fits and 0 <= -start <= self._block_bytes else None

    def _unsized(self, span: Span, owner: ReadOwner) -> CachedRead | FetchedRead:
        """Return a read of a whole object, or of its last bytes."""
        key, start, _, etag, _, _ = span
        part = Part("e", start, None) if start else ALL
        hit, size = self._objects.unsized(key, etag, part)
        if hit is not None:
            return self._held(span, hit.data, None)
        if size < 0:
            return self._fetch(span, None, owner, [Request(span, (part,), etag, UNKNOWN_SIZE)])
        first = max(0, size + start) if start else 0
        return self._known(Span(key, first, size, etag, whole=not first), None, owner)

    def _unpinned(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> CachedRead | FetchedRead | None:
        """Return a read of whatever version was read lately; one entry, lest versions mix."""
        if self._mode != "ttl":
            return None
        hit = self._objects.lately(span, None if buffer is None else buffer.view())
        if hit is not None:
            return self._held(span, hit.data, buffer)
        return self._fetch(span, buffer, owner, [Request(span, (Part("u", span.start, span.stop),), "", UNKNOWN_SIZE)])

    def _known(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> CachedRead | FetchedRead:
        """Return a read of bytes whose place and version are known."""
        key, start, stop, etag, whole, _ = span
        size = (stop or 0) - start
        object_bytes = start + size if whole else UNKNOWN_SIZE
        wanted = self._objects.parts(start, start + size)
        if len(wanted) == 1:
            into = None if buffer is None else buffer.view()
            hit = self._objects.part(key, etag, wanted[0], size, into)
            if hit is not None and not _of_other_size(hit, object_bytes):
                return self._held(span, hit.data, buffer)
            return self._fetch(span, buffer, owner, [Request(span, tuple(wanted), etag, object_bytes)])
        target = Buffer.allocate(size) if buffer is None else buffer
        view, missing = target.view(), list[tuple[int, int, Part]]()
        for number, part in enumerate(wanted):
            low = part.start
            high = wanted[number + 1].start if number + 1 < len(wanted) else start + size
            hit = self._objects.part(key, etag, part, high - low, view[low - start : high - start])
            if hit is None:
                missing.append((low, high, part))
            elif _of_other_size(hit, object_bytes):
                return self._fetch(span, target, owner, [Request(span, tuple(wanted), etag, object_bytes)])
        if not missing:
            return self._held(span, None, target)
        requests = [
            Request(span if high - low == size else Span(key, low, high, etag), tuple(run), etag, object_bytes)
            for low, high, run in _runs(missing)
        ]
        return self._fetch(span, target, owner, requests)

    def _held(self, span: Span, data: bytes | None, target: Buffer | None) -> CachedRead:
        read = CachedRead(span, data, target)
        size_bytes = read.size_bytes
        self.cache.note(hit=True, size_bytes=size_bytes)
        if listening():
            emit(CacheHit(self._objects.url(span.key), span.start, size_bytes))
        return read

    def _fetch(self, span: Span, target: Buffer | None, owner: ReadOwner, requests: Sequence[Request]) -> FetchedRead:
        """Return a read of which all or a part is asked of the store."""
        self.cache.note(hit=False)
        if listening():
            emit(CacheMiss(self._objects.url(span.key), span.start))
        read = FetchedRead(span, target, owner, self._keep)
        if target is None and self._join(requests[0].span, read):
            return read
        flights = []
        for each in requests:
            flight = Flight(each, read, self._close, joinable=target is None)
            memory = None
            if target is not None:
                low = each.span.start - span.start if each.span is not span else 0
                memory = target.slice(low, low + (each.span.stop or 0) - each.span.start)
            (flight.read,) = self._below.prepare_reads(((each.span, memory),), flight)
            flights.append(flight)
        read.begin(flights)
        return read

    def _join(self, span: Span, read: FetchedRead) -> bool:
        """Let ``read`` wait for the flight that brings the same; says whether there is one."""
        flight = self._flights.get(span)
        if flight is None:
            return False
        read.join(flight)
        if self._flights.get(span) is flight and not flight.read.complete:
            return True  # from here on its end sees this member
        return not flight.leave(read)

    def _keep(self, flight: Flight, data: memoryview | bytes) -> None:
        """Have the cache keep what a flight has brought, once."""
        request, flight.request = flight.request, flight.request._replace(parts=())
        if request.parts:
            self._objects.keep(request, data)


def _of_other_size(hit: Hit, object_bytes: int) -> bool:
    """Say whether an entry knows another size of its object than the reader does: then the store is to refuse."""
    return object_bytes >= 0 and hit.found.object_bytes not in (UNKNOWN_SIZE, object_bytes)


def _pinned(span: Span, meta: ObjectMeta) -> Span:
    """Return a span as one of the version that ``meta`` describes."""
    key, start, stop, _, whole, _ = span
    if stop is None:
        start, stop = (max(0, meta.size + start) if start < 0 else start), meta.size
        return Span(key, start, stop, meta.etag, whole=not start)
    return Span(key, start, stop, meta.etag, whole=whole)


def _runs(missing: Iterable[tuple[int, int, Part]]) -> list[tuple[int, int, list[Part]]]:
    """Join parts that follow one another: one request each."""
    runs: list[tuple[int, int, list[Part]]] = []
    for low, high, part in missing:
        if runs and runs[-1][1] == low:
            runs[-1] = (runs[-1][0], high, [*runs[-1][2], part])
        else:
            runs.append((low, high, [part]))
    return runs
