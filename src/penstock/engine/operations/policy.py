"""Retry policy: a failed attempt leads to a retry after a delay, or to an error with all known details.

``delay`` is the decision, a pure function, and ``Tokens`` the bucket that keeps retries from piling up.
``RetryPolicy`` is what all operations on a store share, with ``Scratch``: buffers for objects of unknown size, as large
as ``Sizes`` has seen objects.
"""

from __future__ import annotations

import random
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from logging import getLogger
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import MOVED
from penstock.errors import (
    Bug,
    Cancelled,
    PenstockError,
    Throttled,
    TimedOut,
    Transient,
    Unreachable,
    Unusable,
    printable,
)
from penstock.events import Retried, Timings, begin, emit, listening

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.contracts.driver import Driver
    from penstock.options import RetryOptions

# Retries after short delays that all operations on a store share.
_TOKENS = 500
_REFUND = 0.1  # tokens a success gives back


@dataclass(slots=True)
class Tokens:
    """Retries that may still be made quickly, shared by all operations on one store."""

    left: float
    limit: float

    def refund(self) -> None:
        """Return a tenth of a token, up to ``limit``, for a success."""
        if self.left < self.limit:
            self.left = min(self.limit, self.left + _REFUND)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, ``elapsed_s`` after the operation began or last made progress.

    ``answered``: the store has answered this process before. ``retries``: most retries of such a failure that may help,
    of which this is the ``row``-th in a row.
    """

    attempt: int
    elapsed_s: float
    answered: bool
    retries: int
    retry_after_s: float = 0.0
    row: int = 0


def count_row(before: int, error: PenstockError) -> int:
    """Return how many failures in a row were not transient, ``error`` included; each allows only some retries."""
    return 0 if error.retries == Transient.retries else before + 1


def delay(failure: Failure, options: RetryOptions, tokens: Tokens, draw: float) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up; a retry spends a token if one is left.

    ``draw`` is uniform in [0, 1): full jitter. A ``Retry-After`` is a floor under the jittered delay. Without a token
    the delay is drawn from the whole range up to ``cap_s``: many operations that fail together slow down, but none of
    them gives up before its patience is over.
    """
    patience_s = options.patience_s if failure.answered else options.first_contact_s
    # 2.0 ** 1024 would overflow; the cap applies long before 63 doublings.
    scale_s = (
        options.base_s * 2.0 ** min(63, (failure.row or failure.attempt) - 1) if tokens.left >= 1 else options.cap_s
    )
    wait_s = max(min(options.cap_s, scale_s) * draw, failure.retry_after_s)
    # Credentials that expire in an outage help although the attempts before failed for another reason.
    given_up = failure.attempt >= options.attempts or failure.row > failure.retries
    if given_up or failure.elapsed_s + wait_s > patience_s:
        return None
    if tokens.left >= 1:
        tokens.left -= 1
    return wait_s


_LOG = getLogger("penstock")
# Most bytes of buffers for objects of unknown size, unless reads ahead may take more.
_SCRATCH_BYTES = 64 << 20
# Time without success; a shorter failure is not worth a warning.
_FIRST_S = 5.0
_EVERY_S = 30.0
# This many refusals for the rate are worth a warning, though each request succeeds in the end.
_MANY = 100
_MOST_MOVES = 64  # drivers bound their redirects themselves


@dataclass(slots=True)
class Hedges:
    """Second requests of one store: the ``open`` ones by late read, and the number ``made``."""

    open: dict[Any, Any] = field(default_factory=dict)
    made: int = 0
    throttled_at: float = -inf


class RetryPolicy:
    """State that all operations on one store share for retries: the retry budget and the store's behaviour so far.

    ``unranged`` takes over a read that the store has answered with the whole object, on the transport's thread.
    ``tells``: whether reads are reported to listeners (``RangeRead``); a second request does not count. ``pace``:
    factor of jitter and ``Retry-After``; only ``penstock.testing.clock`` sets it.
    """

    pace: ClassVar[float] = 1.0
    tells: bool = True

    def __init__(self, driver: Driver, retry: RetryOptions, ahead_bytes: int = 0) -> None:
        begin()
        self.driver = driver
        self.timings = Timings(_scheme(driver.url("")))
        # An object without a buffer is collected in memory that doubles, and then copied.
        self.scratch = Scratch(max(_SCRATCH_BYTES, ahead_bytes))
        # The argument is a SpanRead, whose module imports this one.
        self.unranged: Callable[[Any], None]
        self.attempts = retry.attempts
        self.hedges = Hedges()
        self._retry = retry
        self.tokens = Tokens(_TOKENS, _TOKENS)
        self._answered = False
        self._quiet_until = 0.0
        self._refused = self._told = 0  # refusals for the rate, and how many of them were logged
        self._draw = random.Random().random  # noqa: S311  jitter; a separate generator: user seeds do not align ranks

    def failed(
        self, error: PenstockError, url: str, attempt: int, began: float, row: int
    ) -> tuple[PenstockError, float | None]:
        """Count a failed attempt for the host of ``url``; return its error and the delay from ``decide``. Never raises.

        If counting fails, that error is returned, without another attempt: the waiting thread must wake.
        """
        try:
            self.timings.turn(url)
            return error, self.decide(error, attempt, began, row)
        except Exception as broken:  # noqa: BLE001  see above
            return bug(broken), None

    def decide(self, error: PenstockError, attempt: int, began: float, row: int = 0) -> float | None:
        """Return the delay before another attempt, or None to give up; on the transport's thread."""
        if error.retries and error.code == MOVED and attempt <= _MOST_MOVES:
            # A redirect is not a failure: it uses neither patience nor a token.
            return 0.0
        wait_s = self._delay(error, attempt, began, row) if error.retries else None
        throttled = isinstance(error, Throttled)
        if throttled:
            self.throttled()
        if not isinstance(error, Cancelled):
            self._refused += throttled
            self.timings.failed(wait_s, throttled=throttled)
        if wait_s is not None:
            _sever(error)
            if listening():
                emit(Retried(error.url, error, attempt, wait_s))
        return wait_s

    def _delay(self, error: PenstockError, attempt: int, began: float, row: int) -> float | None:
        asked_s = (error.retry_after_s or 0.0) * self.pace
        failure = Failure(attempt, monotonic() - began, self._has_answered(error), error.retries, asked_s, row)
        return delay(failure, self._retry, self.tokens, self._draw() * self.pace)

    def throttled(self) -> None:
        self.hedges.throttled_at = monotonic()

    def once(self) -> RetryPolicy:
        """Return a policy for the same store that never retries and does not count successes."""
        once = copy(self)
        once.hedges, once.tokens = Hedges(), Tokens(1, 1)
        once._retry = replace(self._retry, attempts=1)  # noqa: SLF001  of this class
        once.unranged = _refuse_unranged
        once.tells = False
        return once

    def warn(self, error: PenstockError, key: str, attempts: int, began: float) -> None:
        """Log the last error of an operation that takes long; the waiting thread calls this about once a second.

        The first warning comes after 5 s, then one every 30 s for all operations on the store together: a ``WARNING``
        of the logger ``penstock``. This never runs on the transport's thread, which no log handler may delay or break.
        """
        now = monotonic()
        elapsed_s = now - began
        if now < self._quiet_until:
            return
        if elapsed_s < _FIRST_S:
            self._warn_throttled(now)
            return
        self._quiet_until = now + _EVERY_S
        patience_s = self._retry.patience_s if self._has_answered(error) else self._retry.first_contact_s
        with suppress(Exception):
            _LOG.warning(
                "failing for %.0f s (%d attempts); last error: %s: %s%s; retrying for up to %.0f s more%s",
                elapsed_s,
                attempts,
                type(error).__name__,
                error,
                "" if error.url else f" [{printable(self.driver.url(key))}]",
                max(0.0, patience_s - elapsed_s),
                f" (host {self.timings.where})" if self.timings.where else "",
            )

    def _warn_throttled(self, now: float) -> None:
        count, before = self._refused - self._told, self._told
        if count < _MANY:
            return
        self._quiet_until, self._told = now + _EVERY_S, self._told + count
        with suppress(Exception):
            _LOG.warning(
                "%s rate-limited %d requests (%d before that); they are retried later, and fewer in parallel",
                self.timings.where or "the store",
                count,
                before,
            )

    def _has_answered(self, error: PenstockError) -> bool:
        return self._answered or not isinstance(error, (TimedOut, Unreachable))

    def succeeded(self) -> None:
        self._answered = True
        self.tokens.refund()

    def blame(self, error: PenstockError, key: str, attempts: int, began: float) -> PenstockError:
        """Add the operation's details to an error, and remove the error's references to the operation."""
        if not isinstance(error, Cancelled):
            error.attempts, error.elapsed_s = attempts, monotonic() - began
        error.url = error.url or (self.driver.url(key) if key else "")
        _sever(error)
        return error


def _refuse_unranged(read: Any) -> None:  # noqa: ANN401  a SpanRead, whose module imports this one
    read.end(Unusable("this server ignores Range"))


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return scheme if found else "file"  # a path


def _sever(error: PenstockError) -> None:
    """Drop the tracebacks of an error and its causes.

    Their frames hold the operation, which holds the error and the memory that it reads into.
    """
    link: BaseException | None = None if isinstance(error, Bug) else error
    seen: set[int] = set()
    # Causes may form a cycle, and this runs on the I/O thread.
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def again(error: PenstockError) -> PenstockError:
    """Return a copy, to raise, of an error that is kept: a raised error keeps its callers' objects alive."""
    fresh = copy(error)
    fresh.__cause__, fresh.__context__ = error.__cause__, error.__context__
    fresh.__suppress_context__ = error.__suppress_context__
    return fresh


def bug(error: Exception) -> PenstockError:
    """Wrap an unexpected exception of a parser in ``Bug``: it must not stop the I/O thread."""
    wrapped = Bug(f"unexpected {type(error).__name__} in an answer: {error}")
    wrapped.__cause__ = error
    return wrapped


_LEAST_BYTES = 4 << 10  # a page of memory
# After this many objects of one bound, the largest of them determines the room for the next.
_OBJECTS = 64
_KEPT_BYTES = 8 << 20  # of free buffers, while nothing is in flight
_MOST_KEPT_BYTES = 32 << 20


class Scratch:
    """Buffers for one store, as large as its earlier objects were; used on its transport's thread.

    An object takes over its buffer's memory, and the unused rest is freed; a much smaller object is copied, and the
    buffer is reused (``Buffer.cut``). Data that waits to be consumed thus takes no more than its own size, and data in
    flight takes at most ``most_bytes``. Beyond that, an object is read without a buffer.
    """

    __slots__ = ("_free", "_held_bytes", "_largest", "_most_bytes", "_size", "sizes")

    def __init__(self, most_bytes: int) -> None:
        self.sizes = Sizes()
        self._most_bytes = most_bytes
        self._held_bytes = 0  # in use
        self._free: list[Buffer] = []  # all of one size
        self._size = 0  # of the buffer that was allocated last
        # By rounded bound: the number of objects, and the rounded size of the largest.
        self._largest: dict[int, tuple[int, int]] = {}

    def take(self, most: int = 0) -> Buffer | None:
        """Return a buffer for an object; None if it would exceed ``most_bytes`` of the constructor.

        With ``most``, an object of at most that many bytes fits, unless it is larger than many before with the same
        bound. Without it, the object fits if it is like nearly all objects so far.
        """
        size = self._room(most) if most else self.sizes.bound
        if not size or self._held_bytes + size > self._most_bytes:
            return None
        self._held_bytes += size
        if self._free and self._free[-1].size == size:
            return self._free.pop()
        if size != self._size:
            self._size = size
            # The C library gets memory above a threshold from the system piece by piece, with pages to be touched anew
            # each time. It raises the threshold to the size of memory that is freed whole (glibc: M_MMAP_THRESHOLD).
            # Buffers never are, except this one.
            Buffer.allocate(size)
        return Buffer.allocate(size)

    def learn(self, size: int, most: int = 0) -> None:
        self.sizes.add(size)
        if most:
            count, largest = self._largest.get(_power(most), (0, 0))
            self._largest[_power(most)] = count + 1, max(largest, _power(size))

    def _room(self, most: int) -> int:
        """Return the room for ``most`` bytes, or for the largest such object so far: a tighter buffer needs no copy."""
        count, largest = self._largest.get(_power(most), (0, 0))
        return largest if count >= _OBJECTS else _power(most)

    def give(self, buffer: Buffer) -> None:
        self._held_bytes -= buffer.size
        if buffer.spent:
            return
        if self._free and self._free[-1].size != buffer.size:
            self._free.clear()
        if len(self._free) * buffer.size < max(_KEPT_BYTES, min(self._held_bytes, _MOST_KEPT_BYTES)):
            self._free.append(buffer)


def _power(size: int) -> int:
    return max(_LEAST_BYTES, 1 << (size - 1).bit_length())


_LEAST, _MOST = 12, 26  # buffers of 4 KiB to 64 MiB, in powers of two
# Share of the objects that must fit: each of the others costs a second request, and a connection.
_FIT = 63 / 64
_POWERS = [min(max(_LEAST, bits), _MOST + 1) for bits in range(65)]  # by the bit length of a size, 63 at most
# Objects between two updates of the bound, and objects after which all counts are halved.
_EVERY, _FORGET = 64, 1024


class Sizes:
    """Counts of objects by powers of two; nearly all fit into ``bound``, 0 while it is unknown or too large."""

    __slots__ = ("_counts", "_total", "bound")

    def __init__(self) -> None:
        self._counts = [0] * (_MOST + 2)
        self._total = 0
        self.bound = 0

    def add(self, size_bytes: int) -> None:
        self._counts[_POWERS[(size_bytes - 1).bit_length()]] += 1
        total = self._total = self._total + 1
        if total < _EVERY or total % _EVERY == 0:
            self._look()

    def _look(self) -> None:
        fitting = accumulate(self._counts)
        power = next(power for power, count in enumerate(fitting) if count >= _FIT * self._total)
        self.bound = 1 << power if power <= _MOST else 0
        if self._total >= _FORGET:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)
