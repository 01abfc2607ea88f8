"""Samples cut from chunks: ``ZarrReading`` reads ahead in an order, ``ZarrMap`` gives samples by number.

``ZarrReading`` decodes each chunk once; ``ZarrMap`` keeps the most recently used decoded chunks.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, deque
from contextlib import closing, suppress
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from torch.utils.data import Dataset

from penstock.data.order.sampling import sample_number
from penstock.data.reading.chunks import Bounds, ChunkReading
from penstock.data.reading.reading import Failed, Item
from penstock.data.zarr.chunks.contents import ShardIndexes, decode_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.schedule import Turn
    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.chunks.limits import Limits
    from penstock.data.zarr.samples.extraction import ChunkPart
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.values import Span

    Make = Callable[[int, Sequence[Sequence[ChunkPart]], Mapping[int, NDArray[Any]]], Any]
    Rows = Callable[[list[list[NDArray[Any]]]], list[Any]]


class ZarrReading(ChunkReading["NDArray[Any]"]):
    """Samples of arrays, each preceded by the items that decode its chunks."""

    def __init__(
        self,
        contents: ZarrContents,
        batches: Iterable[list[int]],
        workers: int,
        limits: Limits,
        make: Make,
        rows: Rows | None = None,
    ) -> None:
        """Read samples of ``contents``; nothing begins before the first ``next``.

        ``make`` builds one sample from its parts. ``rows`` builds several samples from their columns, one list per
        array; if it is given, samples of a batch whose chunks have been taken are built together.
        """
        self._contents, self._make_sample, self._rows = contents, make, rows
        self._chunks, self._pool = contents.chunks, contents.pool(limits.chunk_bytes)
        self._positions: deque[list[int]] = deque()  # of scheduled samples, in order
        super().__init__(contents.source, batches, workers, Bounds(limits.chunk_bytes, limits.samples, limits.parts))
        self._indexes = ShardIndexes(contents.chunks, contents.source, self._ahead.counts)

    def close(self) -> None:
        """Cancel reads in flight, and wake threads that wait for chunks."""
        self._indexes.close()
        super().close()

    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = self._contents.arrangement.space.positions(samples)
        self._positions.extend(positions.tolist())
        return self._contents.uses(positions)

    def _size_of(self, chunk: int) -> int:
        return self._chunks.size_of(chunk)

    def _expect(self, chunks: list[int]) -> None:
        self._chunks.expect(chunks, self._indexes)

    def _locate(self, chunk: int) -> Span | bytes | None:
        return self._chunks.span(chunk, self._indexes)

    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> NDArray[Any]:
        return self._chunks.decode(chunk, read, self._pool)

    def _finish(self) -> None:
        self._contents.verify()

    def _most(self) -> int:
        return 1 if self._rows is None else self._reach()

    def _item(self, turn: Turn) -> Item:
        batch, slot, size, samples = turn
        positions = [self._positions.popleft() for _ in samples]
        name = partial(self._contents.name_of, positions[0])
        if self._rows is None:
            return Item(batch, slot, size, name, partial(self._make, samples[0], positions[0]))
        return Item(batch, slot, size, name, partial(self._make_run, samples, positions, self._rows), len(samples))

    def _make_run(self, samples: list[int], positions: list[list[int]], rows: Rows) -> list[Any]:
        """Make samples together; or one by one, if they may need several chunks each or a chunk cannot be read."""
        contents = self._contents
        found = contents.located(np.array(positions, dtype=np.int64))
        if found is not None:
            each_once = (chunk for some in zip(*(chunks for chunks, _ in found), strict=True) for chunk in {*some})
            uses = Counter(chunk for chunk in each_once if chunk >= 0)
            columns = None
            with suppress(Exception):  # raised below for each sample
                columns = contents.views(found, {chunk: self._value(chunk) for chunk in uses})
            if columns is not None:
                self._release(uses, len(samples))
                return rows(columns)
        return [self._attempted(*each) for each in zip(samples, positions, strict=True)]

    def _attempted(self, sample: int, position: list[int]) -> Any:  # noqa: ANN401  a sample
        try:
            return self._make(sample, position)
        except Exception as error:  # noqa: BLE001  the sample's own
            return Failed(self._contents.name_of(position), error)

    def _make(self, sample: int, position: list[int]) -> Any:  # noqa: ANN401  whatever the transform returns
        parts = self._contents.parts(position)
        used = {part.chunk for each in parts for part in each if part.chunk >= 0}
        try:
            values = {chunk: self._value(chunk) for chunk in used}
            return self._make_sample(sample, parts, values)
        finally:
            self._release(dict.fromkeys(used, 1), 1)


_AT_ONCE = 4096  # samples whose chunks are computed together
_LEAD = 64  # chunks whose shard indexes are read together
_PAGE_BITS = 12


def chunk_spans(contents: ZarrContents, batches: Iterable[list[int]]) -> Iterator[Span]:
    """Yield the locations of the chunks that samples of ``batches`` need, in order of first use.

    Arrays that every sample needs whole come first. Chunks known to be missing are left out. The index of each shard is
    read once, on the way.
    """
    chunks, kept = contents.chunks, np.array(contents.kept_chunks, dtype=np.int64)
    needed = _new(chain([kept], _iterate_used_chunks(contents, batches)))
    with closing(ShardIndexes(chunks, contents.source)) as indexes:
        while some := list(islice(needed, _LEAD)):
            chunks.expect(some, indexes)
            found = (chunks.span(chunk, indexes) for chunk in some)
            # Other values are None (missing chunk) or bytes (stored within references).
            yield from (span for span in found if isinstance(span, tuple))


def _iterate_used_chunks(contents: ZarrContents, batches: Iterable[list[int]]) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the chunks that samples use, in order of samples; -1 stands for no chunk."""
    samples = chain.from_iterable(batches)
    while some := list(islice(samples, _AT_ONCE)):
        positions = contents.arrangement.space.positions(np.array(some, dtype=np.int64))
        yield contents.uses(positions).ravel()


def _new(numbers: Iterable[NDArray[np.int64]]) -> Iterator[int]:
    """Yield each number at its first occurrence; uses a byte per number, in pages of 4096 numbers."""
    pages: dict[int, bytearray] = {}
    for some in numbers:
        valid = some[some >= 0]
        _, firsts = np.unique(valid, return_index=True)
        for number in valid[np.sort(firsts)].tolist():
            seen = pages.get(number >> _PAGE_BITS) or pages.setdefault(number >> _PAGE_BITS, bytearray(1 << _PAGE_BITS))
            if not seen[place := number & (1 << _PAGE_BITS) - 1]:
                seen[place] = 1
                yield number


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

    def _getitems(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Return some samples for grain, as ``IndexedDataset`` does."""
        return self.__getitems__(indices)

    def _made(self, waiting: Sequence[tuple[int, list[list[ChunkPart]]]], wanted: Mapping[int, int]) -> list[Any]:
        # After a fork: another thread of the parent may have held the lock.
        if self._cache.process != os.getpid():
            self._cache = _DecodedChunks()
        cache, needed = self._cache, sum(wanted.values())
        values = cache.take(wanted, self._most_bytes - needed)
        if missing := [chunk for chunk in wanted if chunk not in values]:
            contents = self._contents
            pool = contents.pool(self._most_bytes)
            found = decode_chunks(contents.chunks, missing, contents.source, contents.ahead_parts, pool)
            values |= zip(missing, found, strict=True)
        made = [self._make(number, parts, values) for number, parts in waiting]
        cache.put(values, self._most_bytes)
        return made


class _DecodedChunks:
    """Cache of the latest chunks of one process; thread-safe."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = Lock()
        self._held: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._held_bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the chunks of this process."""
        return _DecodedChunks, ()

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
