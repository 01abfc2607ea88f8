"""Hands records to every listener; free when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events.records import Event

__all__ = ["emit", "listening", "subscribe"]

_listeners: tuple[Callable[[Event], None], ...] = ()


def listening() -> bool:
    """Say whether there is a listener; ask before building a record on a hot path."""
    return bool(_listeners)


def emit(event: Event) -> None:
    """Hand the record to every listener, on the emitting thread; a listener that raises is dropped, never the work."""
    for listener in _listeners:
        try:
            listener(event)
        except Exception:  # noqa: BLE001  a broken sink must not break storage (trap 14)
            _drop(listener)


def subscribe(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call ``listener(event)`` for every event of this process until the returned function is called.

    Listeners run on the thread where the event happens, mostly an I/O thread: they must be quick and must not call
    Penstock. Requests and operations that began before ``subscribe`` may end unannounced: ignore an ``id`` that is not
    known. A forked process inherits the listeners, and no request or operation; a spawned one begins without any.

    Raises:
        Unusable: ``listener`` cannot be called.

    """
    if not callable(listener):
        raise Unusable(f"a listener is a function that takes an event, not {listener!r}")
    global _listeners  # noqa: PLW0603  one process, one list; replaced whole, so emitters need no lock
    _listeners = (*_listeners, listener)
    return lambda: _drop(listener)


def _drop(listener: Callable[[Event], None]) -> None:
    global _listeners  # noqa: PLW0603  see subscribe
    _listeners = tuple(each for each in _listeners if each is not listener)
