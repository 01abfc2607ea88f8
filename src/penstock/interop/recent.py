"""What was learned lately, up to a bound; from any thread."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Recent"]

T = TypeVar("T")


class Recent(Generic[T]):
    """A mapping that forgets its oldest entries; each may be given out a few times only."""

    def __init__(self, most: int, uses: int = 0) -> None:
        """Keep up to ``most`` values, each for ``uses`` calls of ``get``, or for any number of them where it is 0."""
        self._most = most
        self._uses = uses
        self._kept: dict[str, tuple[T, int]] = {}
        self._lock = Lock()

    def keep(self, key: str, value: T) -> None:
        """Remember a value, in place of what was remembered before."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = value, self._uses
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def get(self, key: str) -> T | None:
        """Return a value, if it is still remembered."""
        with self._lock:
            value, left = self._kept.pop(key, (None, 0))
            if value is not None and left != 1:
                self._kept[key] = value, max(0, left - 1)
            return value

    def forget(self, key: str) -> None:
        """Remember it no more."""
        with self._lock:
            self._kept.pop(key, None)
