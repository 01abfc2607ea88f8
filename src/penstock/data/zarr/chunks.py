"""Chunks of arrays, by number: location and decoding. State of one process.

The index of a shard is read once, ahead of the chunks that it locates, and cached.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from functools import cached_property, lru_cache, partial
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any

from penstock.data.zarr.arrays import check_absent
from penstock.data.zarr.codecs import decoder_of
from penstock.data.zarr.layout import chunk_span, index_span, read_index
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Forbidden, NotFound, PenstockError
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.zarr.arrays import Missing, StoredArray
    from penstock.data.zarr.layout import Layout
    from penstock.data.zarr.pool import MemoryPool
    from penstock.data.zarr.references import Records
    from penstock.engine.contracts.fetching import PendingRead, ReadCounts
    from penstock.source import Source

    Index = NDArray[np.uint64]
    Shard = tuple[int, str]  # number of the array, key of the shard

__all__ = ["Chunks", "IndexCache", "ShardIndexes"]

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


_KEPT = 4096  # chunks whose positions are cached


class Chunks:
    """Chunks of several arrays, numbered consecutively: those of the first array row by row, then of the next."""

    def __init__(self, arrays: Sequence[StoredArray], missing: Missing) -> None:
        """Number the chunks; nothing is read."""
        self._arrays, self._missing = tuple(arrays), missing
        layouts = [(array.layout, array.layout.grid) for array in arrays]
        self.bases = [0]
        for _, grid in layouts:
            self.bases.append(self.bases[-1] + prod(grid))
        self._at = lru_cache(_KEPT)(partial(_located, self.bases, layouts))  # called before and after each read
        self._records = [array.objects.records for array in arrays]
        self._sharded = any(layout.shards is not None for layout, _ in layouts)
        self._decoders = [decoder_of(array.layout, array.url) for array in arrays]
        self._sizes = [
            prod(array.layout.chunks) * dtype.itemsize for array, dtype in zip(arrays, self.dtypes, strict=True)
        ]
        self._filled: dict[int, NDArray[Any]] = {}

    @cached_property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Type of the decoded values of each array."""
        return [array.decoded.dtype for array in self._arrays]

    def size_of(self, chunk: int) -> int:
        """Return the decoded size of a chunk in bytes."""
        return self._sizes[bisect_right(self.bases, chunk) - 1]

    def shards(self, chunks: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yield the shards of some chunks: number of the array, and key of the shard."""
        for chunk in chunks if self._sharded else ():
            number, layout, place = self._at(chunk)
            if layout.shards is not None:
                yield number, layout.object_key(place)

    def prepare(self, chunks: Iterable[int]) -> None:
        """Read the references of some chunks, all at once, for arrays whose references are read on demand."""
        if not any(self._records):
            return
        keys: dict[int, tuple[Records, list[str]]] = {}  # for all arrays of one document together
        for chunk in chunks:
            number, layout, place = self._at(chunk)
            if (records := self._records[number]) is not None:
                keys.setdefault(id(records), (records, []))[1].append(layout.object_key(place))
        for records, some in keys.values():
            records.prepare(some)

    def span(self, chunk: int, indexes: ShardIndexes) -> Span | bytes | None:
        """Return the location of a chunk, or its bytes if references contain them; None if it is known to be missing.

        May wait for the index of the shard.

        Raises:
            PenstockError: The index could not be read; or a reference is invalid.

        """
        number, layout, place = self._at(chunk)
        key = layout.object_key(place)
        span: Span | None = Span(key, most=layout.most_bytes)
        if layout.shards is not None:
            index = indexes.get((number, key))
            span = None if index is None else chunk_span(layout, place, index)
        return None if span is None else self._arrays[number].objects.find(span)

    def decode(self, chunk: int, read: PendingRead | bytes | None, pool: MemoryPool | None = None) -> NDArray[Any]:
        """Return the values of a chunk from a read, or from its bytes; ``read`` is None for a missing chunk.

        The values lie in memory of ``pool`` if it is given and the codecs can decode into a given array.

        Raises:
            NotFound: The chunk is missing, and missing chunks are errors.
            PenstockError: The chunk could not be read, or does not decode.

        """
        number, layout, place = self._at(chunk)
        url = self._arrays[number].objects.url(layout.object_key(place))
        try:
            data = read if read is None or isinstance(read, bytes) else read.take()
        except (NotFound, Forbidden) as error:
            self.absent(chunk, error)
            data = None
        if data is None:
            return self._fill(number, url)
        decoder = self._decoders[number]
        out = pool.empty(layout.chunks, layout.dtype) if pool is not None and decoder.direct else None
        return self._meant(number, decoder.decode(data, out, url=url))

    def absent(self, chunk: int, error: NotFound | Forbidden) -> None:
        """Accept a chunk as missing, or raise if ``error`` has another meaning: see ``check_absent``."""
        check_absent(self._arrays[self._at(chunk)[0]].objects, error)

    def _meant(self, number: int, values: NDArray[Any]) -> NDArray[Any]:
        meaning = self._arrays[number].meaning
        return values if meaning is None else meaning.apply(values)

    def _fill(self, number: int, url: str) -> NDArray[Any]:
        if self._missing == "error":
            raise NotFound('this chunk of the array was never written; missing="fill" reads its fill value', url=url)
        filled = self._filled.get(number)
        if filled is None:
            filled = self._filled[number] = self._meant(number, self._decoders[number].filled())
        return filled


def _located(
    bases: Sequence[int], layouts: Sequence[tuple[Layout, tuple[int, ...]]], chunk: int
) -> tuple[int, Layout, tuple[int, ...]]:
    """Return the number and layout of the array of a chunk, and the chunk's coordinates in the grid."""
    number = bisect_right(bases, chunk) - 1
    (layout, grid), left, place = layouts[number], chunk - bases[number], []
    for count in reversed(grid):
        left, at = divmod(left, count)
        place.append(at)
    return number, layout, tuple(reversed(place))
