"""``ZarrMap``: random access to samples of arrays; the most recently used decoded chunks are kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from torch.utils.data import Dataset

from penstock.data.order.partition import sample_number
from penstock.data.zarr.chunks.contents import ShardIndexes
from penstock.engine.contracts.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.samples.extraction import ChunkPart

    Make = Callable[[int, Sequence[Sequence[ChunkPart]], Mapping[int, NDArray[Any]]], Any]


class ZarrMap(Dataset[Any]):
    """Map-style dataset: ``samples[i]`` is sample ``i`` of a ``ZarrDataset``; negative numbers count from the end.

    A batch of torch's DataLoader (``__getitems__``) is read with all its requests in flight. Safe for any thread and
    any process (fork, forkserver and spawn); each process keeps the chunks that it used last.
    """

    def __init__(self, contents: ZarrContents, make: Make, most_bytes: int) -> None:
        """Build samples of ``contents``; decoded chunks take at most ``most_bytes``, or the needs of one sample."""
        self._contents, self._make, self._most_bytes = contents, make, most_bytes
        self._cache = _DecodedChunks()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._contents)

    def __getitem__(self, index: SupportsIndex) -> Any:  # noqa: ANN401  type of the transform's result
        """Return a sample.

        Raises:
            IndexError: ``index`` is out of range.
            PenstockError: A chunk of the sample could not be read.

        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Return some samples, in order; see ``__getitem__``."""
        numbers = [sample_number(index, len(self)) for index in indices]
        places = self._contents.arrangement.space.positions(np.array(numbers, dtype=np.int64)).tolist()
        size_of, made = self._contents.chunks.size_of, list[Any]()
        waiting: list[tuple[int, list[list[ChunkPart]]]] = []
        wanted: dict[int, int] = {}  # bytes of the chunks of waiting samples
        for number, place in zip(numbers, places, strict=True):
            parts = self._contents.parts(place)
            own = {part.chunk: size_of(part.chunk) for some in parts for part in some if part.chunk >= 0}
            if waiting and sum((wanted | own).values()) > self._most_bytes:
                made += self._made(waiting, wanted)
                waiting, wanted = [], {}
            waiting.append((number, parts))
            wanted |= own
        return made + self._made(waiting, wanted)

    def _made(self, waiting: Sequence[tuple[int, list[list[ChunkPart]]]], wanted: Mapping[int, int]) -> list[Any]:
        # After a fork: another thread of the parent may have held the lock.
        if self._cache.process != os.getpid():
            self._cache = _DecodedChunks()
        cache, needed = self._cache, sum(wanted.values())
        values = cache.take(wanted, self._most_bytes - needed)
        values |= self._read([chunk for chunk in wanted if chunk not in values])
        made = [self._make(number, parts, values) for number, parts in waiting]
        cache.put(values, self._most_bytes)
        return made

    def _read(self, some: Sequence[int]) -> dict[int, NDArray[Any]]:
        """Read and decode chunks, with all requests in flight at once."""
        if not some:
            return {}
        contents = self._contents
        chunks, source = contents.chunks, contents.source
        indexes = ShardIndexes(contents.chunks.parts, source, contents.chunks.indexes, ReadCounts())
        try:
            chunks.prepare(some)
            indexes.ask(chunks.shards(some))
            spans = [chunks.span(chunk, indexes) for chunk in some]
        finally:
            indexes.close()
        pool = contents.pool(self._most_bytes)
        with source.lookahead((span for span in spans if isinstance(span, tuple)), contents.ahead_parts) as ahead:
            return {
                chunk: chunks.decode(chunk, ahead.advance() if isinstance(span, tuple) else span, pool)
                for chunk, span in zip(some, spans, strict=True)
            }

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the decoded chunks of this process."""
        return {name: value for name, value in self.__dict__.items() if name != "_cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle with an empty cache."""
        self.__dict__ |= state | {"_cache": _DecodedChunks()}


class _DecodedChunks:
    """Cache of the chunks that one process used last; thread-safe."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = Lock()
        self._held: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._held_bytes = 0

    def take(self, wanted: Iterable[int], most_bytes: int) -> dict[int, NDArray[Any]]:
        """Remove and return the cached chunks among ``wanted``; evict the oldest others beyond ``most_bytes``."""
        with self._lock:
            found = {chunk: self._held.pop(chunk) for chunk in wanted if chunk in self._held}
            self._held_bytes -= sum(each.nbytes for each in found.values())
            self._shrink(most_bytes)
        return found

    def put(self, values: Mapping[int, NDArray[Any]], most_bytes: int) -> None:
        """Add chunks as the most recently used; evict the oldest beyond ``most_bytes`` in all."""
        with self._lock:
            for chunk, each in values.items():
                if chunk not in self._held:
                    self._held[chunk] = each
                    self._held_bytes += each.nbytes
            self._shrink(most_bytes)

    def _shrink(self, most_bytes: int) -> None:
        while self._held and self._held_bytes > most_bytes:
            self._held_bytes -= self._held.popitem(last=False)[1].nbytes
