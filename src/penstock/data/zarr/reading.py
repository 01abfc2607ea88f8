"""``ZarrReading``: chunks are read ahead, decoded once, cut into samples, and released after their last sample."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.datasets.reading import Failed, Item, Prepared, Reading
from penstock.data.zarr.contents import ShardIndexes
from penstock.data.zarr.pool import Schedule
from penstock.errors import Bug, PenstockError
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.contents import ZarrContents
    from penstock.data.zarr.extraction import Part
    from penstock.data.zarr.pool import Limits, Turn
    from penstock.engine.contracts.fetching import ReadCounts
    from penstock.values import Span

    Make = Callable[[int, Sequence[Sequence[Part]], Mapping[int, NDArray[Any]]], Any]
    Rows = Callable[[list[list[NDArray[Any]]]], list[Any]]

__all__ = ["ZarrReading"]

# Chunks that are known before the first of them is read, so that shard indexes are requested together.
_LEAD = 64
_UNKNOWN: Any = object()


class _Pending:
    """Chunk that some sample needs: its location, and its values once decoded."""

    __slots__ = ("chunk", "position", "span", "values")

    def __init__(self, chunk: int, position: int) -> None:
        self.chunk = chunk
        self.position = position  # first sample that needs it
        self.span: Span | bytes | PenstockError | None = _UNKNOWN  # None: missing
        self.values: Prepared[NDArray[Any]] | None = None  # set once its item was handed out


class ZarrReading(Reading):
    """Samples of batches, each preceded by the items that decode its chunks.

    A chunk is read and decoded once if all samples that need it lie within the look-ahead of the schedule.
    """

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
        # For the schedule, which the threads that make samples count down.
        self._lock = Lock()
        self._schedule = Schedule(
            batches, self._uses, self._chunks.size_of, most_bytes=limits.chunk_bytes, most_samples=limits.samples
        )
        self._pending: dict[int, _Pending] = {}
        self._to_read: deque[_Pending] = deque()
        self._to_take: deque[_Pending] = deque()
        source = contents.source
        self._ahead = source.lookahead(self._spans(), max(workers, limits.parts))
        self._indexes = ShardIndexes(contents.arrays, source, contents.indexes, self._ahead.counts)
        # Chunks are decoded this many samples ahead.
        self._lead = 0
        self._unmade = 0  # samples handed out and not yet made
        self._over = self._closed = False

    @property
    def counts(self) -> ReadCounts:
        """Counts of the reads of chunks and indexes so far."""
        return self._ahead.counts

    def __next__(self) -> Item:
        """Return the next item: samples, or work that decodes a chunk for a later sample."""
        schedule = self._schedule
        if self._closed or (schedule.position == schedule.frontier and not self._extend(must=True)):
            self._end()
            raise StopIteration
        if self._to_take and self._to_take[0].position <= schedule.position + self._lead:
            return self._prepared(self._to_take.popleft())
        with self._lock:
            turn = schedule.turn(self._most())
            self._unmade += len(turn.samples)
        if turn.slot + len(turn.samples) == turn.size:
            self._lead = turn.size
        positions = [self._positions.popleft() for _ in turn.samples]
        return self._sample(turn, positions[0]) if self._rows is None else self._run(turn, positions, self._rows)

    def _most(self) -> int:
        """Return how many samples may be made together: those before the first that needs a chunk not yet taken."""
        if self._rows is None:
            return 1
        position = self._schedule.position
        return (self._to_take[0].position if self._to_take else self._schedule.frontier) - position

    def ahead(self) -> Item | None:
        """Return the item that decodes the next chunk if its bytes have arrived; all scheduled chunks fit in memory."""
        if self._closed or not self._to_take:
            return None
        span = self._to_take[0].span
        if span is _UNKNOWN or (isinstance(span, tuple) and not self._ahead.ready):
            return None
        return self._prepared(self._to_take.popleft())

    def _end(self) -> None:
        """Verify the arrays at the end of the epoch; if samples are still being made, the last one does it."""
        with self._lock:
            over, self._over = self._over, True
            unmade = self._unmade
        if not over and not self._closed:
            # Ends the operation as done; closing would end it as cancelled.
            with suppress(StopIteration):
                self._ahead.advance()
            if not unmade:
                self._contents.verify()

    def close(self) -> None:
        """Cancel reads in flight, and wake threads that wait for chunks."""
        self._closed = True
        self._indexes.close()
        self._ahead.close()
        for pending in [*self._pending.values()]:
            if pending.values is not None:
                pending.values.abandon()

    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = self._contents.arrangement.space.positions(samples)
        self._positions.extend(positions.tolist())
        return self._contents.uses(positions)

    def _extend(self, *, must: bool = False) -> bool:
        """Extend the schedule, and begin to read the indexes of the shards of new chunks."""
        schedule = self._schedule
        with self._lock:
            extended = schedule.extend(must=must)
            while extended and len(schedule.queue) < _LEAD and schedule.extend():
                pass
            new = [_Pending(*need) for need in schedule.queue]
            schedule.queue.clear()
            self._pending.update((each.chunk, each) for each in new)
        if new:
            self._to_read.extend(new)
            self._to_take.extend(new)
            self._chunks.prepare(each.chunk for each in new)
            self._indexes.ask(self._chunks.shards(each.chunk for each in new))
        return extended

    def _spans(self) -> Iterator[Span]:
        """Yield the locations of the next chunks, within the look-ahead of the schedule."""
        while not self._closed:
            if len(self._to_read) < _LEAD:
                self._extend()
            if not self._to_read:
                yield PAUSE
                continue
            span = self._located(self._to_read.popleft())
            if isinstance(span, tuple):
                yield span

    def _located(self, pending: _Pending) -> Span | bytes | PenstockError | None:
        if pending.span is _UNKNOWN:
            try:
                pending.span = self._chunks.span(pending.chunk, self._indexes)
            except PenstockError as error:
                pending.span = error
        return pending.span

    def _prepared(self, pending: _Pending) -> Item:
        """Return the item that decodes a chunk."""
        span = self._located(pending)
        if isinstance(span, PenstockError):
            make: Callable[[], NDArray[Any]] = partial(_raise, span)
        else:
            read = self._ahead.advance() if isinstance(span, tuple) else span
            make = partial(self._chunks.decode, pending.chunk, read, self._pool)
        pending.values = values = Prepared(make)
        return Item(0, 0, 0, "", values.prepare)

    def _sample(self, turn: Turn, position: list[int]) -> Item:
        batch, slot, size, [sample] = turn
        name = partial(self._contents.name_of, position)
        return Item(batch, slot, size, name, partial(self._make, sample, position))

    def _run(self, turn: Turn, positions: list[list[int]], rows: Rows) -> Item:
        batch, slot, size, samples = turn
        name = partial(self._contents.name_of, positions[0])
        return Item(batch, slot, size, name, partial(self._make_run, samples, positions, rows), len(samples))

    def _make_run(self, samples: list[int], positions: list[list[int]], rows: Rows) -> list[Any]:
        """Make samples together; or one by one, if they may need several chunks each or a chunk cannot be read."""
        contents = self._contents
        found = contents.located(np.array(positions, dtype=np.int64))
        if found is not None:
            uses = Counter(chunk for chunks, _ in found for chunk in chunks if chunk >= 0)
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

    def _value(self, chunk: int) -> NDArray[Any]:
        values = self._pending[chunk].values
        if values is None:
            raise Bug("a sample came before the item that decodes its chunk")
        return values.get()

    def _release(self, uses: Mapping[int, int], samples: int) -> None:
        """Count ``samples`` as made, and release the chunks that no scheduled sample needs any more."""
        with self._lock:
            for chunk, times in uses.items():
                if self._schedule.done(chunk, times):
                    del self._pending[chunk]
            self._unmade -= samples
            last = self._over and not self._unmade
        if last and not self._closed:
            self._contents.verify()


def _raise(error: PenstockError) -> NDArray[Any]:
    raise error
