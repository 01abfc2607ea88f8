"""libcurl's multi handle: many transfers at once on one thread."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from penstock.engine.transport.libcurl import (
    OK,
    multi_add,
    multi_info,
    multi_init,
    multi_perform,
    multi_poll,
    multi_remove,
    multi_remove_waiting,
    multi_setopt,
    multi_wakeup,
)
from penstock.errors import Bug, Unreachable

if TYPE_CHECKING:
    from penstock.engine.transport.easy import Easy
    from penstock.engine.transport.stream import Pointer

__all__ = ["MissingMulti", "Multi"]

_MAXCONNECTS, _RESOLVE_THREADS_MAX = 6, 20  # CURLMOPT_*, from curl/multi.h
# A store starts with 64 requests (see session.Limit) of two queries each, and glibc waits 10 s for a silent server:
# twice as long as a transfer waits by default. libcurl's own 20 threads would all wait for one name, and the look-ups
# of every other host would wait behind them. Threads start on demand. libcurl before 8.20 has neither a bound nor this
# option.
_RESOLVE_THREADS = 384

_int, _long = ctypes.c_int, ctypes.c_long


class Multi:
    """Many transfers at once on one thread; only ``wakeup`` may be called from another thread."""

    __slots__ = ("_handle", "_left", "_left_at", "_running")

    def __init__(self, connections: int) -> None:
        """Create the multi handle; each store keeps at most ``connections`` connections for reuse."""
        self._handle: Pointer = multi_init()
        if not self._handle:
            raise MemoryError
        self._running, self._left = _int(), _int()
        self._left_at = ctypes.byref(self._left)
        self.keep(connections)
        multi_setopt(self._handle, _RESOLVE_THREADS_MAX, _long(_RESOLVE_THREADS))

    def keep(self, connections: int) -> None:
        """Let each store keep at most ``connections`` connections from now on."""
        multi_setopt(self._handle, _MAXCONNECTS, _long(connections))

    def add(self, easy: Easy) -> None:
        """Add a loaded transfer; the next ``perform`` starts it."""
        code = multi_add(self._handle, easy.handle)
        if code != OK:
            message = f"curl_multi_add_handle: {code}"
            raise Bug(message)

    def remove(self, easy: Easy, *, unfinished: bool = False) -> None:
        """Remove a transfer. An unfinished one closes its connection, which may take a moment."""
        (multi_remove_waiting if unfinished else multi_remove)(self._handle, easy.handle)

    def perform(self) -> bool:
        """Advance all transfers without waiting; return False if the multi handle is broken."""
        return bool(multi_perform(self._handle, self._running) == OK)

    def poll(self, timeout_ms: int) -> bool:
        """Wait until a transfer can advance, ``wakeup`` is called or the time is over; return False as ``perform``."""
        return bool(multi_poll(self._handle, None, 0, timeout_ms, None) == OK)

    def wakeup(self) -> bool:
        """End the current or the next ``poll`` at once; return False if the multi handle is broken."""
        return bool(multi_wakeup(self._handle) == OK)

    def finished(self) -> list[tuple[int, int]]:
        """Return (pointer of the handle, libcurl's code) for each transfer that ended since the last call."""
        ended = []
        while message := multi_info(self._handle, self._left_at):
            found = message.contents
            ended.append((found.easy, found.result))
        return ended


class MissingMulti(Multi):
    """Substitute for a multi handle that cannot be created: every ``add`` fails."""

    __slots__ = ("_error",)

    def __init__(self, error: Unreachable) -> None:
        """Prepare to fail with the message and the cause of ``error``."""
        self._error = error

    def add(self, easy: Easy) -> None:  # noqa: ARG002  same signature as Multi.add
        """Raise ``Unreachable``."""
        error = self._error
        # A new error each time, because each operation completes its own error.
        raise Unreachable(error.message) from error.__cause__

    def keep(self, connections: int) -> None:
        """Do nothing."""

    def perform(self) -> bool:
        """Return True."""
        return True

    def finished(self) -> list[tuple[int, int]]:
        """Return an empty list."""
        return []
