"""Memory of a process that cuts samples from chunks: reused blocks, and limits that stay within ``memory_bytes``.

A block is reused once nothing refers to its array or to a view of it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.samples.arrangement import Arrangement

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


_MIB = 1 << 20
# Compressed chunks read ahead take at most this fraction (1 / 4) of memory_bytes.
_COMPRESSED = 4
# The batch in training, the next one, and the loader's `prefetch` batches (2 by default), being made or waiting.
BATCHES = 4
_MARGIN = 4096  # chunks that are known beyond a window, if samples take one of each array


class Limits(NamedTuple):
    """Limits of the look-ahead of a reading, in decoded bytes of held and next chunks, and in samples.

    Read-ahead takes at most 1 / ``parts`` of the store's own limit. ``batch_bytes`` are those of the batches that are
    made, wait, or are in training.
    """

    chunk_bytes: int
    samples: int
    parts: int
    batch_bytes: int


def limits_of(
    arrangement: Arrangement, blocks: int, batch: int, *, memory_bytes: int, ahead_bytes: int, block_samples: int = 0
) -> Limits:
    """Return the look-ahead limits of a process that mixes ``blocks`` blocks of samples with one another.

    ``ahead_bytes`` is the read-ahead of the store's own options; ``block_samples`` the most samples of a block, if the
    order repeats some (0: those of the arrangement).
    """
    compressed = min(ahead_bytes, memory_bytes // _COMPRESSED)
    batches = BATCHES * batch * arrangement.sample_bytes
    left = memory_bytes - compressed - batches - arrangement.kept_bytes
    window = max(blocks * arrangement.block_bytes, arrangement.chunk_bytes)
    if left < window:
        needs = f"{blocks} blocks of chunks that are mixed" if blocks > 1 else "the chunks of one block of samples"
        raise Unusable(
            f"memory_bytes={memory_bytes} leaves {_mib(max(left, 0))} for decoded chunks, and {needs} "
            f"({_mib(arrangement.block_bytes)} each) need {_mib(window)}; besides, {_mib(compressed)} are for chunks "
            f"read ahead, {_mib(batches)} for {BATCHES} batches of {batch}, {_mib(arrangement.kept_bytes)} for arrays "
            "and coordinates that are kept. Raise memory_bytes, lower window_bytes or the batch size, take patches "
            "that are in fewer chunks, or store the array in smaller chunks (penstock zarr copy --chunks)"
        )
    samples = max(_samples(arrangement, blocks, block_samples), 2 * batch)
    return Limits(left, samples, -(-ahead_bytes // compressed), batches)


def with_blocks(limits: Limits, arrangement: Arrangement, blocks: int) -> tuple[Limits, str]:
    """Return the limits of a reading that mixes ``blocks`` blocks in the same memory, and a warning.

    The warning is "" if the chunks of the blocks fit. If not, the chunks that do not fit are read again.
    """
    found = limits._replace(samples=max(limits.samples, _samples(arrangement, blocks)))
    needed = blocks * arrangement.block_bytes
    if needed <= limits.chunk_bytes:
        return found, ""
    return found, (
        f"this epoch mixes {blocks} blocks of chunks on this rank, which need {_mib(needed)}, and memory_bytes leaves "
        f"{_mib(limits.chunk_bytes)} for them: the samples are the same, and chunks that do not fit are read again. "
        f"Raise memory_bytes by {_mib(needed - limits.chunk_bytes)}, or resume on as many ranks as the state has lanes"
    )


def _samples(arrangement: Arrangement, blocks: int, block_samples: int = 0) -> int:
    most = max(block_samples, arrangement.space.most)
    return min(1 << 20, 2 * blocks * most + _MARGIN // max(1, arrangement.kept.count(False)))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB" if size_bytes >= _MIB // 10 or not size_bytes else f"{size_bytes:,} bytes"
