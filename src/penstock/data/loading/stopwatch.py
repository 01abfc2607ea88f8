"""Timers: the time that calls of a function take, and the processor time that a thread has demanded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Stopwatch", "demanded_s"]

T = TypeVar("T")
R = TypeVar("R")

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")  # Linux: ns running, ns waiting for a processor, slices
_NS: Final = 1_000_000_000


class Stopwatch(Generic[T, R]):
    """A function whose calls are timed; several threads may call it at once.

    Attributes:
        seconds: Total seconds of all calls so far, including calls that raised.

    """

    __slots__ = ("_function", "seconds")

    def __init__(self, function: Callable[[T], R]) -> None:
        """Begin at zero."""
        self._function = function
        self.seconds = 0.0

    def __call__(self, value: T) -> R:
        """Call the function, and add the time it takes."""
        began_s = monotonic()
        try:
            return self._function(value)
        finally:
            took_s = monotonic() - began_s
            self.seconds += took_s


def demanded_s() -> float:
    """Return the seconds that this thread ran, or was ready and waited for a processor, since its start.

    In the rest of its time, the thread waited for locks (Python's GIL among them), files or the network. If the kernel
    does not report how long the thread was ready, only the seconds that it ran are returned.
    """
    with suppress(OSError, ValueError):
        ran, waited, *_ = _SCHEDSTAT.read_bytes().split()
        return (int(ran) + int(waited)) / _NS
    return thread_time()
