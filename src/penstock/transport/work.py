"""The transport of stores without a wire: blocking calls on a few threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.errors import Bug, Cancelled, PenstockError
from penstock.protocols.exchange import Response, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.protocols.exchange import Call

__all__ = ["Threads"]


class Threads:
    """Runs each call's ``Work``; file reads drop the GIL, so a few threads keep a disk busy."""

    def __init__(self, threads: int = 8) -> None:
        """Start threads as they are needed, at most ``threads``."""
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock-work")
        self._pending: set[int] = set()
        self._cancelled: set[int] = set()
        self._wake = threading.Condition()

    def submit(self, calls: Iterable[Call]) -> None:
        """Queue calls; returns at once."""
        for call in calls:
            self._pending.add(id(call))
            try:
                self._pool.submit(self._carry, call)
            except RuntimeError:  # the interpreter is going down and starts no more threads: what is left is done here
                self._carry(call)

    def places(self) -> int:
        """Return the number of threads."""
        return self._threads

    def cancel(self, calls: Iterable[Call]) -> None:
        """End those that have not begun, or wait for another attempt; a blocking read that runs is left to finish."""
        with self._wake:
            self._cancelled |= self._pending.intersection(map(id, calls))
            self._wake.notify_all()

    def _carry(self, call: Call) -> None:
        delay_s: float | None = 0.0
        while delay_s is not None:
            with self._wake:
                called_off = (
                    self._wake.wait_for(lambda: id(call) in self._cancelled, delay_s)
                    if delay_s
                    else id(call) in self._cancelled
                )
            delay_s = call.done(Response(fault=Cancelled("called off")) if called_off else _attempt(call))
        with self._wake:
            self._pending.discard(id(call))
            self._cancelled.discard(id(call))


def _attempt(call: Call) -> Response:
    try:
        request = call.request()
        if not isinstance(request, Work):
            raise Bug("an HTTP request was given to the transport of blocking calls")
        return Response(body=request.run())
    except PenstockError as error:
        return Response(fault=error)
    except Exception as error:  # noqa: BLE001  the caller's to hear, whatever it is
        wrapped = Bug(f"unexpected {type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return Response(fault=wrapped)
