"""Waiting between threads: Ctrl-C is handled within a second, and leaves no lock held."""

from __future__ import annotations

import logging  # noqa: F401  its hook for forks must be registered before ours
import os
import sys
from _thread import RLock, allocate_lock
from contextlib import suppress
from importlib import import_module
from math import inf
from threading import get_ident, local
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Collection

# A signal that comes just before Python waits for a lock is handled only when that wait ends.
# Below one second, within which Ctrl-C ends every wait.
LOOK_S = 0.9

_ANY: Final = object()
_here = local()


def serve() -> None:
    """Mark this thread as one that others wait for, such as a transport's thread: see ``may_wait``."""
    _here.serves = True


def may_wait() -> bool:
    """Return whether this thread may wait for others; False after ``serve``, because others may wait for it.

    The garbage collector closes objects of a reference cycle on any thread, so closing may run on such a thread.
    """
    return not getattr(_here, "serves", False)


class Awaited(Protocol):
    """An operation in progress."""

    @property
    def complete(self) -> bool:
        """Whether it has ended; set before the inbox is notified."""

    def look(self) -> None:
        """Log the cause of the delay, if known; called about once a second by the thread that waits for it."""


class Wakeup:
    """An auto-reset event that wakes one waiting thread. Several ``set`` before a ``wait`` count as one.

    Neither side ever holds a lock that the other needs: an interrupt inside a ``Condition``, or inside an ``Event`` or
    ``Future`` that uses one, leaves it locked. ``SimpleQueue.get(timeout=…)`` is not used either: in CPython 3.11 it
    waits forever if the time runs out between its first check and its second (design/0075).
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits; callable from any thread."""
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread came first
                self._lock.release()

    def wait(self, limit_s: float = inf) -> bool:
        """Block until ``set``, and reset; return False after ``limit_s``. Ctrl-C is handled within a second."""
        until = monotonic() + limit_s
        while True:
            left_s = until - monotonic()
            if self._lock.acquire(timeout=max(0.0, min(LOOK_S, left_s))):
                return True
            if left_s <= LOOK_S:
                return False


class Inbox:
    """A waiting point of one consumer; the transport's thread wakes it only for the items that it waits for."""

    __slots__ = ("_awaited", "_waiter", "_wakeup")

    def __init__(self) -> None:
        self._waiter = 0
        self._awaited: object = None
        self._wakeup = Wakeup()

    def wait(self, item: Awaited) -> None:
        """Block until ``item`` is complete; Ctrl-C interrupts the wait, and a second thread is refused."""
        if not item.complete:
            self._wait(item, (item,), inf)

    def wait_any(self, items: Collection[Awaited], limit_s: float = inf) -> None:
        """Block until one of ``items`` (at least one) is complete, or for ``limit_s``; otherwise as ``wait``."""
        self._wait(_ANY, items, limit_s)

    def _wait(self, awaited: object, items: Collection[Awaited], limit_s: float) -> None:
        me, until = get_ident(), monotonic() + limit_s
        if self._waiter not in (0, me):
            raise Unusable("two threads used one file or iterator at the same time: give each thread its own")
        try:
            self._waiter = me
            while True:
                self._awaited = awaited
                # This includes an item that completed before ``_awaited`` was set.
                if any(item.complete for item in items):
                    return
                left_s = min(LOOK_S, until - monotonic())
                if left_s <= 0:
                    return
                if not self._wakeup.wait(left_s):  # timed out: see LOOK_S
                    for item in items:
                        item.look()
        finally:
            self._awaited, self._waiter = None, 0

    def finished(self, item: Awaited) -> None:
        """Wake the consumer if it waits for ``item``, which is complete; called on the transport's thread."""
        awaited = self._awaited
        if awaited is item or awaited is _ANY:
            self._wakeup.set()


class Revocable(Protocol):
    """A running ``Work`` that may be cancelled until it takes effect.

    Attributes:
        extra_s: Seconds by which its time limit, if it has one, is longer than usual.
    """

    extra_s: float

    def begin(self) -> None:
        """Begin to take effect; raise ``Cancelled`` if it was cancelled before."""

    def end(self) -> None: ...


def set_current_work(work: Revocable | None) -> None:
    """Set the ``Work`` that this thread carries out, for ``irrevocable``."""
    _here.work = work


def allow_time(seconds: float) -> None:
    """Extend the time limit of the ``Work`` that this thread carries out: for a call that moves many bytes."""
    work: Revocable | None = getattr(_here, "work", None)
    if work is not None:
        work.extra_s += seconds


class irrevocable:  # noqa: N801  a context manager, lower case as in contextlib; not a generator, since every file uses one
    """Context manager for the moment in which a ``Work`` takes effect: a rename, a deletion.

    A ``Work`` that was called off before raises ``Cancelled`` here. A caller that calls it off within waits for it:
    nothing takes effect after an interrupted call has returned.
    """

    __slots__ = ("_work",)

    def __enter__(self) -> None:
        self._work: Revocable | None = getattr(_here, "work", None)
        if self._work is not None:
            self._work.begin()

    def __exit__(self, *_: object) -> None:
        if self._work is not None:
            self._work.end()


class Turn(RLock):  # type: ignore[misc]  # final in typeshed only; __exit__ must stay C code, which no signal interrupts
    """A lock among callers' threads, for ``with`` blocks: Ctrl-C ends the wait for it and never leaves it locked.

    Reentrant, because the garbage collector may run code that takes the lock on the thread that holds it. After a fork,
    make a new one.
    """

    def __enter__(self) -> bool:  # type: ignore[override]  # without the arguments of ``acquire``
        return self.take(inf)

    def take(self, limit_s: float) -> bool:
        """Wait at most ``limit_s`` for the lock; return whether it was taken. The caller must then release it."""
        try:
            if self.acquire(blocking=False):
                return True
            until = monotonic() + limit_s
            while (left_s := until - monotonic()) > 0:
                if self.acquire(timeout=min(LOOK_S, left_s)):
                    return True
        except BaseException:
            # The interrupt may have come after the lock was taken.
            with suppress(RuntimeError):
                self.release()
            raise
        return False

    def __reduce__(self) -> str:
        raise TypeError("a lock cannot be pickled")


def _await_imports() -> None:
    """Wait until no other thread imports a Penstock module: in a forked child its lock would stay locked."""
    for name, module in list(sys.modules.items()):
        # The flag by which Python's own import statement decides to wait.
        if name.startswith("penstock.") and getattr(getattr(module, "__spec__", None), "_initializing", False):
            with suppress(Exception):  # the other thread raises it
                import_module(name)


# Hooks run in reverse order. Logging's holds its lock until the fork is over, and modules that are being imported ask
# for their logger: this wait has to come first.
os.register_at_fork(before=_await_imports)
