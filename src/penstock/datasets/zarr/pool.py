"""Memory of arrays that is used again once nothing refers to the array, nor to a view of it."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["MemoryPool"]

_LEAST_BYTES = 64 << 10  # the C library keeps memory of smaller arrays by itself


class MemoryPool:
    """Makes arrays over memory that comes back as soon as nothing refers to them: no array, view or tensor.

    What the C library gives back to the system has to be zeroed, page by page, when it is asked for again: that takes
    as long as to copy it. Memory that is free here waits for an array of as many bytes; before more is allocated, as
    much of other sizes is let go. So what is in use and what is free never exceed the most that was ever in use; that
    holds as blocks are allocated one by one: a part of a larger allocation, kept, would keep all of it.

    For any thread, finalisers, which may run within any other call, and forked children: there is no lock.

    Attributes:
        most_bytes: How many bytes are kept at most while they are free.

    """

    def __init__(self, most_bytes: int) -> None:
        """Allocate nothing yet."""
        self.most_bytes = most_bytes
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}  # by size; only ever looked at whole in a copy

    @property
    def free_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(size * len(some) for size, some in self._free.copy().items())

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array, C-contiguous and of undefined values, as NumPy's ``empty`` does."""
        size = prod(shape) * dtype.itemsize
        if size < _LEAST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        lease = _Lease(self, self._take(size))
        array: NDArray[Any] = np.asarray(lease).view(dtype).reshape(shape)
        return array

    def _take(self, size: int) -> NDArray[np.uint8]:
        with suppress(IndexError):
            return self._free.setdefault(size, deque()).pop()
        self._let_go(size)
        return np.empty(size, np.uint8)

    def _let_go(self, left: int) -> None:
        for size, some in self._free.copy().items():
            with suppress(IndexError):
                while left > 0:
                    some.popleft()
                    left -= size

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take memory back: kept, unless there is enough."""
        if self.free_bytes + block.nbytes <= self.most_bytes:
            some = self._free[block.nbytes]
            some.append(block)
            if self.free_bytes > self.most_bytes:  # another thread has given memory back since
                with suppress(IndexError):
                    some.popleft()

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
