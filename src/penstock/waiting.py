"""How threads wait for one another: Ctrl-C is heard within a second, and leaves no lock behind."""

from __future__ import annotations

from _thread import RLock, allocate_lock
from contextlib import suppress
from math import inf
from threading import get_ident, local
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["LOOK_S", "Inbox", "Item", "Turn", "Wakeup", "may_wait", "serve"]

LOOK_S = 1.0  # a signal that comes just before Python waits for a lock is handled only when that wait ends

_ANY: Final = object()
_here = local()


def serve() -> None:
    """Take note that other threads wait for this one, as for a transport's: see ``may_wait``."""
    _here.serves = True


def may_wait() -> bool:
    """Return whether this thread may wait for others; not one that ``serve``s, for they may wait for it.

    What is dropped in a circle is closed by the garbage collector, on whatever thread that runs.
    """
    return not getattr(_here, "serves", False)


class Item(Protocol):
    """Something that is under way."""

    @property
    def complete(self) -> bool:
        """Say whether it has ended; set before the inbox is told."""

    def look(self) -> None:
        """Say what takes so long, if that is known; called about once a second by the thread that waits for it."""


class Wakeup:
    """Wakes one thread that waits: an event that resets itself. Several ``set`` before a ``wait`` are one.

    Neither side ever holds a lock that the other needs: an interrupt in the middle of a ``Condition``, or of the
    ``Event`` or ``Future`` that has one, leaves it locked. Nor is it ``SimpleQueue.get(timeout=…)``, which in CPython
    3.11 waits for ever where the time is over between its first look and its second (design/0075).
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        """Begin unset."""
        self._lock = allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that does; from any thread."""
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread came first
                self._lock.release()

    def wait(self, limit_s: float = inf) -> bool:
        """Block until it is set, and reset it; False after ``limit_s``. Ctrl-C is heard within a second."""
        until = monotonic() + limit_s
        while True:
            left_s = until - monotonic()
            if self._lock.acquire(timeout=max(0.0, min(LOOK_S, left_s))):
                return True
            if left_s <= LOOK_S:
                return False


class Inbox:
    """Where one consumer waits for items; the transport's thread wakes it only for what it waits for."""

    __slots__ = ("_awaited", "_waiter", "_wakeup")

    def __init__(self) -> None:
        """Make it without a waiter."""
        self._waiter = 0
        self._awaited: object = None
        self._wakeup = Wakeup()

    def wait(self, item: Item) -> None:
        """Block until ``item`` is complete; Ctrl-C interrupts it, and a second thread is refused."""
        if not item.complete:
            self._wait(item, (item,), inf)

    def wait_any(self, items: Collection[Item], limit_s: float = inf) -> None:
        """Block until one of ``items``, which are some, is complete, or ``limit_s`` are over; else as ``wait``."""
        self._wait(_ANY, items, limit_s)

    def _wait(self, awaited: object, items: Collection[Item], limit_s: float) -> None:
        me, until = get_ident(), monotonic() + limit_s
        if self._waiter not in (0, me):
            raise Unusable("two threads read from one file or iterator at once: give each its own, or take turns")
        try:
            self._waiter = me
            while True:
                self._awaited = awaited
                if any(item.complete for item in items):  # also one that completed before it was announced
                    return
                left_s = min(LOOK_S, until - monotonic())
                if left_s <= 0:
                    return
                if not self._wakeup.wait(left_s):  # a while later: see LOOK_S
                    for item in items:
                        item.look()
        finally:
            self._awaited, self._waiter = None, 0

    def finished(self, item: Item) -> None:
        """Take note, on the transport's thread, that ``item`` is complete."""
        awaited = self._awaited
        if awaited is item or awaited is _ANY:
            self._wakeup.set()


class Turn(RLock):  # type: ignore[misc]  # final for typeshed only; leaving the block has to be C's: nothing comes between
    """A lock among callers' threads, in a ``with`` block: Ctrl-C ends the wait for it and never leaves it locked.

    Reentrant, for the collector may run what takes it on the thread that has it. After a fork make another one.
    """

    def __enter__(self) -> bool:  # type: ignore[override]  # without the arguments of ``acquire``
        """Wait for it."""
        return self.take(inf)

    def take(self, limit_s: float) -> bool:
        """Wait for it at most ``limit_s``; returns whether it was taken, to be released then."""
        try:
            if self.acquire(blocking=False):
                return True
            until = monotonic() + limit_s
            while (left_s := until - monotonic()) > 0:
                if self.acquire(timeout=min(LOOK_S, left_s)):
                    return True
        except BaseException:
            with suppress(RuntimeError):  # the interrupt may have come once it was taken
                self.release()
            raise
        return False

    def __reduce__(self) -> str:
        """Refuse, as every lock does."""
        raise TypeError("a lock cannot be pickled")
