"""How many requests to have in flight: as many as pay. Pure arithmetic on counts and times it is given."""

from __future__ import annotations

from math import inf

__all__ = ["Limit"]

_START = 64
_LEAST = 32
_EPOCH_S = 0.05  # and four requests for each place: below that a rate is noise
_GAIN = 1.15  # what twice as many must bring to be kept
_LOSS = 0.95  # what half as many must keep
_REST_S = 5.0  # between two trials once it has settled
_FASTEST = 10_000  # requests/s that one I/O thread carries at best (100 KiB objects: 7,000 to 14,000 were measured)


class Limit:
    """Doubles the requests in flight while that raises their rate, and halves them while that does not lower it.

    A distant store needs hundreds to fill the line; a near one only spoils the processor's caches with them (measured
    on loopback with 100 KiB objects: 115 µs of CPU per object at 256 in flight, 87 µs at 32). Time counts only while
    more requests are waiting for a place: what a slow consumer leaves idle says nothing about the store.

    Attributes:
        located: The store's distance is known.
        now: Requests that may be in flight at this moment.
        most: What it never exceeds.

    """

    __slots__ = (
        "_at",
        "_before",
        "_count",
        "_elapsed_s",
        "_first_s",
        "_heard",
        "_rate",
        "_rest_until",
        "_up",
        "located",
        "most",
        "now",
    )

    def __init__(self, most: int) -> None:
        """Begin with 64, or ``most`` where that is less."""
        self.located = False
        self._heard, self._first_s = 0, inf
        self.most = most
        self.now = min(_START, most)
        self._before = self.now  # what is gone back to when a trial fails; ``now`` where none is on
        self._rate = 0.0
        self._up = True
        self._rest_until = 0.0
        self._at: float | None = None
        self._count, self._elapsed_s = 0, 0.0

    def locate(self, first_byte_s: float) -> None:
        """Tell how long the first bytes of the first answers took, until the store is ``located``.

        The least of as many as are in flight is its distance (others waited for handshakes, say): from then on as many
        are in flight as could be carried meanwhile. Doubling would take the first third of a second to get there.
        """
        self._heard += 1
        self._first_s = min(self._first_s, first_byte_s)
        if self._heard >= self.now:
            self.located = True
            self.now = self._before = max(self.now, min(int(self._first_s * _FASTEST), self.most))

    def record(self, finished: int, at: float, *, waiting: bool) -> None:
        """Take note that ``finished`` requests ended by time ``at`` and whether others wait for their place."""
        if self._at is not None:
            self._count += finished
            self._elapsed_s += at - self._at
        self._at = at if waiting else None
        if self._count >= 4 * self.now and self._elapsed_s >= _EPOCH_S:
            self._evaluate(self._count / self._elapsed_s, at)
            self._count, self._elapsed_s = 0, 0.0

    def _evaluate(self, rate: float, at: float) -> None:
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
