"""Indexes of shards: each is read once, ahead of the chunks that it locates, and cached."""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from penstock.data.zarr.format.index import index_span, read_index
from penstock.data.zarr.objects.locations import check_absent
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Forbidden, NotFound, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.zarr.arrays import StoredArray
    from penstock.engine.contracts.fetching import PendingRead, ReadCounts
    from penstock.source import Source
    from penstock.values import Span

    Index = NDArray[np.uint64]
    Shard = tuple[int, str]  # number of the array, key of the shard

__all__ = ["IndexCache", "ShardIndexes"]

_MOST_BYTES = 64 << 20
_lock = Lock()  # for all caches: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class IndexCache:
    """Cache of shard indexes, up to 64 MiB; evicts the oldest. Shared by all readings and threads of a process."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._held: OrderedDict[Shard, Index] = OrderedDict()
        self._held_bytes = 0

    def get(self, shard: Shard) -> Index | None:
        """Return the index of a shard; None if it is not cached."""
        return self._held.get(shard)

    def put(self, shard: Shard, index: Index) -> None:
        """Add an index."""
        with _lock:
            if shard in self._held:
                return
            self._held[shard] = index
            self._held_bytes += index.nbytes
            while self._held_bytes > _MOST_BYTES and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._held_bytes -= oldest.nbytes


class ShardIndexes:
    """Reader of shard indexes for one reading: all requested indexes are read concurrently.

    A missing shard has no index. An index that could not be read is requested again. For one thread, except ``close``.
    """

    def __init__(self, arrays: Sequence[StoredArray], source: Source, cache: IndexCache, counts: ReadCounts) -> None:
        """Read the indexes of ``arrays`` from ``source``; the reads are counted in ``counts``."""
        self._arrays, self._source, self._cache, self._counts = arrays, source, cache, counts
        self._inbox = Inbox()
        self._reads: dict[Shard, PendingRead] = {}
        self._found: dict[Shard, bytes | PenstockError | None] = {}  # those that take no request
        self._closed = False

    def ask(self, shards: Iterable[Shard]) -> None:
        """Begin to read the indexes of some shards, unless they are cached or under way."""
        wanted = [each for each in dict.fromkeys(shards) if not self._knows(each)]
        if not wanted or self._closed:
            return
        fetching = self._source.fetching()
        spans: dict[Shard, Span] = {}
        for number, key in wanted:
            array = self._arrays[number]
            try:
                found = array.objects.find(index_span(array.layout, key))
            except PenstockError as error:
                self._found[number, key] = error
                continue
            if isinstance(found, tuple):
                spans[number, key] = found
            else:
                self._found[number, key] = found
        reads = fetching.prepare_reads(((span, None) for span in spans.values()), self._inbox)
        self._reads.update(zip(spans, reads, strict=True))
        fetching.send_reads(reads)

    def _knows(self, shard: Shard) -> bool:
        return shard in self._reads or shard in self._found or self._cache.get(shard) is not None

    def get(self, shard: Shard) -> Index | None:
        """Wait for the index of a shard and return it; None if the shard is missing.

        Raises:
            PenstockError: The index could not be read, or is damaged.

        """
        index = self._cache.get(shard)
        if index is not None:
            return index
        self.ask([shard])
        if self._closed:
            raise Cancelled("the reading was closed")
        number, key = shard
        array = self._arrays[number]
        data = self._found.pop(shard) if shard in self._found else self._taken(self._reads.pop(shard), array)
        if data is None:
            return None
        if isinstance(data, PenstockError):
            raise data
        index = read_index(array.layout, data, array.objects.url(key))
        self._cache.put(shard, index)
        return index

    def _taken(self, read: PendingRead, array: StoredArray) -> bytes | None:
        self._inbox.wait(read)
        self._counts.requests += read.attempts
        self._counts.retries += read.retries
        try:
            return read.take()
        except (NotFound, Forbidden) as error:
            check_absent(array.objects, error)
            return None

    def close(self) -> None:
        """Cancel the reads under way; this wakes all waiting threads."""
        self._closed = True
        if self._reads:
            self._source.fetching().cancel_reads([*self._reads.values()])
