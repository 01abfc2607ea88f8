"""Read layer with a cache in front of one store: hits cost no request, and fetched bytes are kept."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from time import time
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.engine.buffer import Buffer
from penstock.engine.cache.entry import About, CachedPart, Namer, parts
from penstock.engine.cache.files import EVERY, WHOLE
from penstock.engine.cache.tiers import tiers_of
from penstock.errors import Cancelled, Changed, public_url
from penstock.events import CacheHit, CacheMiss, emit, listening
from penstock.values import UNKNOWN_SIZE, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from penstock.engine.cache.files import Hit
    from penstock.engine.cache.tiers import CacheTiers
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.errors import PenstockError
    from penstock.options import CacheOptions
    from penstock.values import ObjectMeta

    Wanted = tuple[Span, Buffer | None]
    Stat = Callable[[Sequence[str]], list[ObjectMeta | None]]


def add_cache(
    options: CacheOptions | None,
    fetching: Fetching,
    address: tuple[Hashable, ...],
    stat: Stat,
) -> Fetching:
    """Return a cache layer in front of ``fetching``; ``address`` is that of the key "" (``Source.address``).

    It is ``fetching`` itself without options, and for a store in this process's memory: other processes have different
    ones of the same name.
    """
    *store, base = address
    if options is None or store[0] == "memory":
        return fetching
    return CacheLayer(
        fetching, tiers_of(options), StorePlace(tuple(store), f"{store[0]}://{store[1]}/", str(base), stat)
    )


class CacheLayer:
    """A ``Fetching`` that serves reads from a cache and passes the rest to the ``Fetching`` below.

    Objects of up to one block are kept whole, longer ones in blocks, and other ranges as they are read, cut at block
    boundaries. A read of a known version is served from entries of that version alone. Entries are written on the
    thread that takes the bytes.
    """

    def __init__(self, fetching: Fetching, cache: CacheTiers, place: StorePlace) -> None:
        self.cache = cache
        self._below = fetching
        self._stat = place.stat
        self._objects = CachedObjects(cache, place)
        self._block_bytes = cache.options.block_bytes
        self._mode = cache.options.mode
        self._served = _ServedVersions(cache.options.ttl_s)
        # Flights that others may join, by span; each reads into its own memory.
        self._flights: dict[Span, Flight] = {}

    def prepare_reads(self, wanted: Iterable[Wanted], owner: Owner) -> list[ReadOperation]:
        wanted = [*wanted]
        pinned = self._versions([span for span, _ in wanted]) if self._mode == "revalidate" else {}
        reads: list[CachedRead | FetchedRead | None] = []
        passed: list[Wanted] = []
        for span, buffer in wanted:
            read = self._read(pinned.get(span, span), buffer, owner)
            if read is None:
                passed.append((span, buffer))
            else:
                if span in pinned and isinstance(read, FetchedRead):
                    self._unpin(read, span, buffer)
                read.span = span
            reads.append(read)
        others = iter(self._below.prepare_reads(passed, owner) if passed else ())
        return [next(others) if each is None else cast("ReadOperation", each) for each in reads]

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        fetched, below = self._split(reads)
        own = [each for read in fetched for each in read.flights if each.leader is read]
        self._below.send_reads([*below, *(each.read for each in own)])
        for each in own:
            if each.joinable:
                self._flights[each.request.span] = each
                # The flight ended before others could join.
                if each.read.complete:
                    self._close(each)

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads; flights that other reads also wait for continue."""
        fetched, below = self._split(reads)
        self._below.cancel_reads([*below, *self._unwanted(fetched)])

    def stop_reads(self, reads: Iterable[ReadOperation]) -> None:
        fetched, below = self._split(reads)
        self._below.stop_reads([*below, *self._unwanted(fetched)])

    def concurrency(self) -> int:
        return self._below.concurrency()

    def contains(self, span: Span) -> bool:
        return self._objects.contains(span)

    def room_bytes(self) -> int:
        return self.cache.room_bytes()

    def _split(self, reads: Iterable[object]) -> tuple[list[FetchedRead], list[ReadOperation]]:
        fetched: list[FetchedRead] = []
        below: list[ReadOperation] = []
        for each in reads:
            if isinstance(each, FetchedRead):
                if not each.complete:
                    fetched.append(each)
            elif not isinstance(each, CachedRead):
                below.append(cast("ReadOperation", each))
        return fetched, below

    def _unwanted(self, reads: Iterable[FetchedRead]) -> list[ReadOperation]:
        """Remove reads from their flights; return the reads below that no other read waits for."""
        found: list[ReadOperation] = []
        for read in reads:
            for flight in read.flights:
                self._close(flight)  # no read joins from here on
                if all(member is read for member in list(flight.members)):
                    found.append(flight.read)
                else:
                    read.abandon(flight)
        return found

    def _close(self, flight: Flight) -> None:
        span = flight.request.span
        if flight.joinable and self._flights.get(span) is flight:
            self._flights.pop(span, None)

    def _versions(self, spans: Sequence[Span]) -> dict[Span, Span]:
        """Map spans without a version to spans of the current version; costs a HEAD for each object."""
        keys = list(dict.fromkeys(span.key for span in spans if not span.etag))
        metas = dict(zip(keys, self._stat(keys), strict=True)) if keys else {}
        return {
            span: _pin_span(span, meta)
            for span in spans
            if (meta := metas.get(span.key)) is not None and meta.etag and _is_of_size(span, meta.size)
        }

    def _unpin(self, read: FetchedRead, span: Span, buffer: Buffer | None) -> None:
        """Have a read of which the cache has nothing be of any version: the object may be replaced after the HEAD."""
        if len(read.flights) == 1 and (flight := read.flights[0]).leader is read and flight.request.span is read.span:
            flight.joinable = False
            (flight.read,) = self._below.prepare_reads(((span, buffer),), flight)
            read.unpin(flight, buffer)

    def _read(self, span: Span, buffer: Buffer | None, owner: Owner) -> CachedRead | FetchedRead | None:
        """Return a read of a span; None if the cache does not handle it."""
        _, start, stop, etag, whole, _, _ = span
        fits = buffer is None or (stop is not None and buffer.size == stop - start)
        if not etag and fits:
            return self._unpinned(span, buffer, owner)
        if stop is not None:
            return self._known(span, buffer, owner) if fits and (stop > start >= 0 or whole) else None
        return self._unsized(span, owner) if fits and 0 <= -start <= self._block_bytes else None

    def _unsized(self, span: Span, owner: Owner) -> CachedRead | FetchedRead:
        key, start, _, etag, _, _, _ = span
        part = CachedPart("e", start, None) if start else ALL
        hit, size = self._objects.unsized(key, etag, part)
        if hit is not None:
            return self._held(span, hit.data, None)
        if size < 0:
            return self._fetch(span, None, owner, [Missing(span, (part,), etag, UNKNOWN_SIZE)])
        first = max(0, size + start) if start else 0
        return self._known(Span(key, first, size, etag, whole=not first), None, owner)

    def _unpinned(self, span: Span, buffer: Buffer | None, owner: Owner) -> CachedRead | FetchedRead | None:
        """Return a read of any recently read version, from a single entry so that versions do not mix.

        Parts of an object (an index, and what it locates) are served in one version: ``Changed`` if the store has
        another one by now and the cache lacks the part. Afterwards, the older parts are not served any more.
        """
        if self._mode != "ttl":
            return None
        pin, since_s = self._served.find(span.key)
        hit = self._objects.lately(span, None if buffer is None else buffer.view(), since_s)
        if hit is not None and (_is_whole(span) or (hit.version and pin in ("", hit.version))):
            if not _is_whole(span):
                self._served.add(span.key, hit.version, since_s)
            return self._held(span, hit.data, buffer, hit.version)
        if pin and not _is_whole(span):
            return self._read(span._replace(etag=pin), buffer, owner)
        return self._fetch(
            span, buffer, owner, [Missing(span, (CachedPart("u", span.start, span.stop),), "", UNKNOWN_SIZE)]
        )

    def _known(self, span: Span, buffer: Buffer | None, owner: Owner) -> CachedRead | FetchedRead:
        key, start, stop, etag, whole, _, _ = span
        size = (stop or 0) - start
        object_bytes = start + size if whole else UNKNOWN_SIZE
        wanted = self._objects.parts(start, start + size)
        if len(wanted) == 1:
            into = None if buffer is None else buffer.view()
            hit = self._objects.part(key, etag, wanted[0], size, into)
            if hit is not None and not _of_other_size(hit, object_bytes):
                return self._held(span, hit.data, buffer)
            return self._fetch(span, buffer, owner, [Missing(span, tuple(wanted), etag, object_bytes)])
        target = Buffer.allocate(size) if buffer is None else buffer
        view, missing = target.view(), list[tuple[int, int, CachedPart]]()
        for number, part in enumerate(wanted):
            low = part.start
            high = wanted[number + 1].start if number + 1 < len(wanted) else start + size
            hit = self._objects.part(key, etag, part, high - low, view[low - start : high - start])
            if hit is None:
                missing.append((low, high, part))
            elif _of_other_size(hit, object_bytes):
                return self._fetch(span, target, owner, [Missing(span, tuple(wanted), etag, object_bytes)])
        if not missing:
            return self._held(span, None, target)
        requests = [
            Missing(span if high - low == size else Span(key, low, high, etag), tuple(run), etag, object_bytes)
            for low, high, run in _runs(missing)
        ]
        return self._fetch(span, target, owner, requests)

    def _held(self, span: Span, data: bytes | None, target: Buffer | None, version: str = "") -> CachedRead:
        read = CachedRead(span, data, target, version)
        size_bytes = read.size_bytes
        self.cache.note(hit=True, size_bytes=size_bytes)
        if listening():
            emit(CacheHit(self._objects.url(span.key), span.start, size_bytes))
        return read

    def _fetch(self, span: Span, target: Buffer | None, owner: Owner, requests: Sequence[Missing]) -> FetchedRead:
        self.cache.note(hit=False)
        if listening():
            emit(CacheMiss(self._objects.url(span.key), span.start))
        read = FetchedRead(span, target, owner, self._keep, self._served.forget)
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
        flight = self._flights.get(span)
        if flight is None:
            return False
        read.join(flight)
        if self._flights.get(span) is flight and not flight.read.complete:
            # From here on, the end of the flight notifies this member.
            return True
        return not flight.leave(read)

    def _keep(self, flight: Flight, data: memoryview | bytes) -> None:
        request, flight.request = flight.request, flight.request._replace(parts=())
        span, version = request.span, flight.read.version
        if not request.parts or not (version or _is_whole(span)) or (request.etag and version != request.etag):
            return
        self._objects.keep(request, data, version, flight.asked_s)
        if not (request.etag or _is_whole(span)):
            self._served.add(span.key, version, served_s=flight.asked_s)


def _is_whole(span: Span) -> bool:
    return not span.start and (span.stop is None or span.whole)


def _of_other_size(hit: Hit, object_bytes: int) -> bool:
    """Return whether an entry's object size differs from the reader's; the store must refuse such a read."""
    return object_bytes >= 0 and hit.found.object_bytes not in (UNKNOWN_SIZE, object_bytes)


def _is_of_size(span: Span, size: int) -> bool:
    """Return whether an object has the size of the listing that a span is from, if it is; the store refuses others."""
    return span.stop is None or span.most in (0, size)


def _pin_span(span: Span, meta: ObjectMeta) -> Span:
    if span.stop is not None:
        return span._replace(etag=meta.etag)
    start = max(0, meta.size + span.start) if span.start < 0 else span.start
    return Span(span.key, start, meta.size, meta.etag, whole=not start)


def _runs(missing: Iterable[tuple[int, int, CachedPart]]) -> list[tuple[int, int, list[CachedPart]]]:
    runs: list[tuple[int, int, list[CachedPart]]] = []
    for low, high, part in missing:
        if runs and runs[-1][1] == low:
            runs[-1] = (runs[-1][0], high, [*runs[-1][2], part])
        else:
            runs.append((low, high, [part]))
    return runs


class _ServedVersions:
    """Versions in which parts of objects were lately read by spans without a version. Thread-safe."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        # Version, time when it was served, and the time before which entries are outdated.
        self._held: dict[str, tuple[str, float, float]] = {}

    def find(self, key: str) -> tuple[str, float]:
        """Return the version of an object's other parts, or "", and the time before which entries are outdated."""
        version, served_s, since_s = self._held.get(key, ("", 0.0, 0.0))
        return (version if 0 <= time() - served_s <= self._ttl_s else ""), since_s

    def add(self, key: str, version: str, since_s: float = 0.0, served_s: float = 0.0) -> None:
        self._put(key, (version, served_s or time(), since_s))

    def forget(self, key: str) -> None:
        self._put(key, ("", 0.0, time()))

    def _put(self, key: str, found: tuple[str, float, float]) -> None:
        self._held[key] = found
        if len(self._held) > _MOST_SERVED:
            # Another thread may be removing the same one.
            with suppress(RuntimeError, StopIteration):
                self._held.pop(next(iter(self._held)), None)


# Objects whose version in the mode ttl is known: 20 MiB or so.
_MOST_SERVED = 100_000
# All of an object of up to one block, or the beginning of a longer one.
ALL = CachedPart("b", 0, None)


class StorePlace(NamedTuple):
    """The location of a store's objects: keys begin with ``base`` below the URL ``root``.

    The ``repr`` of ``store`` differs from that of all other stores. ``stat`` describes objects, with one request each;
    None for each that it cannot describe.
    """

    store: object
    root: str
    base: str
    stat: Stat


class CachedObjects:
    """Entries of one store's objects, by key, version and part."""

    def __init__(self, cache: CacheTiers, place: StorePlace) -> None:
        self._cache, self._place = cache, place
        self._namer = Namer(place.store)
        self._block_bytes = cache.options.block_bytes
        self._ttl_s = cache.options.ttl_s if cache.options.mode == "ttl" else 0.0

    def parts(self, start: int, stop: int) -> list[CachedPart]:
        """Return the parts that hold bytes ``[start, stop)`` of an object; of an empty object ``ALL``."""
        return [*parts(start, stop, self._block_bytes)] or [ALL]

    def part(self, key: str, etag: str, part: CachedPart, size: int, into: memoryview | None) -> Hit | None:
        """Return the first ``size`` bytes of a part, or fill ``into``; None if the cache does not have them."""
        hit = self._cache.read(self._name(key, etag, part), 0, size, into)
        if (hit is None or not hit.filled) and part.kind == "r":
            low, block = self._block(part)
            hit = self._cache.read(self._name(key, etag, block), low, low + size, into)
        return hit if hit is not None and hit.filled else None

    def unsized(self, key: str, etag: str, part: CachedPart) -> tuple[Hit | None, int]:
        """Return a whole object, or its last bytes, of unknown size; or None, and its size if known."""
        ends = part.kind == "e"
        hit = self._cache.read(self._name(key, etag, part), 0, EVERY if ends else WHOLE)
        if hit is not None and hit.filled:
            return hit, UNKNOWN_SIZE
        if ends:
            return None, self.size(key, etag)
        return None, UNKNOWN_SIZE if hit is None else hit.found.object_bytes

    def lately(self, span: Span, into: memoryview | None, since_s: float) -> Hit | None:
        """Return the bytes of a span of unknown version that were kept within ``ttl_s``, and not before ``since_s``."""
        key, start, stop, _, _, _, _ = span
        name, now_s = self._name(key, "", CachedPart("u", start, stop)), time()
        since_s = max(since_s, now_s - self._ttl_s)
        hit = self._cache.read(name, 0, EVERY if stop is None else stop - start, into, since_s=since_s)
        # An entry from the future shows that the clock was wrong.
        return hit if hit is not None and hit.filled and hit.found.kept_s <= now_s else None

    def size(self, key: str, etag: str) -> int:
        found = self._cache.look(self._name(key, etag, ALL))
        return UNKNOWN_SIZE if found is None else found.object_bytes

    def contains(self, span: Span) -> bool:
        """Return whether a read of ``span`` would currently need no request for its bytes; verifies no checksums."""
        key, start, stop, etag, _, _, _ = span
        look = self._cache.look
        if not etag:
            found = look(self._name(key, "", CachedPart("u", start, stop))) if self._ttl_s else None
            return found is not None and 0 <= time() - found.kept_s <= self._ttl_s
        if stop is None and start < 0 and look(self._name(key, etag, CachedPart("e", start, None))) is not None:
            return True
        if stop is None:
            size = self.size(key, etag)
            if size < 0:
                return False
            start, stop = max(0, size + start) if start < 0 else 0, size
        wanted = self.parts(start, stop)
        ends = [*(part.start for part in wanted[1:]), stop]
        return all(self._has(key, etag, part, end - part.start) for part, end in zip(wanted, ends, strict=True))

    def _has(self, key: str, etag: str, part: CachedPart, size: int) -> bool:
        found, low = self._cache.look(self._name(key, etag, part)), 0
        if (found is None or found.size_bytes < size) and part.kind == "r":
            low, block = self._block(part)
            found = self._cache.look(self._name(key, etag, block))
        return found is not None and found.size_bytes >= low + size

    def keep(self, request: Missing, data: memoryview | bytes, version: str, asked_s: float = 0.0) -> None:
        span, wanted, etag, object_bytes = request
        key, size = span.key, len(data)
        if span.stop is None and wanted[0] is ALL:  # the size is known now
            wanted, object_bytes = tuple(self.parts(0, size)), size
        url = self.url(key)
        for number, part in enumerate(wanted):
            low, high = 0, size
            if part.kind in "br":
                low = part.start - span.start
                high = wanted[number + 1].start - span.start if number + 1 < len(wanted) else size
            piece = data if (low, high) == (0, size) else memoryview(data)[low:high]
            what = About(url, version, part.start, object_bytes, asked_s)
            self._cache.store(self._name(key, etag, part), piece, what, replace=part.kind == "u")

    def url(self, key: str) -> str:
        return public_url(f"{self._place.root}{self._place.base}{key}")

    def _block(self, part: CachedPart) -> tuple[int, CachedPart]:
        low = part.start % self._block_bytes
        return low, CachedPart("b", part.start - low, None)

    def _name(self, key: str, etag: str, part: CachedPart) -> bytes:
        return self._namer.name(self._place.base + key, etag, part)


class CachedRead:
    """A read without a request, complete from the beginning (see ``contracts.fetching.ReadOperation``)."""

    __slots__ = ("_data", "_target", "span", "version")

    error: PenstockError | None = None
    attempts = 0
    retries = 0
    complete = True

    def __init__(self, span: Span, data: bytes | None, target: Buffer | None, version: str = "") -> None:
        self.span, self._data, self._target = span, data, target
        self.version = span.etag or version

    @property
    def size_bytes(self) -> int:
        if self._data is not None:
            return len(self._data)
        return 0 if self._target is None else self._target.size

    def look(self) -> None:
        """Log nothing: a hit takes no time."""

    def check(self) -> None:
        """Raise nothing."""

    def take(self) -> bytes:
        if self._data is not None:
            return self._data
        return b"" if self._target is None else self._target.take()


class Missing(NamedTuple):
    """A range that the cache does not have, of ``object_bytes`` (-1 if unknown), and the parts in which it is kept."""

    span: Span
    parts: tuple[CachedPart, ...]
    etag: str
    object_bytes: int


class Flight:
    """A read of the store, shared by all reads that want the same span at once; ``leader`` sends it.

    Threads that join or leave a flight share no lock with the transport's thread, which ends it: whichever thread
    removes a read from ``members`` notifies that read. Only a ``joinable`` one may be joined: its bytes go into
    separate memory, not into a caller's buffer.
    """

    __slots__ = ("_ended", "asked_s", "joinable", "leader", "members", "read", "request")

    read: ReadOperation

    def __init__(
        self, request: Missing, leader: FetchedRead, ended: Callable[[Flight], None], *, joinable: bool
    ) -> None:
        self.request, self.leader, self._ended, self.joinable = request, leader, ended, joinable
        self.asked_s = time()
        self.members: dict[FetchedRead, None] = {leader: None}

    def finished(self, _read: ReadOperation) -> None:
        """Notify all members; runs on the transport's thread."""
        self._ended(self)
        while self.members:
            try:
                member, _ = self.members.popitem()
            except KeyError:  # it left meanwhile
                break
            member.landed()

    def leave(self, member: FetchedRead) -> bool:
        return self.members.pop(member, self) is None


class FetchedRead:
    """A read that the store delivers in full or in part; the cache keeps the bytes when they are taken."""

    __slots__ = (
        *("_changed", "_ended", "_etag", "_keep", "_owner", "_start", "_target", "_waits", "called_off", "complete"),
        *("flights", "span"),
    )

    def __init__(
        self,
        span: Span,
        target: Buffer | None,
        owner: Owner,
        keep: Callable[[Flight, memoryview | bytes], None],
        changed: Callable[[str], None],
    ) -> None:
        """Read into ``target``, or into the flight's memory; ``changed`` receives the key of a changed object."""
        self._changed = changed
        self.span, self._target, self._owner, self._keep = span, target, owner, keep
        # The layer may replace ``span`` by the caller's, which may count from the object's end and have no version.
        self._start, self._etag = span.start, span.etag
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

    def unpin(self, flight: Flight, target: Buffer | None) -> None:
        """Wait for a flight that brings any version, into ``target`` or its own memory."""
        self._etag, self._target = "", target
        self.begin([flight])

    def join(self, flight: Flight) -> None:
        """Wait for a flight that another read has sent; from here on it may end and notify this read."""
        self.flights, self._waits = [flight], 1
        flight.members[self] = None

    def landed(self) -> None:
        if next(self._ended) == self._waits:
            self.complete = True
            self._owner.finished(cast("ReadOperation", self))

    def abandon(self, flight: Flight) -> None:
        if flight.leave(self):
            self.called_off = Cancelled("cancelled")
            self.landed()

    @property
    def error(self) -> PenstockError | None:
        return self.called_off or next((each.read.error for each in self.flights if each.read.error is not None), None)

    @property
    def version(self) -> str:
        """Version of the bytes; a read of a span without a version has one flight."""
        return self._etag or self.flights[0].read.version

    @property
    def attempts(self) -> int:
        return sum(each.read.attempts for each in self.flights if each.leader is self)

    @property
    def retries(self) -> int:
        return sum(each.read.retries for each in self.flights if each.leader is self)

    @property
    def size_bytes(self) -> int:
        return self._target.size if self._target is not None else sum(each.read.size_bytes for each in self.flights)

    def look(self) -> None:
        for each in self.flights:
            each.read.look()

    def check(self) -> None:
        if self.called_off is not None:
            raise self.called_off
        for each in self.flights:
            try:
                each.read.check()
            except Changed:
                self._changed(self.span.key)
                raise
        target = self._target
        if target is not None:
            view, start = target.view(), self._start
            for each in self.flights:
                low = max(0, each.request.span.start - start)
                self._keep(each, view[low : low + each.read.size_bytes])

    def take(self) -> bytes:
        self.check()
        if self._target is not None:
            return self._target.take()
        (flight,) = self.flights
        data = flight.read.take()
        self._keep(flight, data)
        return data
