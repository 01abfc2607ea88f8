"""Memory of a process that cuts samples from chunks: reused blocks, limits, and the schedule of the chunks.

A block is reused once nothing refers to its array or to a view of it. The limits stay within ``memory_bytes``. The
schedule computes the first and the last use of each chunk from an order of samples.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrangement import Arrangement


__all__ = ["BATCHES", "Limits", "MemoryPool", "Need", "Schedule", "Turn", "blocks_of_lanes", "limits_of", "with_blocks"]

# The C library itself reuses the memory of smaller arrays.
_LEAST_BYTES = 64 << 10


class MemoryPool:
    """Pool of memory blocks for arrays: a block returns when no array, view or tensor refers to it.

    Memory that the C library returns to the system is zeroed page by page when it is allocated again. This takes as
    long as a copy. So this pool keeps a free block for the next array of the same size. Before it allocates a new
    block, it releases as many bytes of free blocks of other sizes. So memory in use plus free memory never exceeds the
    peak of memory in use. This holds because each block is a separate allocation: to keep a part of a larger allocation
    would keep all of it.

    Lock-free: safe in any thread, in finalisers (which may run within any other call), and in forked children.

    Attributes:
        most_bytes: Limit of free memory, in bytes.

    """

    def __init__(self, most_bytes: int) -> None:
        """Create an empty pool."""
        self.most_bytes = most_bytes
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}  # by size; iterate over copies only

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks."""
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
_MARGIN = 4096  # samples beyond a window with known chunks


class Limits(NamedTuple):
    """Limits of the look-ahead of a reading.

    Attributes:
        chunk_bytes: Decoded bytes of the chunks that are held or come next.
        samples: Number of samples ahead whose chunks are known.
        parts: Read-ahead takes at most 1 / ``parts`` of the store's own limit.
        batch_bytes: Bytes of the batches that are made, wait, or are in training.

    """

    chunk_bytes: int
    samples: int
    parts: int
    batch_bytes: int


def limits_of(arrangement: Arrangement, blocks: int, batch: int, *, memory_bytes: int, ahead_bytes: int) -> Limits:
    """Return the look-ahead limits of a process.

    Args:
        arrangement: Arrangement of the samples.
        blocks: Number of blocks of samples that are mixed with one another.
        batch: Samples of a batch.
        memory_bytes: Total memory of the process.
        ahead_bytes: Read-ahead that the store's own options allow.

    Raises:
        Unusable: ``memory_bytes`` is too little for the window, or for one sample.

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
            "that lie in fewer chunks, or store the array in smaller chunks (penstock zarr copy --chunks)"
        )
    return Limits(left, _samples(arrangement, blocks), -(-ahead_bytes // compressed), batches)


def blocks_of_lanes(blocks: int, lanes: int, world: int) -> int:
    """Return how many blocks a rank has open at once, with ``blocks`` in each of ``lanes`` lanes of all ranks."""
    # The range of a rank may begin and end within a lane.
    own = lanes // world if lanes % world == 0 else lanes // world + 2
    return blocks * max(1, min(own, lanes))


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


def _samples(arrangement: Arrangement, blocks: int) -> int:
    return min(1 << 20, 2 * blocks * int(arrangement.space.sizes.max(initial=1)) + _MARGIN)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB" if size_bytes >= _MIB // 10 or not size_bytes else f"{size_bytes:,} bytes"


_AT_ONCE = 1 << 12  # samples whose chunks are computed together
# Limit of the chunks of these samples, counted once per sample.
_MOST_CELLS = 1 << 16
# Samples that are looked at together: those that do not fit are looked at again.
_LEAST, _MOST = 16, 256
# Look ahead once an eighth of the bytes is free, not after each released chunk.
_SPARE = 8


class Turn(NamedTuple):
    """Next samples: one, or several of the same batch.

    Attributes:
        batch: Number of their batch, from 0.
        slot: Place of the first in the batch.
        size: Samples of the batch.
        samples: Numbers of the samples.

    """

    batch: int
    slot: int
    size: int
    samples: list[int]


class Need(NamedTuple):
    """Chunk to be read.

    Attributes:
        chunk: Number of the chunk.
        position: The first sample that needs it, counted over all samples of the epoch from 0.

    """

    chunk: int
    position: int


class Schedule:
    """Order of the next chunks and their last uses; looks ahead as far as ``most_bytes`` of chunks allow.

    ``extend`` looks ahead, and counts the samples that need each chunk. ``done`` counts down, and reports when a chunk
    may be released. A chunk is read again if a sample beyond the look-ahead needs it after that. Not thread-safe.

    Attributes:
        position: Number of samples whose turn has passed.
        frontier: Number of samples that have been looked at.
        held_bytes: Decoded bytes of the chunks that samples between the two need.

    """

    def __init__(
        self,
        batches: Iterable[list[int]],
        uses: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        size_of: Callable[[int], int],
        *,
        most_bytes: int,
        most_samples: int,
    ) -> None:
        """Follow ``batches`` of sample numbers; nothing is drawn yet.

        Args:
            batches: Batches of sample numbers.
            uses: Returns the chunks of an array of samples, one row per sample; -1 pads rows.
            size_of: Returns the decoded bytes of a chunk.
            most_bytes: Limit of the decoded bytes of chunks in use and ahead together; a single sample may exceed it.
            most_samples: Limit of the look-ahead, in samples.

        """
        self._batches = iter(batches)
        self._uses, self._size_of = uses, size_of
        self._most_bytes, self._most_samples = most_bytes, most_samples
        self._drawn: deque[list[int]] = deque()  # batches that were drawn and are not finished
        self._number, self._slot = 0, 0
        self._samples = np.empty(0, dtype=np.int64)  # drawn, and not yet looked at
        self._rows = np.empty((0, 0), dtype=np.int64)  # their chunks
        self._look = _LEAST
        # By chunk: the number of samples that were looked at and need it.
        self._left: dict[int, int] = {}
        # Chunks in order of first use, for the caller to read.
        self.queue: deque[Need] = deque()
        self.position = self.frontier = self.held_bytes = 0

    def extend(self, *, must: bool = False) -> bool:
        """Look at more samples; return False if the limits do not allow more now, or the samples have ended.

        With ``must``, look at one more sample at least, whatever the size of its chunks.
        """
        ahead = self.frontier - self.position
        if not must and (
            self.held_bytes > self._most_bytes - self._most_bytes // _SPARE or ahead >= self._most_samples
        ):
            return False
        if not len(self._samples) and not self._draw():
            return False
        rows = self._rows[: self._look]
        count = self._admit(rows, must=must)
        for chunk, uses in zip(*(each.tolist() for each in np.unique(rows[:count], return_counts=True)), strict=True):
            if chunk >= 0:
                self._left[chunk] = self._left.get(chunk, 0) + uses
        self._samples, self._rows = self._samples[count:], self._rows[count:]
        self._look = min(_MOST, 2 * self._look) if count == len(rows) else max(_LEAST, self._look // 2)
        self.frontier += count
        return count > 0

    def _admit(self, rows: NDArray[np.int64], *, must: bool) -> int:
        """Queue the new chunks of these samples, as far as they fit; return the number of leading samples that fit."""
        fresh, first = np.unique(rows, return_index=True)
        needs = first // max(rows.shape[1], 1)
        by_need = np.argsort(needs, kind="stable")
        new: list[Need] = []
        added = before = 0  # bytes; `before`: without the current sample
        for chunk, need in zip(fresh[by_need].tolist(), needs[by_need].tolist(), strict=True):
            if chunk < 0 or chunk in self._left:
                continue
            if not new or self.frontier + need > new[-1].position:
                before = added
            added += self._size_of(chunk)
            new.append(Need(chunk, self.frontier + need))
            if self.held_bytes + added > self._most_bytes and not (must and not need):
                self.held_bytes += before
                self.queue.extend(each for each in new if each.position < self.frontier + need)
                return int(need)
        self.held_bytes += added
        self.queue.extend(new)
        return len(rows)

    def _draw(self) -> bool:
        """Draw batches until there are 4,096 or more samples to look at; fewer if each needs many chunks."""
        drawn: list[int] = []
        most = _AT_ONCE if not self._rows.shape[1] else max(1, min(_AT_ONCE, _MOST_CELLS // self._rows.shape[1]))
        while len(drawn) < most and (batch := next(self._batches, None)) is not None:
            self._drawn.append(batch)
            drawn += batch
        self._samples = np.array(drawn, dtype=np.int64)
        if drawn:
            self._rows = self._uses(self._samples)
        return bool(drawn)

    def turn(self, most: int = 1) -> Turn:
        """Return the next samples, at most ``most``, all of one batch; the caller ensures that they were looked at."""
        batch = self._drawn[0]
        turn = Turn(self._number, self._slot, len(batch), batch[self._slot : self._slot + most])
        self._slot += len(turn.samples)
        if self._slot == len(batch):
            self._drawn.popleft()
            self._number, self._slot = self._number + 1, 0
        self.position += len(turn.samples)
        return turn

    def done(self, chunk: int, samples: int = 1) -> bool:
        """Count down the samples that need a chunk; return True after the last known one."""
        left = self._left[chunk] - samples
        if left:
            self._left[chunk] = left
            return False
        del self._left[chunk]
        self.held_bytes -= self._size_of(chunk)
        return True
