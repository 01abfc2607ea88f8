"""Detection of slow transfers: the watch of their store may request additional operations."""

from __future__ import annotations

import os
import socket
from _thread import start_new_thread
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.engine.contracts.exchange import Traffic, UnderWay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.engine.contracts.exchange import Operation
    from penstock.engine.transport.session import Handles, Session, Transfer

_OFTEN_S: Final = 0.01
_SELDOM_S: Final = 0.1
_PART: Final = 4  # checks within the time after which an operation is late
_HALF: Final = 0.5  # see Traffic.under_way


class Lookout:
    """Periodic check of the operations in flight; used only by the I/O thread."""

    __slots__ = ("_addresses", "every_s", "next_at")

    def __init__(self) -> None:
        self.every_s, self.next_at = _SELDOM_S, 0.0
        self._addresses = Addresses()

    def look(
        self, busy: Iterable[Transfer], handles: Iterable[Handles], now: float
    ) -> list[tuple[Session, Operation, str | bool]]:
        """Return additional operations, each with its session and the address to use (True for any).

        ``busy`` holds the transfers in flight, the oldest first. The check costs next to nothing while none of them is
        old.
        """
        watched = [_late_s(each, now) for each in handles if each.active]
        least_s = min(watched, default=inf)
        self.every_s = min(max(least_s / _PART, _OFTEN_S), _SELDOM_S)
        self.next_at = now + self.every_s
        return self._asked(_old(busy, _HALF * least_s, now), now) if least_s < inf else []

    def _asked(self, old: dict[Session, list[Transfer]], now: float) -> list[tuple[Session, Operation, str | bool]]:
        extra: list[tuple[Session, Operation, str | bool]] = []
        for session, transfers in old.items():
            watch = session.handles.watch
            if watch is None or now - transfers[0].began < _late_s(session.handles, now):
                continue
            under_way = [_under_way(each, now) for each in transfers]
            by_operation = {id(each.operation): each for each in transfers}
            try:
                asked = watch.look(Traffic(under_way, session.handles.ended, session))
                extra += [
                    (session, operation, self._elsewhere(session, by_operation[id(late)])) for late, operation in asked
                ]
            except Exception:  # noqa: BLE001  a watch must not stop the I/O thread
                session.handles.watch = None
        return extra

    def _elsewhere(self, session: Session, late: Transfer) -> str | bool:
        """Return an address of the host that differs from the transfer's; True if none is known."""
        easy = late.easy
        if easy.request is None or session.options.proxy is not None:
            return True
        return self._addresses.other(easy.request.url, easy.address()) or True


def _late_s(handles: Handles, now: float) -> float:
    """Return the seconds after which the watch considers an operation late; a watch that raises is not called again."""
    try:
        return handles.watch.late_s(now) if handles.watch is not None else inf
    except Exception:  # noqa: BLE001  a watch must not stop the I/O thread
        handles.watch = None
        return inf


def _old(busy: Iterable[Transfer], old_s: float, now: float) -> dict[Session, list[Transfer]]:
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
    return UnderWay(transfer.operation, max(0.0, age_s - sent_s), not sent_s, received, body_s, passed)


# Object stores change the addresses behind their names every few seconds.
_KEPT_S: Final = 10.0
_HOSTS: Final = 64
_PORTS: Final = {"http": 80, "https": 443}
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")  # as libcurl reads them


class Addresses:
    """Known addresses of hosts. One thread asks; separate, short-lived threads look up names."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = {}

    def other(self, url: str, used: str) -> str:
        """Return an address of the URL's host that differs from ``used``, of the same family; empty if none is known.

        A name is looked up in the background, for later operations; behind a proxy never, because that resolves it.
        """
        parts = urlsplit(url)
        if parts.hostname is None or any(os.environ.get(each) for each in _PROXIES):
            return ""
        host = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
        looked_at, addresses = self._known.get(host, (0.0, ()))
        if monotonic() - looked_at > _KEPT_S:
            self._begin(host)
        alike = [each for each in addresses if each != used and (":" in each) == (":" in used)]
        return alike[0] if alike else ""

    def _begin(self, host: tuple[str, int]) -> None:
        if len(self._known) >= _HOSTS:
            self._known.clear()
        self._known[host] = monotonic(), self._known.get(host, (0.0, ()))[1]  # one at a time
        with suppress(RuntimeError):  # no thread can be had
            start_new_thread(self._look, (host,))

    def _look(self, host: tuple[str, int]) -> None:
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(*host, type=socket.SOCK_STREAM)
            self._known[host] = monotonic(), tuple(dict.fromkeys(str(each[4][0]) for each in found))
