"""Retry decision, a pure function, and the token bucket that keeps retries from piling up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.options import RetryOptions

__all__ = ["Failure", "Tokens", "delay"]

_REFUND = 0.1  # tokens a success gives back


@dataclass(slots=True)
class Tokens:
    """Retries that may still be made quickly, shared by all operations on one store."""

    left: float
    limit: float

    def refund(self) -> None:
        """Count a success: give back a tenth of a token, up to ``limit``."""
        if self.left < self.limit:
            self.left = min(self.limit, self.left + _REFUND)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt.

    Attributes:
        attempt: Number of the attempt, from 1.
        elapsed_s: Seconds since the operation began, or since it last made progress.
        answered: Whether the store has answered this process before.
        retries: Most attempts after the first that may help against this error.
        retry_after_s: Seconds that the server asked to wait; 0 if it did not.

    """

    attempt: int
    elapsed_s: float
    answered: bool
    retries: int
    retry_after_s: float = 0.0


def delay(failure: Failure, options: RetryOptions, tokens: Tokens, draw: float) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up; a retry spends a token if one is left.

    ``draw`` is uniform in [0, 1): full jitter. A ``Retry-After`` is a floor under the jittered delay. Without a token
    the delay is drawn from the whole range up to ``cap_s``: many operations that fail together slow down, but none of
    them gives up before its patience is over.
    """
    patience_s = options.patience_s if failure.answered else options.first_contact_s
    # 2.0 ** 1024 would overflow; the cap applies long before 63 doublings.
    scale_s = options.base_s * 2.0 ** min(63, failure.attempt - 1) if tokens.left >= 1 else options.cap_s
    wait_s = max(min(options.cap_s, scale_s) * draw, failure.retry_after_s)
    most = min(options.attempts - 1, failure.retries)
    if failure.attempt > most or failure.elapsed_s + wait_s > patience_s:
        return None
    if tokens.left >= 1:
        tokens.left -= 1
    return wait_s
