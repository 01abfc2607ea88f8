"""The indexes of shards: read ahead of the chunks that they name, once, and kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from penstock.datasets.zarr.objects.locations import check_absent
from penstock.errors import Cancelled, NotFound, PenstockError
from penstock.formats.zarr.index import index_span, read_index
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets.zarr.arrays import StoredArray
    from penstock.protocols.fetching import PendingRead, ReadCounts
    from penstock.source import Source
    from penstock.values import Span

    Index = NDArray[np.uint64]
    Shard = tuple[int, str]  # the array's number, and the shard's key

__all__ = ["IndexCache", "ShardIndexes"]

_MOST_BYTES = 64 << 20
_lock = Lock()  # of all caches: each keeps it for moments only
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class IndexCache:
    """Indexes that were read, up to 64 MiB of them; the oldest go first. For all readings and threads of a process."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: OrderedDict[Shard, Index] = OrderedDict()
        self._held_bytes = 0

    def get(self, shard: Shard) -> Index | None:
        """Return the index of a shard; None where it is not held."""
        return self._held.get(shard)

    def put(self, shard: Shard, index: Index) -> None:
        """Keep an index."""
        with _lock:
            if shard in self._held:
                return
            self._held[shard] = index
            self._held_bytes += index.nbytes
            while self._held_bytes > _MOST_BYTES and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._held_bytes -= oldest.nbytes


class ShardIndexes:
    """Reads indexes of shards for one reading: all that are asked for are under way at once.

    A shard that is missing has no index, and an index that could not be read is asked for again. For one thread, but
    for ``close``.
    """

    def __init__(self, arrays: Sequence[StoredArray], source: Source, cache: IndexCache, counts: ReadCounts) -> None:
        """Read the indexes of ``arrays`` from ``source``; ``counts`` is told of the reads."""
        self._arrays, self._source, self._cache, self._counts = arrays, source, cache, counts
        self._inbox = Inbox()
        self._reads: dict[Shard, PendingRead] = {}
        self._found: dict[Shard, bytes | PenstockError | None] = {}  # those that take no request
        self._closed = False

    def ask(self, shards: Iterable[Shard]) -> None:
        """Begin to read the indexes of some shards: those that are neither there nor under way."""
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
        """Return the index of a shard, once it is there; None where there is no such shard.

        Raises:
            PenstockError: It could not be read, or is damaged.

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
        except NotFound as error:
            check_absent(array.objects, error)
            return None

    def close(self) -> None:
        """Cancel what is under way; whatever waits for it ends."""
        self._closed = True
        if self._reads:
            self._source.fetching().cancel_reads([*self._reads.values()])
