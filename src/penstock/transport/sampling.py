"""Which responses are measured: all of a few, and some of many. Pure arithmetic on times and draws it is given."""

from __future__ import annotations

__all__ = ["Sampling"]

_MOST_PER_S = 200  # to measure a response costs 5 µs: 0.1 % of a processor
_RISE = 1.5  # from one measured response to the next
_RAREST = 64  # one in so many on average: rates beyond 64,000/s are not met


class Sampling:
    """Measures about ``_MOST_PER_S`` responses a second, by gaps of random length, so that no pattern is missed.

    Attributes:
        left: Responses until the next one that is measured; counted down by the I/O thread.

    """

    __slots__ = ("_at", "_drawn", "_every", "left")

    def __init__(self) -> None:
        """Measure the first."""
        self.left = 1
        self._drawn = 1  # the gap that ends now
        self._every = 1.0
        self._at = -1.0

    def renew(self, at: float, draw: float) -> None:
        """Choose the next response after one was measured at ``at``; ``draw`` is uniform in [0, 1)."""
        elapsed_s, self._at = at - self._at, at
        wanted = self._drawn / max(elapsed_s, 1e-6) / _MOST_PER_S
        self._every = max(1.0, min(wanted, self._every * _RISE, _RAREST))  # a burst is no rate yet
        self.left = self._drawn = 1 + int(draw * 2 * (self._every - 1))
