"""Decides on a failed attempt: another one after a while, or an error that says all that is known of it."""

from __future__ import annotations

import random
from contextlib import suppress
from copy import copy
from dataclasses import replace
from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import Bug, Cancelled, PenstockError, Throttled, TimedOut, Unreachable, Unusable, printable
from penstock.events import Retried, Timings, begin, emit, listening
from penstock.fetch.backoff import Failure, Tokens, delay
from penstock.fetch.reading.hedge import Hedges
from penstock.fetch.scratch import Scratch
from penstock.protocols.driver import MOVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.options import RetryOptions
    from penstock.protocols.driver import Driver

__all__ = ["RetryPolicy", "again", "bug"]

_LOG = getLogger("penstock")
_SCRATCH_BYTES = 64 << 20
_FIRST_S = 5.0  # without success: a short failure is not worth a warning
_EVERY_S = 30.0
_MANY = 100  # refusals for the rate are worth a warning, though each request succeeds in the end
_MOST_MOVES = 64  # drivers bound their redirects themselves


class RetryPolicy:
    """What all operations on one store share when they fail: the budget of retries, and what the store has shown.

    Attributes:
        attempts: Most requests of one operation.
        driver: Whose verbs are carried out.
        hedges: Second requests for reads that take long.
        timings: What the store's responses cost.
        scratch: Buffers for objects of unknown size.
        tokens: Of retries.
        unranged: Takes over a read that the store has answered with the whole object, on the transport's thread.
        tells: Whether reads are told to listeners (``RangeRead``); a second request is no second read.
        pace: What jitter and ``Retry-After`` are multiplied by; only ``penstock.testing.clock`` sets it.

    """

    pace: ClassVar[float] = 1.0
    tells: bool = True

    def __init__(self, driver: Driver, retry: RetryOptions) -> None:
        """Follow ``retry``; the store has not answered yet."""
        begin()
        self.driver = driver
        self.timings = Timings(_scheme(driver.url("")))
        self.scratch = Scratch(_SCRATCH_BYTES)
        self.unranged: Callable[[Any], None]  # of a SpanRead, whose file knows this one
        self.attempts = retry.attempts
        self.hedges = Hedges()
        self._retry = retry
        self.tokens = Tokens(retry.tokens, retry.tokens)
        self._answered = False
        self._quiet_until = 0.0
        self._refused = self._told = 0  # refusals for the rate, and how many of them were told
        self._draw = random.Random().random  # noqa: S311  jitter; a generator of its own, so user seeds do not align ranks

    def failed(self, error: PenstockError, url: str, attempt: int, began: float) -> tuple[PenstockError, float | None]:
        """Count a failed attempt for the host of ``url``; return its error and ``decide``'s delay. It never raises.

        Whatever goes wrong in counting is the error then, and there is no other attempt: who waits must wake.
        """
        try:
            self.timings.turn(url)
            return error, self.decide(error, attempt, began)
        except Exception as broken:  # noqa: BLE001  see above
            return bug(broken), None

    def decide(self, error: PenstockError, attempt: int, began: float) -> float | None:
        """Return the delay before another attempt, or None; on the transport's thread."""
        if error.retries and error.code == MOVED and attempt <= _MOST_MOVES:
            return 0.0  # a redirect is no failure: it takes no patience and no token
        wait_s = self._delay(error, attempt, began) if error.retries else None
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

    def _delay(self, error: PenstockError, attempt: int, began: float) -> float | None:
        asked_s = (error.retry_after_s or 0.0) * self.pace
        failure = Failure(attempt, monotonic() - began, self._has_answered(error), error.retries, asked_s)
        return delay(failure, self._retry, self.tokens, self._draw() * self.pace)

    def throttled(self) -> None:
        """Take note that the store was asked too often."""
        self.hedges.throttled_at = monotonic()

    def once(self) -> RetryPolicy:
        """Return a policy for the same store that tries nothing a second time, and does not count what succeeds."""
        once = copy(self)
        once.hedges, once.tokens = Hedges(), Tokens(1, 1)
        once._retry = replace(self._retry, attempts=1)  # noqa: SLF001  its own
        once.unranged = _unranged
        once.tells = False
        return once

    def warn(self, error: PenstockError, key: str, attempts: int, began: float) -> None:
        """Log what an operation that is waited for has met with; on the thread that waits, about once a second.

        The first time after 5 s, then every 30 s for all operations on the store together: a ``WARNING`` of the logger
        ``penstock``. Never on the transport's thread, which no handler shall keep or break.
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
                "no success for %.0f s in %d attempts, the last was %s: %s%s; it is tried again for %.0f s more%s",
                elapsed_s,
                attempts,
                type(error).__name__,
                error,
                "" if error.url else f" [{printable(self.driver.url(key))}]",
                max(0.0, patience_s - elapsed_s),
                f" (host {self.timings.where})" if self.timings.where else "",
            )

    def _warn_throttled(self, now: float) -> None:
        """Log that the store refuses many requests, each of which succeeds after all."""
        count, before = self._refused - self._told, self._told
        if count < _MANY:
            return
        self._quiet_until, self._told = now + _EVERY_S, self._told + count
        with suppress(Exception):
            _LOG.warning(
                "%s refused %d requests for their rate (%d before that); they are made again later, and fewer at once",
                self.timings.where or "the store",
                count,
                before,
            )

    def _has_answered(self, error: PenstockError) -> bool:
        return self._answered or not isinstance(error, (TimedOut, Unreachable))

    def succeeded(self) -> None:
        """Count a success: the store lives, and a retry token comes back."""
        self._answered = True
        tokens = self.tokens
        if tokens.left < tokens.limit:
            tokens.refund()

    def blame(self, error: PenstockError, key: str, attempts: int, began: float) -> PenstockError:
        """Complete an error with what the operation knows, and cut what leads from it back to the operation."""
        if not isinstance(error, Cancelled):
            error.attempts, error.elapsed_s = attempts, monotonic() - began
        error.url = error.url or (self.driver.url(key) if key else "")
        _sever(error)
        return error


def _unranged(read: Any) -> None:  # noqa: ANN401  of a SpanRead, whose file knows this one
    read.end(Unusable("this server ignores Range"))


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return scheme if found else "file"  # a path


def _sever(error: PenstockError) -> None:
    """Forget the frames that an error has passed: they hold its operation, which holds it, and what that reads into."""
    link: BaseException | None = None if isinstance(error, Bug) else error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:  # causes may lead in a circle, and this is the I/O thread
        seen.add(id(link))
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def again(error: PenstockError) -> PenstockError:
    """Return a copy to raise of an error that is kept: the one that is raised keeps alive what its callers hold."""
    fresh = copy(error)
    fresh.__cause__, fresh.__context__ = error.__cause__, error.__context__
    fresh.__suppress_context__ = error.__suppress_context__
    return fresh


def bug(error: Exception) -> PenstockError:
    """Wrap what no parser should raise: it must not take the I/O thread along."""
    wrapped = Bug(f"unexpected {type(error).__name__} in an answer: {error}")
    wrapped.__cause__ = error
    return wrapped
