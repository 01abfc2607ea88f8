"""What responses cost, by host: counts and histograms that are always kept, for reports and metrics.

A transport's thread writes, and any thread reads. A response costs 0.3 µs: counts are exact, while the seconds to the
first byte and the rates of bodies are those of a sample, in which each response stands for those since the one before.
"""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from heapq import heappush, heapreplace
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from penstock.histogram import WORDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.histogram import Words

__all__ = ["HOST_WORDS", "HostTimings", "SlowRequest", "Slowest", "Timings", "host_of", "measured", "slow"]

T = TypeVar("T")

_SETTLE: Final = 16  # responses without a measurement, after which they are counted (all of stores without a wire)
_COUNTS: Final = 13  # words before the histograms
HOST_WORDS: Final = _COUNTS + 2 * WORDS
_HOSTS: Final = 64  # beyond these, hosts that no store uses any more are counted together
_OTHERS: Final = "(other hosts)"
_BODY_BYTES: Final = 64 << 10  # smaller bodies tell nothing about the line
_NS: Final = 1_000_000_000
_RATE: Final = 1e3  # bytes/s: the slowest body that is told apart
(_RESPONSES, _RECEIVED, _SENT, _FAILED, _THROTTLED, _THROTTLED_NS, _RETRIED, _RETRIED_NS, _BODY_NS) = range(9)
_HEDGED, _HEDGES_WON, _WASTED, _PACED_NS = range(9, 13)


class Answer(Protocol):
    """The part of a transport's response that is measured: see ``protocols.exchange``."""

    status: int
    first_byte_s: float
    body_s: float


class HostTimings:
    """Counts of the requests to one host, and what its responses to reads took.

    Attributes:
        words: ``HOST_WORDS`` integers that hold everything, for shared memory.
        first_byte: Seconds from a read's request, on a connection that stood, to the first byte of its response.
        body_rate: Bytes per second of single bodies of 64 KiB or more, from their first byte to their last.

    """

    __slots__ = ("body_rate", "first_byte", "words")

    def __init__(self, words: Words | None = None) -> None:
        """Begin at zero, or with what ``words`` hold, which are written to in place."""
        self.words: Words = array("q", bytes(8 * HOST_WORDS)) if words is None else words
        view = memoryview(cast("array[int]", self.words))  # that, or a view of shared memory
        self.first_byte = Histogram(words=view[_COUNTS : _COUNTS + WORDS])
        self.body_rate = Histogram(_RATE, view[_COUNTS + WORDS :])

    @property
    def responses(self) -> int:
        """Attempts of requests that ended, well or not."""
        return self.words[_RESPONSES]

    @property
    def received_bytes(self) -> int:
        """Bytes of the responses' bodies."""
        return self.words[_RECEIVED]

    @property
    def sent_bytes(self) -> int:
        """Bytes of the requests' bodies."""
        return self.words[_SENT]

    @property
    def failed(self) -> int:
        """Attempts that failed, whether or not another one followed."""
        return self.words[_FAILED]

    @property
    def throttled(self) -> int:
        """Attempts that the store refused because it was asked too often (503 ``SlowDown``, 429)."""
        return self.words[_THROTTLED]

    @property
    def throttled_s(self) -> float:
        """Seconds that requests waited after these, in sum."""
        return self.words[_THROTTLED_NS] / _NS

    @property
    def paced_s(self) -> float:
        """Seconds that requests waited for their turn, at the rate that the store was seen to take, in sum."""
        return self.words[_PACED_NS] / _NS

    @property
    def retried(self) -> int:
        """Attempts that were made again after any failure."""
        return self.words[_RETRIED]

    @property
    def retried_s(self) -> float:
        """Seconds that requests waited after failures other than throttling, in sum."""
        return self.words[_RETRIED_NS] / _NS

    @property
    def hedged(self) -> int:
        """Second requests for reads that took long (``ReadOptions.hedge``)."""
        return self.words[_HEDGED]

    @property
    def hedges_won(self) -> int:
        """Those of them that were answered before the first one."""
        return self.words[_HEDGES_WON]

    @property
    def wasted_bytes(self) -> int:
        """Bytes of responses that were not needed, since the other one of two requests was answered first."""
        return self.words[_WASTED]

    @property
    def first_byte_s(self) -> float:
        """Seconds that reads waited for the first byte, in sum over requests: estimated from the sample."""
        return self.first_byte.total

    @property
    def body_s(self) -> float:
        """Seconds that bodies of reads took, in sum over requests: estimated from the sample."""
        return self.words[_BODY_NS] / _NS

    def copy(self) -> Self:
        """Return the counts of this moment, in memory of their own."""
        return type(self)(array("q", self.words))

    def __add__(self, other: HostTimings) -> Self:
        """Return the counts of both."""
        return self._of(mine + its for mine, its in zip(self.words, other.words, strict=True))

    def __sub__(self, earlier: HostTimings) -> Self:
        """Return what came since ``earlier``."""
        return self._of(max(0, mine - its) for mine, its in zip(self.words, earlier.words, strict=True))

    def _of(self, words: Iterable[int]) -> Self:
        return type(self)(array("q", words))


class SlowRequest(NamedTuple):
    """A read that took long.

    Attributes:
        elapsed_s: Seconds from its first attempt to its end, pauses between attempts included.
        url: The object's.
        size_bytes: How much of it came with the last attempt.
        attempts: How often it was asked for.
        status: Of the last response; 0 where there was none.
        ended_at: Seconds since the epoch.

    """

    elapsed_s: float
    url: str
    size_bytes: int
    attempts: int
    status: int
    ended_at: float


class Slowest:
    """The slowest reads of this process since it was made; kept as long as somebody holds it.

    Attributes:
        above_s: What a read must take to be kept.

    """

    __slots__ = ("__weakref__", "_count", "_heap", "above_s")

    def __init__(self, count: int = 10) -> None:
        """Keep ``count``."""
        self._count = count
        self._heap: list[SlowRequest] = []
        self.above_s = 0.0
        _watching[self] = None
        _limit()

    def found(self) -> list[SlowRequest]:
        """Return them, the slowest first."""
        return sorted(self._heap, reverse=True)

    def add(self, request: SlowRequest) -> None:
        """Keep a read, if it is one of the slowest; on the thread of its transport."""
        if len(self._heap) < self._count:
            heappush(self._heap, request)
        elif request.elapsed_s > self.above_s:
            heapreplace(self._heap, request)
        if len(self._heap) == self._count:
            self.above_s = self._heap[0].elapsed_s


class Timings:
    """Where one store's operations tell what its responses cost; counts of all stores of a process lie by host.

    No method blocks, and none holds a lock: additions to one word are not interrupted by other threads.

    Attributes:
        host: Counts of the host that was measured last, of all stores there; some of the latest responses may be
            missing from them, which ``measured`` includes.

    """

    __slots__ = ("__weakref__", "_origin", "_owed", "_received", "_since", "host")

    def __init__(self, scheme: str = "") -> None:
        """Know no host yet; responses to no request (of a local file, say) count for ``scheme``."""
        self._origin = f"{scheme}://"
        self._since = self._received = 0  # responses that are not yet counted, and their bytes
        self._owed = 0  # those that are counted, and that the next measured one stands for, too
        self.host = _host(scheme)
        _all[self] = None

    @property
    def where(self) -> str:
        """The host, with its port where it has one; empty of a store without a wire."""
        return self._origin.partition("://")[2].rstrip("/")

    def turn(self, url: str) -> None:
        """Count for the host of ``url`` from here on, what is not yet counted included."""
        if not url or url.startswith(self._origin):
            return
        host = host_of(url)
        self._origin, self.host = f"{url.partition('://')[0]}://{host}/", _host(host)

    def answered(self, response: Answer, url: str, size_bytes: int, began: float) -> float:
        """Count the good response to a read of an object, which was first sent at ``began``, and its ``size_bytes``.

        ``url`` is the request's; empty where none was made. Returns the seconds since ``began`` where the read is one
        of the slowest, for ``slow``, and 0.0 where it is not.
        """
        self._since += 1
        self._received += size_bytes
        elapsed_s = monotonic() - began
        if response.first_byte_s or self._since >= _SETTLE:
            self._measure(response, url, size_bytes, elapsed_s)
        return elapsed_s if elapsed_s > _above_s[0] else 0.0

    def carried(self, url: str, sent_bytes: int) -> None:
        """Count the good response to any other request, which sent ``sent_bytes``."""
        self.turn(url)
        words = self.host.words
        words[_RESPONSES] += 1
        words[_SENT] += sent_bytes

    def failed(self, wait_s: float | None, *, throttled: bool) -> None:
        """Count an attempt that failed; another one follows after ``wait_s`` seconds, or none where that is None."""
        words = self.host.words
        words[_RESPONSES] += 1
        words[_FAILED] += 1
        words[_THROTTLED] += throttled
        if wait_s is not None:
            words[_RETRIED] += 1
            words[_THROTTLED_NS if throttled else _RETRIED_NS] += int(wait_s * _NS)

    def paced(self, wait_s: float) -> None:
        """Count seconds that a request waits for its turn, at a bounded rate."""
        self.host.words[_PACED_NS] += int(wait_s * _NS)

    def sooner(self, wait_s: float) -> None:
        """Take note that an attempt after a refusal for the rate comes so much earlier than ``failed`` was told."""
        self.host.words[_THROTTLED_NS] -= int(wait_s * _NS)

    def hedged(self, *, won: bool, wasted_bytes: int) -> None:
        """Count a second request for a read that took long, once one of the two has ended the other."""
        words = self.host.words
        words[_HEDGED] += 1
        words[_HEDGES_WON] += won
        words[_WASTED] += wasted_bytes

    def settle(self) -> int:
        """Add what is not yet counted to the host's counts; returns how many responses that were."""
        count, self._since = self._since, 0
        received, self._received = self._received, 0
        words = self.host.words
        words[_RESPONSES] += count
        words[_RECEIVED] += received
        self._owed += count
        return count

    def __del__(self) -> None:
        """Count what is left: an engine that is collected takes nothing along."""
        with suppress(Exception):  # the interpreter exits, and what it takes is gone already
            self.settle()

    def _measure(self, response: Answer, url: str, size_bytes: int, elapsed_s: float) -> None:
        self.turn(url)
        self.settle()
        if url and not response.first_byte_s:
            return
        weight, self._owed, host = self._owed, 0, self.host
        if not url:
            host.first_byte.add(elapsed_s, weight)  # there is nothing before the first byte of a file but the file
        else:
            host.first_byte.add(response.first_byte_s, weight)
            host.words[_BODY_NS] += int(response.body_s * _NS) * weight
            if size_bytes >= _BODY_BYTES and response.body_s > 0:
                host.body_rate.add(size_bytes / response.body_s, weight)


def host_of(url: str) -> str:
    """Return the host that a request's URL names, with its port where it has one."""
    return url.partition("://")[2].partition("/")[0].partition("?")[0]


def slow(request: SlowRequest) -> None:
    """Keep a slow read in each ``Slowest``; on the thread of its transport."""
    for each in _those_of(_watching):
        each.add(request)
    _limit()


def measured() -> dict[str, HostTimings]:
    """Return the counts of this process by host (``name:port``; the scheme, of stores without a wire), copied."""
    for each in _those_of(_all):
        each.settle()
    return {name: host.copy() for name, host in list(_hosts.items()) if host.responses}


_hosts: dict[str, HostTimings] = {}
_all: WeakKeyDictionary[Timings, None] = WeakKeyDictionary()
_watching: WeakKeyDictionary[Slowest, None] = WeakKeyDictionary()
_above_s: Final = [float("inf")]  # the least that anybody keeps


def _those_of(weak: WeakKeyDictionary[T, None]) -> list[T]:
    """Return the keys; unlike by a loop over them, while other threads add some."""
    return [each for each in (its() for its in weak.keyrefs()) if each is not None]


def _host(name: str) -> HostTimings:
    found = _hosts.get(name)
    if found is None:
        if len(_hosts) >= _HOSTS and not _fold():
            name = _OTHERS
        found = _hosts.setdefault(name, HostTimings())
    return found


def _fold() -> bool:
    """Count hosts that no store uses any more together, to make room; False where there are none."""
    held = {id(each.host) for each in _those_of(_all)}
    idle = [name for name, host in list(_hosts.items()) if id(host) not in held and name != _OTHERS]
    for name in idle:
        if (host := _hosts.pop(name, None)) is not None:  # else another thread was here first
            _hosts[_OTHERS] = _hosts.get(_OTHERS, HostTimings()) + host
    return bool(idle)


def _limit() -> None:
    _above_s[0] = min((each.above_s for each in _those_of(_watching)), default=float("inf"))


def _forget() -> None:
    """Begin anew in a forked child: what was counted is the parent's."""
    _hosts.clear()
    _all.clear()
    _watching.clear()
    _limit()


os.register_at_fork(after_in_child=_forget)
