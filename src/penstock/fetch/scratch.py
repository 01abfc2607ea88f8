"""Buffers that objects of unknown size are read into, which become the objects, or are used again; bounded together."""

from __future__ import annotations

from penstock.buffer import Buffer
from penstock.fetch.sizes import Sizes

__all__ = ["Scratch"]

_LEAST_BYTES = 4 << 10  # a page of memory
_MANY = 64  # objects of one bound, from which on the largest of them says what the next one needs
_KEPT_BYTES = 8 << 20  # while nothing is in flight


class Scratch:
    """Buffers as large as the objects before were, for one store; on its transport's thread.

    An object takes its buffer's memory over as it arrives, and what it does not need is freed; one that is much smaller
    is copied, and the buffer used again (``Buffer.cut``). So what waits to be consumed takes no more than its own size,
    and what is in flight ``most_bytes`` at most. Where that is used up, an object is read without a buffer.

    Attributes:
        sizes: Of the objects before.

    """

    __slots__ = ("_free", "_held_bytes", "_largest", "_most_bytes", "_size", "sizes")

    def __init__(self, most_bytes: int) -> None:
        """Allocate nothing yet."""
        self.sizes = Sizes()
        self._most_bytes = most_bytes
        self._held_bytes = 0  # in use
        self._free: list[Buffer] = []  # all of one size
        self._size = 0  # of the buffer that was allocated last
        self._largest: dict[int, tuple[int, int]] = {}  # by the room for a bound: objects, and room for the largest

    def take(self, most: int = 0) -> Buffer | None:
        """Return a buffer for an object; None beyond the bound.

        One of ``most`` bytes at most fits into it, unless it is larger than all that had the same bound, and those were
        many; one of any size, if it is like nearly all objects so far.
        """
        size = self._room(most) if most else self.sizes.bound
        if not size or self._held_bytes + size > self._most_bytes:
            return None
        self._held_bytes += size
        if self._free and self._free[-1].size == size:
            return self._free.pop()
        if size != self._size:
            self._size = size
            # The C library takes memory beyond a threshold from the system piece by piece, to be touched anew each
            # time, and raises the threshold to what is freed whole (glibc: M_MMAP_THRESHOLD). Buffers never are.
            Buffer.allocate(size)
        return Buffer.allocate(size)

    def learn(self, size: int, most: int = 0) -> None:
        """Count an object of ``size`` bytes, of which ``most`` were expected at most."""
        self.sizes.add(size)
        if most:
            count, largest = self._largest.get(_power(most), (0, 0))
            self._largest[_power(most)] = count + 1, max(largest, _power(size))

    def _room(self, most: int) -> int:
        """Return room for ``most`` bytes, or for what such objects have needed: less is taken over without a copy."""
        count, largest = self._largest.get(_power(most), (0, 0))
        return largest if count >= _MANY else _power(most)

    def give(self, buffer: Buffer) -> None:
        """Take a buffer back, spent or not."""
        self._held_bytes -= buffer.size
        if buffer.spent:
            return
        if self._free and self._free[-1].size != buffer.size:
            self._free.clear()
        if len(self._free) * buffer.size < max(_KEPT_BYTES, self._held_bytes):
            self._free.append(buffer)


def _power(size: int) -> int:
    return max(_LEAST_BYTES, 1 << (size - 1).bit_length())
