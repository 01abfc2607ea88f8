"""Delivery of records to listeners, at no cost without a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events.records import Event

__all__ = ["emit", "listening", "subscribe"]

_listeners: tuple[Callable[[Event], None], ...] = ()


def listening() -> bool:
    """Return whether there is a listener; check this before building a record on a hot path."""
    return bool(_listeners)


def emit(event: Event) -> None:
    """Pass the record to every listener, on the emitting thread; remove a listener that raises, and continue."""
    for listener in _listeners:
        try:
            listener(event)
        except Exception:  # noqa: BLE001  a broken sink must not break storage (trap 14)
            _drop(listener)


def subscribe(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call ``listener(event)`` for every event of this process until the returned function is called.

    Listeners run on the thread where the event happens, mostly an I/O thread: they must be quick and must not call
    Penstock. Requests and operations that began before ``subscribe`` may report only their end: ignore an unknown
    ``id``. A forked process inherits the listeners, but no request or operation; a spawned process begins without
    listeners.

    Raises:
        Unusable: ``listener`` is not callable.

    """
    if not callable(listener):
        raise Unusable(f"a listener is a function that takes an event, not {listener!r}")
    global _listeners  # noqa: PLW0603  one per process; replaced as a whole, so emitters need no lock
    _listeners = (*_listeners, listener)
    return lambda: _drop(listener)


def _drop(listener: Callable[[Event], None]) -> None:
    global _listeners  # noqa: PLW0603  see subscribe
    _listeners = tuple(each for each in _listeners if each is not listener)
