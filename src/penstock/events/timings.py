"""Counts and histograms of responses by host, and counts of caches by directory: always kept, for reports and metrics.

A transport's thread writes them, and any thread reads them. Each response costs 0.3 µs. Counts are exact. The seconds
to the first byte and the rates of bodies are sampled: a measured response stands for all responses since the previous
measured one.
"""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import reduce
from heapq import heappush, heapreplace
from operator import add
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from penstock.histogram import WORDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.histogram import Words


@dataclass(slots=True)
class _Counts:
    """Base class of counts: fields that are added one by one."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(slots=True)
class CacheCounts(_Counts):
    """Counts of this process's use of a cache; any thread may read them.

    Attributes:
        hits: Reads of the cache that found their data.
        hit_bytes: Bytes of these reads.
        misses: Reads of the cache that did not find their data.
        stored: Entries that were written.
        stored_bytes: Bytes of these entries.
        refused: Entries that were not written: the cache was full of useful entries, the entry was too large for it, or
            the disk failed.
        damaged: Entries that differed from what had been written, and were removed.
    """

    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    stored: int = 0
    stored_bytes: int = 0
    refused: int = 0
    damaged: int = 0


# Counts stay after their cache is gone: sums never decrease.
_caches: Final[dict[str, list[CacheCounts]]] = {}


def count_cache(directory: str) -> CacheCounts:
    counts = CacheCounts()
    _caches.setdefault(directory, []).append(counts)
    return counts


def measured_caches() -> dict[str, CacheCounts]:
    """Return a copy of this process's counts, by directory."""
    return {directory: reduce(add, [*counts], CacheCounts()) for directory, counts in [*_caches.items()]}


@dataclass(slots=True)
class JobCounts(_Counts):
    """Counts of the parts of jobs that this process has given to a carrier; any thread may read them.

    Attributes:
        parts: Parts that have ended.
        failed_parts: Parts in which objects failed.
        objects: Planned objects of the parts.
        failed_objects: Objects that failed.
        size_bytes: Bytes that were moved or read.
        seconds: Seconds of the parts, added up.
        cpu_seconds: Seconds of the processors, added up.
    """

    parts: int = 0
    failed_parts: int = 0
    objects: int = 0
    failed_objects: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


_jobs: dict[str, JobCounts] = {}


def count_job(operation: str, counts: JobCounts) -> None:
    _jobs[operation] = _jobs.get(operation, JobCounts()) + counts


def measured_jobs() -> dict[str, JobCounts]:
    """Return this process's counts, by operation."""
    return {**_jobs}


# The counts are the parent's.
os.register_at_fork(after_in_child=_caches.clear)
os.register_at_fork(after_in_child=_jobs.clear)


T = TypeVar("T")
Counted: TypeAlias = "dict[HostTimings, HostTimings]"  # host -> its counts

# Number of unmeasured responses after which they are counted. Stores that do not use HTTP have only such responses.
_SETTLE: Final = 16
_COUNTS: Final = 13  # words before the histograms
HOST_WORDS: Final = _COUNTS + 2 * WORDS
# Beyond this number, hosts that no store uses any more are counted together.
_HOSTS: Final = 64
_OTHERS: Final = "(other hosts)"
# Smaller bodies say nothing about the bandwidth.
_BODY_BYTES: Final = 64 << 10
_NS: Final = 1_000_000_000
_RATE: Final = 1e3  # bytes/s: bound of the first bucket
(_RESPONSES, _RECEIVED, _SENT, _FAILED, _THROTTLED, _THROTTLED_NS, _RETRIED, _RETRIED_NS, _BODY_NS) = range(9)
_HEDGED, _HEDGES_WON, _WASTED, _PACED_NS = range(9, 13)


class MeasuredAnswer(Protocol):
    """The part of a transport's response that is measured and recorded: see ``engine.contracts.exchange``."""

    status: int
    body: object
    received: int
    first_byte_s: float
    body_s: float


def _number(word: int, about: str) -> property:
    return property(lambda self: self.words[word], doc=about)


def _seconds(word: int, about: str) -> property:
    return property(lambda self: self.words[word] / _NS, doc=about)


class HostTimings:
    """Counts of the requests to one host, and timings of its responses to reads.

    Attributes:
        words: ``HOST_WORDS`` integers that hold all values, for shared memory.
        first_byte: Seconds from a read's request, on an established connection, to the first byte of its response.
        body_rate: Bytes per second of single bodies of 64 KiB or more, from their first byte to their last.
    """

    __slots__ = ("body_rate", "first_byte", "words")

    def __init__(self, words: Words | None = None) -> None:
        """Begin at zero, or with the values of ``words``, which are updated in place."""
        self.words: Words = array("q", bytes(8 * HOST_WORDS)) if words is None else words
        view = memoryview(cast("array[int]", self.words))  # or a view of shared memory
        self.first_byte = Histogram(words=view[_COUNTS : _COUNTS + WORDS])
        self.body_rate = Histogram(_RATE, view[_COUNTS + WORDS :])

    responses = _number(_RESPONSES, "Attempts of requests that ended, successful or not.")
    received_bytes = _number(_RECEIVED, "Bytes of the responses' bodies.")
    sent_bytes = _number(_SENT, "Bytes of the requests' bodies.")
    failed = _number(_FAILED, "Attempts that failed, whether or not they were retried; not HEADs that found no object.")
    throttled = _number(_THROTTLED, "Attempts that the store refused because of their rate (503 ``SlowDown``, 429).")
    throttled_s = _seconds(_THROTTLED_NS, "Total seconds that requests waited after throttled attempts.")
    paced_s = _seconds(_PACED_NS, "Total seconds that requests waited for their turn, at a rate that the store takes.")
    retried = _number(_RETRIED, "Failed attempts that were retried, after any failure.")
    retried_s = _seconds(_RETRIED_NS, "Total seconds that requests waited after failures, throttling excluded.")
    hedged = _number(_HEDGED, "Second requests for slow reads (``ReadOptions.hedge``).")
    hedges_won = _number(_HEDGES_WON, "Second requests that were answered before the first one.")
    wasted_bytes = _number(_WASTED, "Bytes that were not needed: the other of two requests was answered first.")

    @property
    def first_byte_s(self) -> float:
        """Total seconds that reads waited for the first byte, summed over requests; estimated from the sample."""
        return self.first_byte.total

    body_s = _seconds(_BODY_NS, "Total seconds that the bodies of reads took, summed over requests; from the sample.")

    def copy(self) -> Self:
        """Return a copy of the current counts, in separate memory."""
        return type(self)(array("q", self.words))

    def __add__(self, other: HostTimings) -> Self:
        return self._of(mine + its for mine, its in zip(self.words, other.words, strict=True))

    def __sub__(self, earlier: HostTimings) -> Self:
        """Return the counts since ``earlier``."""
        return self._of(max(0, mine - its) for mine, its in zip(self.words, earlier.words, strict=True))

    def _of(self, words: Iterable[int]) -> Self:
        return type(self)(array("q", words))


class SlowRequest(NamedTuple):
    """A slow read.

    Attributes:
        elapsed_s: Seconds from its first attempt to its end, pauses between attempts included.
        url: URL of the object.
        size_bytes: Bytes that the last attempt received.
        attempts: Number of attempts.
        status: HTTP status of the last response; 0 without one.
        ended_at: Time of its end, in seconds since 1970.
    """

    elapsed_s: float
    url: str
    size_bytes: int
    attempts: int
    status: int
    ended_at: float


class Slowest:
    """The slowest reads of this process since this object was made; recorded while this object is referenced.

    Attributes:
        above_s: Seconds that a read must exceed to be kept.
    """

    __slots__ = ("__weakref__", "_count", "_heap", "above_s")

    def __init__(self, count: int = 10) -> None:
        self._count = count
        self._heap: list[SlowRequest] = []
        self.above_s = 0.0
        _watching[self] = None
        _limit()

    def found(self) -> list[SlowRequest]:
        return sorted(self._heap, reverse=True)

    def add(self, request: SlowRequest) -> None:
        """Keep a read if it is one of the slowest; called on the thread of its transport."""
        if len(self._heap) < self._count:
            heappush(self._heap, request)
        elif request.elapsed_s > self.above_s:
            heapreplace(self._heap, request)
        if len(self._heap) == self._count:
            self.above_s = self._heap[0].elapsed_s


class Timings:
    """Recorder of the responses of one store; the counts of all stores of a process are kept by host.

    No method blocks or holds a lock: additions to one word are not interrupted by other threads.

    Attributes:
        host: Counts of the host that was measured last, over all its stores. Some of the latest responses may be
            missing; ``measured`` includes them.
    """

    __slots__ = ("__weakref__", "_origin", "_owed", "_received", "_since", "host")

    def __init__(self, scheme: str = "") -> None:
        """Begin without a host; responses without a request (of a local file, say) count for ``scheme``."""
        self._origin = f"{scheme}://"
        # Responses that are not yet counted, and their bytes.
        self._since = self._received = 0
        # Responses that are counted, and that the next measured response also stands for.
        self._owed = 0
        self.host = _host(scheme)
        _all[self] = None

    @property
    def where(self) -> str:
        """The host, with its port if it has one; empty for a store that does not use HTTP."""
        return self._origin.partition("://")[2].rstrip("/")

    def turn(self, url: str) -> None:
        """Count for the host of ``url`` from now on, including responses that are not yet counted."""
        if not url or url.startswith(self._origin):
            return
        host = host_of(url)
        self._origin, self.host = f"{url.partition('://')[0]}://{host}/", _host(host)

    def answered(self, response: MeasuredAnswer, url: str, size_bytes: int, began: float) -> float:
        """Count the successful response to a read of an object, first sent at ``began``, and its ``size_bytes``.

        ``url`` is the URL of the request; empty if none was made. Returns the seconds since ``began``, for ``slow``, if
        the read is one of the slowest, else 0.0.
        """
        self._since += 1
        self._received += size_bytes
        elapsed_s = monotonic() - began
        if response.first_byte_s or self._since >= _SETTLE:
            self._measure(response, url, size_bytes, elapsed_s)
        return elapsed_s if elapsed_s > _above_s[0] else 0.0

    def carried(self, url: str, sent_bytes: int) -> None:
        """Count the successful response to any other request, which sent ``sent_bytes``."""
        self.turn(url)
        words = self.host.words
        words[_RESPONSES] += 1
        words[_SENT] += sent_bytes

    def failed(self, wait_s: float | None, *, throttled: bool) -> None:
        """Count a failed attempt; ``wait_s`` is the delay before the next attempt, and None if no attempt follows."""
        words = self.host.words
        words[_RESPONSES] += 1
        words[_FAILED] += 1
        words[_THROTTLED] += throttled
        if wait_s is not None:
            words[_RETRIED] += 1
            words[_THROTTLED_NS if throttled else _RETRIED_NS] += int(wait_s * _NS)

    def paced(self, wait_s: float) -> None:
        """Count the seconds that a request waits for its turn because the rate is limited."""
        self.host.words[_PACED_NS] += int(wait_s * _NS)

    def sooner(self, wait_s: float) -> None:
        """Subtract seconds by which an attempt after throttling comes earlier than ``failed`` has counted."""
        self.host.words[_THROTTLED_NS] -= int(wait_s * _NS)

    def hedged(self, *, won: bool, wasted_bytes: int) -> None:
        """Count a second request for a slow read, after the faster of the two requests has ended the other."""
        words = self.host.words
        words[_HEDGED] += 1
        words[_HEDGES_WON] += won
        words[_WASTED] += wasted_bytes

    def settle(self) -> int:
        """Add responses that are not yet counted to the host's counts; return their number."""
        count, self._since = self._since, 0
        received, self._received = self._received, 0
        words = self.host.words
        words[_RESPONSES] += count
        words[_RECEIVED] += received
        self._owed += count
        return count

    def __del__(self) -> None:
        """Count the remaining responses, so that none is lost with an engine that is collected."""
        # When the interpreter exits, objects that this needs may already be gone.
        with suppress(Exception):
            self.settle()

    def _measure(self, response: MeasuredAnswer, url: str, size_bytes: int, elapsed_s: float) -> None:
        self.turn(url)
        self.settle()
        if url and not response.first_byte_s:
            return
        weight, self._owed, host = self._owed, 0, self.host
        if not url:
            # A file has no wait before its first byte except the read itself.
            host.first_byte.add(elapsed_s, weight)
        else:
            host.first_byte.add(response.first_byte_s, weight)
            host.words[_BODY_NS] += int(response.body_s * _NS) * weight
            if size_bytes >= _BODY_BYTES and response.body_s > 0:
                host.body_rate.add(size_bytes / response.body_s, weight)


def host_of(url: str) -> str:
    """Return the host of a request's URL, with its port if it has one, without user and password."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]


def slow(request: SlowRequest) -> None:
    """Add a slow read to each ``Slowest``; called on the thread of its transport."""
    for each in _those_of(_watching):
        each.add(request)
    _limit()


def counted() -> Counted:
    """Return a copy of the current counts, which ``measured`` can subtract later."""
    for each in _those_of(_all):
        each.settle()
    return {host: host.copy() for host in list(_hosts.values())}


def measured(before: Counted | None = None) -> dict[str, HostTimings]:
    """Return a copy of this process's counts by host (``name:port``; the scheme for stores that do not use HTTP).

    Args:
        before: Result of ``counted``: counts to subtract, also for hosts that have since been folded into "(other
            hosts)"; default: none.

    Example:
        >>> from penstock.events import measured
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> sum(host.responses for host in measured().values()) > 0
        True
    """
    now, left_out = counted(), dict(before or {})
    found = {name: now[host] - left_out.pop(host, HostTimings()) for name, host in list(_hosts.items()) if host in now}
    if _OTHERS in found:
        for host in left_out.values():
            found[_OTHERS] -= host
    return {name: host for name, host in found.items() if host.responses}


_hosts: dict[str, HostTimings] = {}
_all: WeakKeyDictionary[Timings, None] = WeakKeyDictionary()
_watching: WeakKeyDictionary[Slowest, None] = WeakKeyDictionary()
_above_s: Final = [float("inf")]  # least ``above_s`` of all ``Slowest``


def _those_of(weak: WeakKeyDictionary[T, None]) -> list[T]:
    """Return the live keys; unlike a loop over them, this is safe while other threads add keys."""
    return [each for each in (its() for its in weak.keyrefs()) if each is not None]


def _host(name: str) -> HostTimings:
    found = _hosts.get(name)
    if found is None:
        if len(_hosts) >= _HOSTS and not _fold():
            name = _OTHERS
        found = _hosts.setdefault(name, HostTimings())
    return found


def _fold() -> bool:
    """Combine the counts of unused hosts, to make room; return False without such hosts."""
    held = {id(each.host) for each in _those_of(_all)}
    idle = [name for name, host in list(_hosts.items()) if id(host) not in held and name != _OTHERS]
    for name in idle:
        if (host := _hosts.pop(name, None)) is not None:  # else another thread was here first
            _hosts[_OTHERS] = _hosts.get(_OTHERS, HostTimings()) + host
    return bool(idle)


def _limit() -> None:
    _above_s[0] = min((each.above_s for each in _those_of(_watching)), default=float("inf"))


def _clear_counts() -> None:
    """Clear all counts in a forked child, because they are the parent's."""
    _hosts.clear()
    _all.clear()
    _watching.clear()
    _limit()


os.register_at_fork(after_in_child=_clear_counts)
