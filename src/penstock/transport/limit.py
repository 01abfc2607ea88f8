"""How many requests to have in flight: as many as pay. Pure arithmetic on counts and times it is given."""

from __future__ import annotations

__all__ = ["Limit"]

_START = 64
_LEAST = 32
_EPOCH_S = 0.05  # and four requests for each place: below that a rate is noise
_GAIN = 1.15  # what twice as many must bring to be kept
_LOSS = 0.95  # what half as many must keep
_REST_S = 5.0  # between two trials once it has settled


class Limit:
    """Doubles the requests in flight while that raises their rate, and halves them while that does not lower it.

    A distant store needs hundreds to fill the line; a near one only spoils the processor's caches with them (measured
    on loopback with 100 KiB objects: 115 µs of CPU per object at 256 in flight, 87 µs at 32). Time counts only while
    more requests are waiting for a place: what a slow consumer leaves idle says nothing about the store.

    Attributes:
        now: Requests that may be in flight at this moment.
        most: What it never exceeds.

    """

    __slots__ = ("_at", "_before", "_count", "_elapsed_s", "_rate", "_rest_until", "_up", "most", "now")

    def __init__(self, most: int) -> None:
        """Begin with 64, or ``most`` where that is less."""
        self.most = most
        self.now = min(_START, most)
        self._before = self.now  # what is gone back to when a trial fails; ``now`` where none is on
        self._rate = 0.0
        self._up = True
        self._rest_until = 0.0
        self._at: float | None = None
        self._count, self._elapsed_s = 0, 0.0

    def record(self, finished: int, at: float, *, waiting: bool) -> None:
        """Take note that ``finished`` requests ended by time ``at`` and whether others wait for their place."""
        if self._at is not None:
            self._count += finished
            self._elapsed_s += at - self._at
        self._at = at if waiting else None
        if self._count >= 4 * self.now and self._elapsed_s >= _EPOCH_S:
            self._judge(self._count / self._elapsed_s, at)
            self._count, self._elapsed_s = 0, 0.0

    def _judge(self, rate: float, at: float) -> None:
        if self.now == self._before:
            self._rate = rate
            if at >= self._rest_until:
                self._try()
        elif rate >= self._rate * (_GAIN if self.now > self._before else _LOSS):
            self._rate, self._before = rate, self.now
            self._try()
        else:
            self.now = self._before
            self._up = not self._up
            self._rest_until = at + _REST_S

    def _try(self) -> None:
        tried = min(2 * self.now, self.most) if self._up else max(self.now // 2, min(_LEAST, self.most))
        if tried == self.now:
            self._up = not self._up
        else:
            self.now = tried
