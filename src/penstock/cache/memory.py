"""Entries in this process's memory: the tier before the disk."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.waiting import Turn

if TYPE_CHECKING:
    from penstock.cache.files import Hit

__all__ = ["Memory"]

_TAKEN = 1 / 16  # of what a full memory could take in


class Memory:
    """Whole entries by name, ``most_bytes`` of them; those used longest ago go first. Thread-safe.

    A full memory takes in few of those that the disk had, so that a part stays while an epoch passes through.
    """

    def __init__(self, most_bytes: int) -> None:
        """Hold nothing."""
        self._most_bytes = most_bytes
        self._turn = Turn()
        self._held: OrderedDict[bytes, Hit] = OrderedDict()
        self._held_bytes = 0

    def get(self, name: bytes) -> Hit | None:
        """Return what is held of an entry."""
        hit = self._held.get(name)
        if hit is not None:
            with self._turn:
                if name in self._held:
                    self._held.move_to_end(name)
        return hit

    def put(self, name: bytes, hit: Hit, draw: float) -> None:
        """Hold an entry, unless it is too large, or the memory is full and ``draw``, in [0, 1), is not small."""
        size = hit.found.size_bytes
        full = self._held_bytes + size > self._most_bytes
        if size > self._most_bytes // 4 or (full and draw >= _TAKEN):
            return
        with self._turn:
            if name in self._held:
                return
            while self._held and self._held_bytes + size > self._most_bytes:
                self._held_bytes -= self._held.popitem(last=False)[1].found.size_bytes
            self._held[name] = hit
            self._held_bytes += size

    def drop(self, name: bytes | None = None) -> None:
        """Hold an entry, or any, no longer."""
        with self._turn:
            for each in [name] if name is not None else list(self._held):
                hit = self._held.pop(each, None)
                self._held_bytes -= 0 if hit is None else hit.found.size_bytes
