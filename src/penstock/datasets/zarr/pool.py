"""Memory of arrays that is used again once nothing refers to the array, nor to a view of it."""

from __future__ import annotations

from collections import deque
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["MemoryPool"]

_LEAST_BYTES = 64 << 10  # the C library keeps memory of smaller arrays by itself
_SLAB_BYTES = 8 << 20  # allocated together: of arrays from 4 MiB on, NumPy asks for huge pages


class MemoryPool:
    """Makes arrays over memory that comes back as soon as nothing refers to them: no array, view or tensor.

    What the C library gives back to the system has to be zeroed, page by page, when it is asked for again: that takes
    as long as to copy it. Memory that is free here waits for an array of as many bytes; before more is allocated, as
    much of other sizes is let go. So what is in use and what is free never exceed the most that was ever in use.

    For any thread, and for finalisers, which may run within any other call.

    Attributes:
        most_bytes: How many bytes are kept at most while they are free.

    """

    def __init__(self, most_bytes: int) -> None:
        """Allocate nothing yet."""
        self.most_bytes = most_bytes
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}  # by size
        self._lock = Lock()  # of the sizes; not of the memory, which finalisers give back

    @property
    def free_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(size * len(some) for size, some in list(self._free.items()))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array, C-contiguous and of undefined values, as NumPy's ``empty`` does."""
        size = prod(shape) * dtype.itemsize
        if size < _LEAST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        lease = _Lease(self, self._take(size))
        array: NDArray[Any] = np.asarray(lease).view(dtype).reshape(shape)
        return array

    def _take(self, size: int) -> NDArray[np.uint8]:
        try:
            return self._free[size].pop()
        except (KeyError, IndexError):
            pass
        with self._lock:
            free = self._free.setdefault(size, deque())
            left = size
            for other, some in self._free.items():
                while some and left > 0:
                    some.popleft()
                    left -= other
        count = max(1, _SLAB_BYTES // size)
        first, *others = np.empty((count, size), np.uint8)
        free.extend(others)
        return first

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take memory back: kept, unless there is enough."""
        if self.free_bytes + block.nbytes <= self.most_bytes:
            self._free[block.nbytes].append(block)

    def __reduce__(self) -> tuple[object, ...]:
        """Arrive in another process without memory."""
        return MemoryPool, (self.most_bytes,)


class _Lease:
    """What an array over a block of memory refers to, as do all its views: with the last of them the block returns."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: MemoryPool, block: NDArray[np.uint8]) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._pool.give(self._block)
