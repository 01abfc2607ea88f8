"""A thread-safe cache with a bounded number of values."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Recent"]

T = TypeVar("T")


class Recent(Generic[T]):
    """A mapping that drops its least recently used entries, and optionally limits how often each is returned."""

    def __init__(self, most: int, uses: int = 0) -> None:
        """Keep up to ``most`` values, each for ``uses`` calls of ``get``; 0 means any number of calls."""
        self._most = most
        self._uses = uses
        self._kept: dict[str, tuple[T, int]] = {}
        self._lock = Lock()

    def keep(self, key: str, value: T) -> None:
        """Store a value, replacing an earlier value of the key."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = value, self._uses
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def get(self, key: str) -> T | None:
        """Return a value; None if it is not stored, or no longer."""
        with self._lock:
            value, left = self._kept.pop(key, (None, 0))
            if value is not None and left != 1:
                self._kept[key] = value, max(0, left - 1)
            return value

    def forget(self, key: str) -> None:
        """Drop the value of a key."""
        with self._lock:
            self._kept.pop(key, None)
