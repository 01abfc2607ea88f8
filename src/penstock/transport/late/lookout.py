"""Finds transfers that take long, shows them to the watch of their store, and says what to carry out besides."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from penstock.protocols.exchange import Traffic, UnderWay
from penstock.transport.late.addresses import Addresses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.protocols.exchange import Call
    from penstock.transport.session import Handles, Session, Transfer

__all__ = ["Lookout"]

_OFTEN_S: Final = 0.01
_SELDOM_S: Final = 0.1
_PART: Final = 4  # looks within the time that makes a call late
_HALF: Final = 0.5  # see Traffic.under_way


class Lookout:
    """Looks at what is in flight every now and then; of the I/O thread alone.

    Attributes:
        every_s: Seconds between two looks.
        next_at: When the next one is due.

    """

    __slots__ = ("_addresses", "every_s", "next_at")

    def __init__(self) -> None:
        """Begin with a look."""
        self.every_s, self.next_at = _SELDOM_S, 0.0
        self._addresses = Addresses()

    def look(
        self, busy: Iterable[Transfer], handles: Iterable[Handles], now: float
    ) -> list[tuple[Session, Call, str | bool]]:
        """Return calls to be carried out besides, whose they are, and the address to use: True for any.

        ``busy`` is in flight, the oldest first. It costs next to nothing while nothing in flight is old.
        """
        watched = [_late_s(each, now) for each in handles if each.active]
        least_s = min(watched, default=inf)
        self.every_s = min(max(least_s / _PART, _OFTEN_S), _SELDOM_S)
        self.next_at = now + self.every_s
        return self._asked(_old(busy, _HALF * least_s, now), now) if least_s < inf else []

    def _asked(self, old: dict[Session, list[Transfer]], now: float) -> list[tuple[Session, Call, str | bool]]:
        extra: list[tuple[Session, Call, str | bool]] = []
        for session, transfers in old.items():
            watch = session.handles.watch
            if watch is None or now - transfers[0].began < _late_s(session.handles, now):
                continue
            under_way = [_under_way(each, now) for each in transfers]
            by_call = {id(each.call): each for each in transfers}
            try:
                asked = watch.look(Traffic(under_way, session.handles.ended, session))
                extra += [(session, call, self._elsewhere(session, by_call[id(late)])) for late, call in asked]
            except Exception:  # noqa: BLE001  a watch must not take the I/O thread along
                session.handles.watch = None
        return extra

    def _elsewhere(self, session: Session, late: Transfer) -> str | bool:
        """Return another address of the host than a transfer's; True where none is known."""
        easy = late.easy
        if easy.request is None or session.options.proxy is not None:
            return True
        return self._addresses.other(easy.request.url, easy.address()) or True


def _late_s(handles: Handles, now: float) -> float:
    """Return when a call is late, as the watch says; one that breaks is not asked again."""
    try:
        return handles.watch.late_s(now) if handles.watch is not None else inf
    except Exception:  # noqa: BLE001  a watch must not take the I/O thread along
        handles.watch = None
        return inf


def _old(busy: Iterable[Transfer], old_s: float, now: float) -> dict[Session, list[Transfer]]:
    """Return what began at least ``old_s`` ago, by session."""
    found: dict[Session, list[Transfer]] = {}
    for transfer in busy:
        if now - transfer.began < old_s:
            break
        found.setdefault(transfer.session, []).append(transfer)
    return found


def _under_way(transfer: Transfer, now: float) -> UnderWay:
    age_s = now - transfer.began
    sent_s, first_s, received = transfer.easy.progress()
    body_s = max(age_s - first_s, 1e-9) if first_s else 0.0
    passed = transfer.session.handles.ended - transfer.ended_before
    return UnderWay(transfer.call, max(0.0, age_s - sent_s), not sent_s, received, body_s, passed)
