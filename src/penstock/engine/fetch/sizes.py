"""Sizes of a store's objects, as reads have shown them, to choose the buffer for the next object. Pure."""

from __future__ import annotations

from itertools import accumulate

__all__ = ["Sizes"]

_LEAST, _MOST = 12, 26  # buffers of 4 KiB to 64 MiB, in powers of two
# Share of the objects that must fit: each of the others costs a second request, and a connection.
_FIT = 63 / 64
_POWERS = [min(max(_LEAST, bits), _MOST + 1) for bits in range(65)]  # by the bit length of a size, 63 at most
# Objects between two updates of the bound, and objects after which all counts are halved.
_EVERY, _FORGET = 64, 1024


class Sizes:
    """Counts of objects by powers of two.

    Attributes:
        bound: Bytes that nearly all objects fit into; 0 while none was seen, and if they are too large.

    """

    __slots__ = ("_counts", "_total", "bound")

    def __init__(self) -> None:
        """Start without objects."""
        self._counts = [0] * (_MOST + 2)
        self._total = 0
        self.bound = 0

    def add(self, size_bytes: int) -> None:
        """Count an object."""
        self._counts[_POWERS[(size_bytes - 1).bit_length()]] += 1
        total = self._total = self._total + 1
        if total < _EVERY or total % _EVERY == 0:
            self._look()

    def _look(self) -> None:
        fitting = accumulate(self._counts)
        power = next(power for power, count in enumerate(fitting) if count >= _FIT * self._total)
        self.bound = 1 << power if power <= _MOST else 0
        if self._total >= _FORGET:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)
