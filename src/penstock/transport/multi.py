"""libcurl's set of transfers: many at once, on one thread."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from penstock.errors import Bug, Unreachable
from penstock.transport.libcurl import (
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

if TYPE_CHECKING:
    from penstock.transport.easy import Easy
    from penstock.transport.stream import Pointer

__all__ = ["MissingMulti", "Multi"]

_MAXCONNECTS = 6  # CURLMOPT_MAXCONNECTS, from curl/multi.h
_int, _long = ctypes.c_int, ctypes.c_long


class Multi:
    """Many transfers at once, on one thread; only ``wakeup`` may be called from another."""

    __slots__ = ("_handle", "_left", "_left_at", "_running")

    def __init__(self, connections: int) -> None:
        """Create the set; each store keeps so many connections for reuse."""
        self._handle: Pointer = multi_init()
        if not self._handle:
            raise MemoryError
        self._running, self._left = _int(), _int()
        self._left_at = ctypes.byref(self._left)
        self.keep(connections)

    def keep(self, connections: int) -> None:
        """Have each store keep at most so many connections from here on."""
        multi_setopt(self._handle, _MAXCONNECTS, _long(connections))

    def add(self, easy: Easy) -> None:
        """Start a loaded transfer at the next ``perform``."""
        code = multi_add(self._handle, easy.handle)
        if code != OK:
            message = f"curl_multi_add_handle: {code}"
            raise Bug(message)

    def remove(self, easy: Easy, *, unfinished: bool = False) -> None:
        """Take a transfer out; an unfinished one closes its connection, which may take a moment."""
        (multi_remove_waiting if unfinished else multi_remove)(self._handle, easy.handle)

    def perform(self) -> bool:
        """Move what can be moved without waiting; False where the set is broken."""
        return bool(multi_perform(self._handle, self._running) == OK)

    def poll(self, timeout_ms: int) -> bool:
        """Wait until something can be moved, ``wakeup`` is called, or the time is over; False as for ``perform``."""
        return bool(multi_poll(self._handle, None, 0, timeout_ms, None) == OK)

    def wakeup(self) -> bool:
        """End the present or the next ``poll`` at once; False where the set is broken."""
        return bool(multi_wakeup(self._handle) == OK)

    def finished(self) -> list[tuple[int, int]]:
        """Return (pointer of the transfer, libcurl's code) for all that ended since the last call."""
        ended = []
        while message := multi_info(self._handle, self._left_at):
            found = message.contents
            ended.append((found.easy, found.result))
        return ended


class MissingMulti(Multi):
    """Stands for libcurl's set of transfers while there can be none: every transfer fails as it is added."""

    __slots__ = ("_error",)

    def __init__(self, error: Unreachable) -> None:
        """Fail with this error's words and cause."""
        self._error = error

    def add(self, easy: Easy) -> None:  # noqa: ARG002  as the real one has it
        """Raise ``Unreachable``."""
        error = self._error
        raise Unreachable(error.message) from error.__cause__  # each operation completes its own

    def keep(self, connections: int) -> None:
        """Do nothing."""

    def perform(self) -> bool:
        """Return True."""
        return True

    def finished(self) -> list[tuple[int, int]]:
        """Return nothing."""
        return []
