"""What caches did, by directory: counts that are always kept, for metrics."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from functools import reduce
from operator import add
from typing import Final, Self

__all__ = ["CacheCounts", "count_cache", "measured_caches"]


@dataclass(slots=True)
class CacheCounts:
    """What this process did with a cache, in sum; any thread may look.

    Attributes:
        hits: Reads of the cache that found what they asked for.
        hit_bytes: Their bytes.
        misses: Those that did not.
        stored: Entries that were written.
        stored_bytes: Their bytes.
        refused: Entries that were not written: the cache was full and is of use, or they are too large for it.
        damaged: Entries that were not what had been written, and were removed.

    """

    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    stored: int = 0
    stored_bytes: int = 0
    refused: int = 0
    damaged: int = 0

    def __add__(self, other: CacheCounts) -> Self:
        """Return the counts of both."""
        return type(self)(*map(sum, zip(astuple(self), astuple(other), strict=True)))


_caches: Final[dict[str, list[CacheCounts]]] = {}  # counts stay when their cache is gone: sums never go down


def count_cache(directory: str) -> CacheCounts:
    """Return new counts, of a cache in ``directory``."""
    counts = CacheCounts()
    _caches.setdefault(directory, []).append(counts)
    return counts


def measured_caches() -> dict[str, CacheCounts]:
    """Return the counts of this process by directory, copied."""
    return {directory: reduce(add, [*counts], CacheCounts()) for directory, counts in [*_caches.items()]}


os.register_at_fork(after_in_child=_caches.clear)  # what was counted is the parent's
