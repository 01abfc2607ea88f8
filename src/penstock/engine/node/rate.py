"""Request rate that a store accepts, learned from refusals: additive increase, multiplicative decrease. Pure.

Only the last decrease is stored: the rate after it, from which the present rate follows by the clock. So processes that
share a rate agree on it without communication, and no process has to raise it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

_WINDOW_S = 1.0  # length of a counting window
_STALE_S = 5.0  # without a count: a new window begins
# Fewer refusals, or a smaller share of them, are left to each request's own backoff.
_LEAST_REFUSED = 5
_LEAST_SHARE = 0.05
# A store that accepts a smaller share has an outage: no rate would help, and backoff slows requests down.
_LEAST_ACCEPTED = 0.1
# Factor on the accepted rate, because the store's token bucket is empty after refusals.
_DECREASE = 0.85
# Increase per second: the refused rate is reached again after 10 s, so 2 s of every 12 s see refusals.
_LINEAR = 0.015
# Twice the rate after half a minute, ten times after a minute: this follows a store that scales out.
_CUBIC_S = 30.0
_KEPT_S = 300.0  # without a refusal, until the bound is dropped
_OBSERVED_S = 10.0  # the same, before a bound was found
# Requests in a window without a refusal that prove that the last decrease has helped.
_CLEAN = 10
# Decreases without a clean window that prove that the rate does not cause the refusals.
_TRIES = 6.0
_FRUITLESS_S = 60.0  # until the next try
# Seconds of the rate that may be sent at once.
_BURST_S = 0.05
_LEAST_RATE = 1.0
_LOOK_S = 2.0  # longest wait before the next check
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """The request rate that a store accepts for one prefix, and the counts since ``opened``, in seconds of one clock.

    ``base``: requests per second after the last decrease, at ``since``; 0 before a bound was found. ``touched``: when a
    request was last refused. ``tries``: decreases since the last window without a refusal.
    """

    base: float = 0.0
    since: float = 0.0
    sent: float = 0.0
    refused: float = 0.0
    opened: float = 0.0
    touched: float = 0.0
    tries: float = 0.0

    def present(self, now: float) -> float:
        """Return the rate at ``now``, in requests per second; ``inf`` without a bound."""
        after_s = max(0.0, now - self.since)
        return self.base * (1 + _LINEAR * after_s + (after_s / _CUBIC_S) ** 3) if self.base else inf

    def count(self, sent: float, refused: float, now: float) -> Rate:
        """Return the rate with these requests and refusals added; it is decided once a second."""
        if not self.opened or now - self.opened > _STALE_S:
            counted = replace(self, opened=now, sent=0.0, refused=refused)
        else:
            counted = replace(self, sent=self.sent + sent, refused=self.refused + refused)
        if refused:
            counted = replace(counted, touched=now)
        if now - counted.opened < _WINDOW_S:
            return counted
        return replace(counted.decided(now), opened=now, sent=0.0, refused=0.0)

    def state(self, per_s: float, now: float) -> Rate:
        """Return the rate that the store itself has stated."""
        return replace(self, base=max(per_s, _LEAST_RATE), since=now, touched=now)

    def decided(self, now: float) -> Rate:
        sent, refused = self.sent, self.refused
        accepted = sent - refused
        if not refused and sent >= _CLEAN:
            return replace(self, tries=0.0)
        if refused < max(_LEAST_REFUSED, _LEAST_SHARE * sent) or accepted < _LEAST_ACCEPTED * sent:
            return self
        if self.tries >= _TRIES and now - self.since < _FRUITLESS_S:
            return self
        tries = self.tries % _TRIES + 1
        base = max(_LEAST_RATE, _DECREASE * accepted / (now - self.opened)) if tries < _TRIES else 0.0
        return replace(self, base=base, since=now, tries=tries)

    def over(self, now: float) -> bool:
        """Return whether the rate can be forgotten: no refusal for long, or times of another boot's clock."""
        return not 0 <= now - self.touched <= (_KEPT_S if self.base else _OBSERVED_S)


NONE = Rate()


class Turns:
    """Turns in the order of asking, at a variable rate. For one thread."""

    __slots__ = ("_at", "_drawn", "_served", "_tickets", "began", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.began = self._at = now
        self.rate = rate
        self._drawn = 0  # tickets so far
        self._served = 1.0  # highest ticket that has its turn
        self._tickets: dict[int, tuple[int, object]] = {}  # by id, with the caller

    def __len__(self) -> int:
        return len(self._tickets)

    def ask(self, caller: object, now: float) -> float:
        """Return 0.0 if it is the caller's turn, else the seconds after which the caller should ask again."""
        self._go_on(now)
        ticket = self._tickets.pop(id(caller), (0, caller))[0]
        if self.rate == inf:
            # Without a bound, no caller has to wait for earlier turns.
            self._served = float(self._drawn)
            return 0.0
        if not ticket:
            self._drawn += 1
            ticket = self._drawn
        if ticket <= self._served + _ROUNDING:
            return 0.0
        self._tickets[id(caller)] = ticket, caller
        return min(_LOOK_S, (ticket - self._served) / self.rate)

    def _go_on(self, now: float) -> None:
        if self.rate < inf:
            # Unused turns are not saved up beyond a short burst.
            most = self._drawn + max(1.0, self.rate * _BURST_S)
            self._served = min(most, self._served + self.rate * max(0.0, now - self._at))
        self._at = now

    def waiting(self) -> list[object]:
        return [each for _, each in self._tickets.values()]

    def leave(self, gone: list[object]) -> None:
        """Remove the tickets of callers that will not ask again, so that no other caller waits for them."""
        for each in gone:
            self._tickets.pop(id(each), None)
        left = sorted(self._tickets.values(), key=lambda each: each[0])
        due = sum(number <= self._served for number, _ in left)
        saved = self._served - self._drawn if self._served > self._drawn else self._served % 1.0
        self._tickets = {id(each): (number, each) for number, (_, each) in enumerate(left, 1)}
        self._drawn, self._served = len(left), due + saved
