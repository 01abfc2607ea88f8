"""The calls that are not in flight: those that wait for their place, and those that wait for their next attempt."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count, repeat
from time import monotonic
from typing import TYPE_CHECKING

from penstock.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.protocols.exchange import Call, Response
    from penstock.transport.session import Session

__all__ = ["Backlog"]


class Backlog:
    """Calls that wait, of all sessions; of the I/O thread alone.

    Attributes:
        sessions: Those with calls that are ready, in the order of their turns.

    """

    def __init__(self) -> None:
        """Begin with none."""
        self.sessions: dict[Session, None] = {}
        self._later: list[tuple[float, int, Session, Call, str | bool]] = []
        self._order = count()

    def add(self, session: Session, calls: Iterable[Call]) -> None:
        """Have calls wait for their place."""
        session.ready.extend(zip(calls, repeat(object=False), strict=False))
        self.sessions[session] = None

    def prefer(self, session: Session, call: Call, *, fresh: str | bool) -> None:
        """Have a call wait for the next place, before all others, and for a new connection."""
        session.ready.appendleft((call, fresh))
        self.sessions[session] = None

    def delay(self, until: float, session: Session, call: Call, *, fresh: str | bool) -> None:
        """Have a call wait until then, and afterwards for its place; ``fresh``: for one on a new connection."""
        heapq.heappush(self._later, (until, next(self._order), session, call, fresh))

    def again(self, session: Session, call: Call, response: Response, delay_s: float) -> None:
        """Have a call wait that asks, after this response, for another attempt in ``delay_s``, or later."""
        fresh = isinstance(response.fault, Transient)  # what just failed is not what to try again on
        delay_s = session.delay_s(call, delay_s)
        self.delay(monotonic() + delay_s, session, call, fresh=fresh)

    def hold(self, session: Session, call: Call, *, fresh: str | bool) -> bool:
        """Have a call wait for its turn, where the store's rate is bounded; returns whether it does."""
        wait_s = session.wait_s(call)
        if wait_s:
            self.delay(monotonic() + wait_s, session, call, fresh=fresh)
        return wait_s > 0

    def take_due(self, now: float) -> None:
        """Have calls whose delay is over wait for their place."""
        while self._later and self._later[0][0] <= now:
            _, _, session, call, fresh = heapq.heappop(self._later)
            session.ready.append((call, fresh))
            self.sessions[session] = None

    def next_at(self) -> float | None:
        """Return when the next delay is over; None where no call is delayed."""
        return self._later[0][0] if self._later else None

    def call_off(
        self, chosen: Callable[[Session, Call], bool], sessions: Iterable[Session]
    ) -> list[tuple[Session, Call]]:
        """Take out and return the chosen calls; ``sessions`` are others whose calls may be ready."""
        ended: list[tuple[Session, Call]] = []
        for session in {*sessions, *self.sessions}:
            off = [call for call, _ in session.ready if chosen(session, call)]
            if off:
                ended += [(session, call) for call in off]
                session.ready = deque(item for item in session.ready if not chosen(session, item[0]))
        ended += [(session, call) for _, _, session, call, _ in self._later if chosen(session, call)]
        self._later = [item for item in self._later if not chosen(item[2], item[3])]
        heapq.heapify(self._later)
        return ended

    def calls(self) -> list[Call]:
        """Return all of them."""
        delayed = [call for _, _, _, call, _ in self._later]
        return delayed + [call for session in self.sessions for call, _ in session.ready]
