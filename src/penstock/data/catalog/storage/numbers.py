"""Typed vectors in shared memory, each in as few bytes as its values need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.storage.region import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Numbers", "narrowest", "pack"]

_ALIGN = 64
_SHARED = 64 << 10  # bytes; less is copied to a worker and needs no descriptor
_INTEGERS = tuple(map(np.dtype, ("<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8")))


class Numbers:
    """A typed vector in shared memory; pickling it pickles its memory (see ``Region``).

    Attributes:
        view: The values, read-only; ``view[row]`` is a Python number.

    """

    __slots__ = ("_memory", "_place", "view")

    def __init__(self, memory: Region | bytes, dtype: str, start: int, count: int) -> None:
        """View ``count`` values of ``dtype`` that begin at byte ``start``."""
        self._memory = memory
        self._place = dtype, start, count
        buffer = memory.view if isinstance(memory, Region) else memory
        values = np.frombuffer(buffer[start : start + count * np.dtype(dtype).itemsize], dtype)
        values.flags.writeable = False
        self.view = memoryview(values)  # type: ignore[arg-type]  # an array is a buffer

    @property
    def region(self) -> Region | None:
        """The region that holds this vector, and perhaps others; None if the bytes are pickled instead."""
        return self._memory if isinstance(self._memory, Region) else None

    @property
    def values(self) -> NDArray[Any]:
        """All values, read-only, not copied."""
        return np.asarray(self.view)

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self.view)

    def __reduce__(self) -> tuple[Callable[..., Numbers], tuple[Any, ...]]:
        """Pickle the memory, and the place of the vector in it."""
        return Numbers, (self._memory, *self._place)


def pack(arrays: Sequence[NDArray[Any]]) -> list[Numbers]:
    """Copy arrays into one block of memory that workers map (below 64 KiB: that is pickled with its holder)."""
    arrays = [np.ascontiguousarray(each, each.dtype.newbyteorder("<")) for each in arrays]
    starts, size = [], 0
    for each in arrays:
        starts.append(size)
        size += -(-each.nbytes // _ALIGN) * _ALIGN
    region = Region(size) if size >= _SHARED else None
    buffer: memoryview | bytearray = bytearray(size) if region is None else region.view
    for start, each in zip(starts, arrays, strict=True):
        buffer[start : start + each.nbytes] = each.tobytes() if each.nbytes < _SHARED else each.view(np.uint8).data
    memory = bytes(buffer) if region is None else region
    return [Numbers(memory, each.dtype.str, start, len(each)) for start, each in zip(starts, arrays, strict=True)]


def narrowest(values: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Return int64 values in the smallest integer type that holds them all: the array itself, or a copy."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    fits = (each for each in _INTEGERS if np.iinfo(each).min <= least and most <= np.iinfo(each).max)
    return values.astype(next(fits), copy=False)
