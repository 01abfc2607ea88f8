"""Judges a failed attempt: another one after a while, or an error that says all that is known of it."""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import Bug, Cancelled, PenstockError, TimedOut, Unreachable
from penstock.events import Retried, emit, listening
from penstock.fetch.retry import Failure, Tokens, delay

if TYPE_CHECKING:
    from penstock.options import RetryOptions
    from penstock.protocols.driver import Driver

__all__ = ["Judge", "bug"]


class Judge:
    """What all operations on one store share when they fail: the budget of retries, and what the store has shown.

    Attributes:
        driver: Whose verbs are carried out.
        pace: What jitter and ``Retry-After`` are multiplied by; ``penstock.testing.clock`` sets it, nobody else.

    """

    pace: ClassVar[float] = 1.0

    def __init__(self, driver: Driver, retry: RetryOptions) -> None:
        """Judge by ``retry``; the store has not answered yet."""
        self.driver = driver
        self._retry = retry
        self._tokens = Tokens(retry.tokens, retry.tokens)
        self._answered = False
        self._draw = random.Random().random  # noqa: S311  jitter; a generator of its own, so user seeds do not align ranks

    def decide(self, error: PenstockError, attempt: int, began: float) -> float | None:
        """Return the delay before another attempt, or None; on the transport's thread."""
        if not error.retries:
            return None
        answered = self._answered or not isinstance(error, (TimedOut, Unreachable))
        asked_s = (error.retry_after_s or 0.0) * self.pace
        failure = Failure(attempt, monotonic() - began, answered, error.retries, asked_s)
        wait_s = delay(failure, self._retry, self._tokens, self._draw() * self.pace)
        if wait_s is not None and listening():
            emit(Retried(error.url, error, attempt, wait_s))
        return wait_s

    def succeeded(self) -> None:
        """Count a success: the store lives, and a retry token comes back."""
        self._answered = True
        self._tokens.refund()

    def blame(self, error: PenstockError, key: str, attempts: int, began: float) -> PenstockError:
        """Complete an error with what the operation knows."""
        if not isinstance(error, Cancelled):
            error.attempts, error.elapsed_s = attempts, monotonic() - began
        error.url = error.url or (self.driver.url(key) if key else "")
        return error


def bug(error: Exception) -> PenstockError:
    """Wrap what no parser should raise: it must not take the I/O thread along."""
    wrapped = Bug(f"unexpected {type(error).__name__} in an answer: {error}")
    wrapped.__cause__ = error
    return wrapped
