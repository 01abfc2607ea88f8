"""The request rate that a store takes, learned from what it refuses: additive increase, multiplicative decrease. Pure.

Nothing but the last decrease is kept: the rate at that time, from which the present one follows by the clock. So
processes that share a rate agree on it without a word, and none of them is needed to raise it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

__all__ = ["NONE", "Rate", "Turns"]

_WINDOW_S = 1.0  # how long requests and refusals are counted before they count
_STALE_S = 5.0  # without a count: the window begins anew
_LEAST_REFUSED = 5  # fewer are left to each request's own backoff,
_LEAST_SHARE = 0.05  # and so is a smaller share
_LEAST_ACCEPTED = 0.1  # a store that accepts less has an outage: no rate would do, and backoff slows requests down
_DECREASE = 0.85  # of what was accepted; the store's bucket of tokens is empty by then
_LINEAR = 0.015  # a second: what was refused is reached again after 10 s, so 2 s of every 12 s see refusals
_CUBIC_S = 30.0  # twice as much after half a minute, ten times after a minute: a store that scales out is followed
_KEPT_S = 300.0  # without a refusal; then the rate is not bounded any more
_OBSERVED_S = 10.0  # the same while no bound was found
_CLEAN = 10  # requests in a window, and no refusal: the last decrease has helped
_TRIES = 6.0  # decreases without a clean window: the rate is not why the store refuses
_FRUITLESS_S = 60.0  # until it is tried again
_BURST_S = 0.05  # of the rate, may be sent at once
_LEAST_RATE = 1.0
_LOOK_S = 2.0  # the longest wait without another look at the rate
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second that a store takes for one prefix, and what was counted since the last decision.

    Times are seconds of one clock.

    Attributes:
        base: The rate after the last decrease; 0: no bound was found so far.
        since: When that was.
        sent: Requests sent since ``opened``.
        refused: Requests refused since ``opened``.
        opened: When counting began; 0: there is nothing here.
        touched: When a request was refused last.
        tries: Decreases since a window without a refusal.

    """

    base: float = 0.0
    since: float = 0.0
    sent: float = 0.0
    refused: float = 0.0
    opened: float = 0.0
    touched: float = 0.0
    tries: float = 0.0

    def present(self, now: float) -> float:
        """Return the rate at ``now``; ``inf`` where it is not bounded."""
        after_s = max(0.0, now - self.since)
        return self.base * (1 + _LINEAR * after_s + (after_s / _CUBIC_S) ** 3) if self.base else inf

    def count(self, sent: float, refused: float, now: float) -> Rate:
        """Return it with this many requests and refusals more, and once a second with what follows from them."""
        if not self.opened or now - self.opened > _STALE_S:
            counted = replace(self, opened=now, sent=0.0, refused=refused)
        else:
            counted = replace(self, sent=self.sent + sent, refused=self.refused + refused)
        if refused:
            counted = replace(counted, touched=now)
        if now - counted.opened < _WINDOW_S:
            return counted
        return replace(counted.decided(now), opened=now, sent=0.0, refused=0.0)

    def decided(self, now: float) -> Rate:
        """Return it with what follows from the requests since ``opened``."""
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
        """Say whether it can be forgotten: nothing was refused for long. So is one of another boot's clock."""
        return not 0 <= now - self.touched <= (_KEPT_S if self.base else _OBSERVED_S)


NONE = Rate()


class Turns:
    """Turns in the order of asking, at a rate that may change meanwhile. For one thread.

    Attributes:
        began: When it was made.
        rate: Turns a second; ``inf``: there is no waiting.

    """

    __slots__ = ("_at", "_drawn", "_served", "_tickets", "began", "rate")

    def __init__(self, rate: float, now: float) -> None:
        """Begin with a turn that is free."""
        self.began = self._at = now
        self.rate = rate
        self._drawn = 0  # tickets so far
        self._served = 1.0  # those up to this number have their turn
        self._tickets: dict[int, tuple[int, object]] = {}  # by identity, with what holds that

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._tickets)

    def ask(self, caller: object, now: float) -> float:
        """Return 0.0 where it is the caller's turn, else the seconds after which the caller shall ask again."""
        self._go_on(now)
        ticket = self._tickets.pop(id(caller), (0, caller))[0]
        if self.rate == inf:
            self._served = float(self._drawn)  # a turn without a bound is owed by no call
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
            most = self._drawn + max(1.0, self.rate * _BURST_S)  # turns that are not taken are not saved up
            self._served = min(most, self._served + self.rate * max(0.0, now - self._at))
        self._at = now

    def waiting(self) -> list[object]:
        """Return all that wait."""
        return [each for _, each in self._tickets.values()]

    def leave(self, gone: list[object]) -> None:
        """Take back the tickets of those that will not come again: no other waits for them."""
        for each in gone:
            self._tickets.pop(id(each), None)
        left = sorted(self._tickets.values(), key=lambda each: each[0])
        due = sum(number <= self._served for number, _ in left)
        saved = self._served - self._drawn if self._served > self._drawn else self._served % 1.0
        self._tickets = {id(each): (number, each) for number, (_, each) in enumerate(left, 1)}
        self._drawn, self._served = len(left), due + saved
