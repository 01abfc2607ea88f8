"""Records of what happened, for whoever listens; free when nobody does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Committed", "Event", "Listed", "PartSent", "RangeRead", "Retried", "emit", "listening", "subscribe"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one object or place."""

    url: str


@dataclass(frozen=True, slots=True)
class RangeRead(Event):
    """A read was answered and verified: ``size_bytes`` from byte ``start``, ``elapsed_s`` after it was first sent."""

    start: int
    size_bytes: int
    elapsed_s: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Retried(Event):
    """An attempt failed with ``error`` and will be made again in ``delay_s`` seconds."""

    error: Exception
    attempt: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class Listed(Event):
    """One page of a listing came back with ``count`` keys."""

    count: int


@dataclass(frozen=True, slots=True)
class PartSent(Event):
    """Part ``number`` (from 1) of an upload was accepted."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """An object became visible, whole and compared."""

    size_bytes: int
    etag: str


_listeners: tuple[Callable[[Event], None], ...] = ()


def listening() -> bool:
    """Say whether anyone would hear; ask before building a record on a hot path."""
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

    It runs on I/O threads: it must be quick and must not call Penstock.
    """
    global _listeners  # noqa: PLW0603  one process, one list; replaced whole, so emitters need no lock
    _listeners = (*_listeners, listener)
    return lambda: _drop(listener)


def _drop(listener: Callable[[Event], None]) -> None:
    global _listeners  # noqa: PLW0603  see subscribe
    _listeners = tuple(each for each in _listeners if each is not listener)
