"""Limits on bytes and requests in flight: pure arithmetic, no clock, no lock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, weakref_slot=True)
class Budget:
    """A bound on bytes and items in flight; the caller admits an item before it starts and releases it once consumed.

    A single item larger than the whole budget is admitted when nothing else is in flight: otherwise it would wait
    forever.
    """

    bytes_limit: int
    items_limit: int
    bytes_held: int = 0
    items_held: int = 0

    def admitted(self, size_bytes: int) -> bool:
        held = self.items_held
        if held and (held >= self.items_limit or self.bytes_held + size_bytes > self.bytes_limit):
            return False
        self.items_held = held + 1
        self.bytes_held += size_bytes
        return True

    def admit(self, size_bytes: int) -> None:
        self.items_held += 1
        self.bytes_held += size_bytes

    def release(self, size_bytes: int) -> None:
        self.items_held -= 1
        self.bytes_held -= size_bytes

    def share(self, parts: int, least_items: int = 8, least_bytes: int = 16 << 20) -> Budget:
        """Return an equal share for one of ``parts`` processes: at least the given minimum, at most the whole."""
        least_bytes, least_items = min(least_bytes, self.bytes_limit), min(least_items, self.items_limit)
        return Budget(max(least_bytes, self.bytes_limit // parts), max(least_items, self.items_limit // parts))
