"""Memory for chunks and batches: blocks that are used again.

A block is reused once nothing refers to its array or to a view of it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# The batch in training, the next one, and the loader's `prefetch` batches (2 by default), being made or waiting.
BATCHES = 4
# The C library itself reuses the memory of smaller arrays.
_LEAST_BYTES = 64 << 10


class MemoryPool:
    """Pool of memory blocks for arrays: a block returns when no array, view or tensor refers to it.

    Memory that the C library returns to the system is zeroed page by page when it is allocated again. This takes as
    long as a copy. So this pool keeps a free block for the next array of the same size, ``most_bytes`` in all. Before
    it allocates a new block, it releases as many bytes of free blocks of other sizes. So memory in use plus free memory
    never exceeds the peak of memory in use. This holds because each block is a separate allocation: to keep a part of a
    larger allocation would keep all of it.

    Lock-free: safe in any thread, in finalisers (which may run within any other call), and in forked children.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}  # by size; iterate over copies only

    @property
    def free_bytes(self) -> int:
        return sum(size * len(some) for size, some in self._free.copy().items())

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a C-contiguous array of undefined values, like ``numpy.empty``."""
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
        """Take a block back; keep it unless the free memory would exceed ``most_bytes``."""
        if self.free_bytes + block.nbytes <= self.most_bytes:
            some = self._free[block.nbytes]
            some.append(block)
            # Another thread may have returned a block since the check above.
            if self.free_bytes > self.most_bytes:
                with suppress(IndexError):
                    some.popleft()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the memory: the copy is an empty pool."""
        return MemoryPool, (self.most_bytes,)


class _Lease:
    """Owner of a block, referenced by the array over it and all views; returns the block to the pool at the end."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, pool: MemoryPool, block: NDArray[np.uint8]) -> None:
        self._pool, self._block = pool, block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._pool.give(self._block)
