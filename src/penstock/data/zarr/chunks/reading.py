"""``ZarrReading``: chunks of arrays are read ahead, decoded once, and cut into samples."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.reading.chunks import Bounds, ChunkReading
from penstock.data.reading.reading import Failed, Item
from penstock.data.zarr.chunks.contents import ShardIndexes
from penstock.engine.contracts.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.schedule import Turn
    from penstock.data.zarr.chunks.contents import ZarrContents
    from penstock.data.zarr.chunks.pool import Limits
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
        self._indexes = ShardIndexes(
            contents.chunks.parts, contents.source, contents.chunks.indexes, self._ahead.counts
        )

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
        self._chunks.prepare(chunks)
        self._indexes.ask(self._chunks.shards(chunks))

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
    chunks, indexes = (
        contents.chunks,
        ShardIndexes(contents.chunks.parts, contents.source, contents.chunks.indexes, ReadCounts()),
    )
    needed = _new(chain(_iterate_kept_chunks(contents), _iterate_used_chunks(contents, batches)))
    try:
        while some := list(islice(needed, _LEAD)):
            chunks.prepare(some)
            indexes.ask(chunks.shards(some))
            found = (chunks.span(chunk, indexes) for chunk in some)
            # Other values are None (missing chunk) or bytes (stored within references).
            yield from (span for span in found if isinstance(span, tuple))
    finally:
        indexes.close()


def _iterate_kept_chunks(contents: ZarrContents) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the chunks of arrays that are read whole and kept."""
    first = contents.chunks.bases
    for number, (array, keeps) in enumerate(zip(contents.arrays, contents.arrangement.kept, strict=True)):
        if keeps:
            yield first[number] + np.arange(prod(array.layout.grid), dtype=np.int64)


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
