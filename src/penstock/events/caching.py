"""Counts of cache activity by directory, always kept, for metrics."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass
from functools import reduce
from operator import add
from typing import Final, Self

__all__ = ["CacheCounts", "count_cache", "measured_caches"]


@dataclass(slots=True)
class CacheCounts:
    """Counts of this process's use of a cache; any thread may read them.

    Attributes:
        hits: Reads of the cache that found their data.
        hit_bytes: Bytes of these reads.
        misses: Reads of the cache that did not find their data.
        stored: Entries that were written.
        stored_bytes: Bytes of these entries.
        refused: Entries that were not written: the cache was full of useful entries, the entry was too large for it, or
            the disk failed.
        damaged: Entries that differed from what had been written, and were removed.

    """

    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    stored: int = 0
    stored_bytes: int = 0
    refused: int = 0
    damaged: int = 0

    def __add__(self, other: CacheCounts) -> Self:
        """Return the sum of both counts."""
        return type(self)(*map(sum, zip(astuple(self), astuple(other), strict=True)))


# Counts stay after their cache is gone: sums never decrease.
_caches: Final[dict[str, list[CacheCounts]]] = {}


def count_cache(directory: str) -> CacheCounts:
    """Return new counts for a cache in ``directory``."""
    counts = CacheCounts()
    _caches.setdefault(directory, []).append(counts)
    return counts


def measured_caches() -> dict[str, CacheCounts]:
    """Return a copy of this process's counts, by directory."""
    return {directory: reduce(add, [*counts], CacheCounts()) for directory, counts in [*_caches.items()]}


os.register_at_fork(after_in_child=_caches.clear)  # the counts are the parent's
