"""Retries without waiting, for tests of code that must survive a failing store and must not sleep for it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.engine.operations.policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_waiting() -> Iterator[None]:
    """Make every retry of this process immediate while the block runs; the number of retries stays the same.

    The clock that measures patience hardly moves then, so ``RetryOptions.attempts`` ends the retries. Timeouts of
    transfers are real: shorten them with ``TransportOptions``. Children forked in the block do not wait either.
    """
    before, RetryPolicy.pace = RetryPolicy.pace, 0.0
    try:
        yield
    finally:
        RetryPolicy.pace = before
