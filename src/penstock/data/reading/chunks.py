"""``ChunkReading``: chunks of several samples are read ahead, decoded once, and released after their last sample.

A chunk is whatever several samples share: a chunk of an array, a run of neighbouring samples of a shard, a row group.
A ``Schedule`` says which chunk comes next. Each chunk becomes a preparing item (see ``Item``), which decodes it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.data.order.schedule import Schedule
from penstock.data.reading.reading import Item, Prepared, Reading
from penstock.data.reading.sharing import layer_of
from penstock.engine.buffer import reuse_freed
from penstock.errors import Bug, PenstockError
from penstock.values import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.order.schedule import Turn
    from penstock.engine.contracts.fetching import ReadCounts, ReadOperation
    from penstock.source import Source
    from penstock.values import Span

    Located = Span | list[Span] | bytes | PenstockError | None

# Chunks that are known before the first of them is read, so that what locates them can be requested together.
_LEAD = 64
_SOONEST = 8  # chunks that are read at once, whatever the first batch needs
_UNKNOWN: Any = object()

V = TypeVar("V")


class Bounds(NamedTuple):
    """Limits of the look-ahead of a reading."""

    chunk_bytes: int  # bytes of the chunks that are held or come next
    samples: int  # number of samples ahead whose chunks are known
    parts: int = 1  # read-ahead takes at most 1 / ``parts`` of the store's own limit


class _Pending(Generic[V]):
    """Chunk that some sample needs: its location, and its value once decoded."""

    __slots__ = ("chunk", "position", "reads", "span", "value")

    def __init__(self, chunk: int, position: int) -> None:
        self.chunk = chunk
        self.position = position  # first sample that needs it
        self.span: Located = _UNKNOWN
        self.reads: list[ReadOperation] = []  # taken so far, of a chunk of several spans
        self.value: Prepared[V] | None = None  # set once its item was handed out


class ChunkReading(Reading, Generic[V]):
    """Samples of batches, each preceded by the items that decode its chunks.

    A chunk is read and decoded once if all samples that need it are within the look-ahead of the schedule.
    """

    def __init__(self, source: Source, batches: Iterable[list[int]], workers: int, bounds: Bounds) -> None:
        # A window of chunks is read before the first of them is freed.
        reuse_freed()
        # For the schedule, which the threads that make samples count down.
        self._lock = Lock()
        self._schedule = Schedule(
            batches, self._uses, self._size_of, most_bytes=bounds.chunk_bytes, most_samples=bounds.samples
        )
        self._pending: dict[int, _Pending[V]] = {}
        self._to_read: deque[_Pending[V]] = deque()
        self._to_take: deque[_Pending[V]] = deque()
        layer = layer_of(source)
        shared = () if layer is None else (layer,)
        self._ahead = source.lookahead(self._spans(), max(workers, bounds.parts), *shared)
        # Chunks are decoded this many samples ahead.
        self._lead = 0
        self._asked = self._taken = 0  # chunks, until half of those of the first batch are there
        self._begun = self._started = False
        # The latest chunk without a place, because that could not be read.
        self._lost: _Pending[V] | None = None
        self._unmade = 0  # samples handed out and not yet made
        self._over = self._closed = False

    @abstractmethod
    def _uses(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks of each sample, one row per sample, in order; -1 pads rows."""

    @abstractmethod
    def _size_of(self, chunk: int) -> int:
        """Return the bytes that a decoded chunk takes."""

    @abstractmethod
    def _locate(self, chunk: int) -> Span | list[Span] | bytes | None:
        """Return the location of a chunk: spans, or its bytes; None if missing. Errors are raised by its samples."""

    @abstractmethod
    def _decode(self, chunk: int, read: ReadOperation | bytes | None) -> V:
        """Return the value of a chunk from the bytes of ``read``; any thread may call it."""

    def _decode_parts(self, chunk: int, reads: list[ReadOperation]) -> V:
        """Return the value of a chunk of several spans from the bytes of ``reads``; any thread may call it."""
        raise Bug(f"the chunk {chunk} has {len(reads)} spans, but must have one")

    @abstractmethod
    def _item(self, turn: Turn) -> Item:
        """Return the item of the next samples, whose chunks were all handed out; its ``make`` calls ``_release``."""

    def _expect(self, chunks: list[int]) -> None:
        """Prepare to locate new chunks, all at once."""

    def _finish(self) -> None:
        """Check the data once the last sample of the last batch is made."""

    def _most(self) -> int:
        """Return the number of samples to make together: at most those before ``_reach``, at least 1."""
        return 1

    def begin(self) -> None:
        self._ahead.begin()

    @property
    def counts(self) -> ReadCounts:
        return self._ahead.counts

    def __next__(self) -> Item:
        """Return the next item: samples, or work that decodes a chunk for a later sample."""
        schedule = self._schedule
        if self._closed or (schedule.position == schedule.frontier and not self._extend(must=True)):
            self._end()
            raise StopIteration
        if not self._begun:
            self._begun = True
            # Reads are sent first: to look ahead as far as they reach takes milliseconds.
            self._ahead.refill()
            for _ in range(self._asked):
                self._extend()
        # Looking ahead only when the next reads are sent would release chunks that samples beyond the frontier need.
        if len(self._to_read) < _LEAD or not self._started:
            self._extend()
        # Also while chunks wait to be decoded: they may be such as were not requested yet.
        self._ahead.refill()
        if self._to_take and self._is_due(self._to_take[0]):
            return self._prepared(self._to_take.popleft())
        with self._lock:
            turn = schedule.turn(self._most())
            self._unmade += len(turn.samples)
        if turn.slot + len(turn.samples) == turn.size:
            self._lead = turn.size
        return self._item(turn)

    def _is_due(self, pending: _Pending[V]) -> bool:
        """Return whether to decode a chunk before the next sample is made.

        Those of the first batch are decoded as they arrive: a thread that made a sample instead would often wait for
        the chunk that another thread is decoding.
        """
        schedule = self._schedule
        if pending.position <= schedule.position + self._lead:
            return True
        return pending.position < schedule.first and self._has_arrived(pending)

    def _reach(self) -> int:
        """Return the number of next samples whose chunks were all handed out."""
        position = self._schedule.position
        return (self._to_take[0].position if self._to_take else self._schedule.frontier) - position

    def ahead(self) -> Item | None:
        """Return the item that decodes the next chunk if its bytes have arrived; all scheduled chunks fit in memory."""
        if self._closed or not self._to_take or not self._has_arrived(self._to_take[0]):
            return None
        return self._prepared(self._to_take.popleft())

    def _has_arrived(self, pending: _Pending[V]) -> bool:
        """Return whether the next chunk can be decoded without waiting for its bytes."""
        span = pending.span
        if span is _UNKNOWN or (isinstance(span, tuple) and not self._ahead.ready):
            return False
        if isinstance(span, list):
            while len(pending.reads) < len(span):
                if not self._ahead.ready:
                    return False
                pending.reads.append(self._ahead.advance())
        return True

    def _end(self) -> None:
        """Finish at the end of the epoch; if samples are still being made, the last one does it."""
        with self._lock:
            over, self._over = self._over, True
            unmade = self._unmade
        if not over and not self._closed:
            # Ends the operation as done; closing would end it as cancelled.
            with suppress(StopIteration):
                self._ahead.advance()
            if not unmade:
                self._finish()

    def close(self) -> None:
        """Cancel reads in flight, and wake threads that wait for chunks."""
        self._closed = True
        self._ahead.close()
        for pending in [*self._pending.values()]:
            if pending.value is not None:
                pending.value.abandon()

    def _extend(self, *, must: bool = False) -> bool:
        """Extend the schedule, and prepare to locate its new chunks."""
        schedule = self._schedule
        with self._lock:
            extended = schedule.extend(must=must)
            while extended and len(schedule.queue) < _LEAD and schedule.extend():
                pass
            # Without the type's argument, which takes longer than all the rest.
            new: list[_Pending[V]] = [_Pending(*need) for need in schedule.queue]
            schedule.queue.clear()
            self._pending.update((each.chunk, each) for each in new)
        if new:
            self._to_read.extend(new)
            self._to_take.extend(new)
            self._expect([each.chunk for each in new])
        return extended

    def _spans(self) -> Iterator[Span]:
        """Yield the locations of the next chunks, within the look-ahead of the schedule."""
        while not self._closed:
            if len(self._to_read) < _LEAD or self._schedule.frontier < self._schedule.first:
                self._extend()
            if not self._to_read or not (self._started or self._may_start(self._to_read[0])) or self._holds_back():
                yield PAUSE
                continue
            span = self._located(self._to_read.popleft())
            self._asked += 1
            if isinstance(span, list):
                yield from span
            elif isinstance(span, tuple):
                yield span

    def _may_start(self, pending: _Pending[V]) -> bool:
        """Return whether to read a chunk: chunks of later batches wait until half of the first batch's have arrived.

        Otherwise the chunks of a whole window would share the wire, and the first batch would come with the last of
        them.
        """
        if pending.position < self._schedule.first or self._asked < _SOONEST:
            return True
        self._started = 2 * self._taken >= self._asked
        return self._started

    def _holds_back(self) -> bool:
        """Return whether to locate no chunk beyond those that are due, until the error of another was raised.

        To locate a chunk may take all of a store's patience, and the first error would come after that of all chunks.
        """
        lost = self._lost
        return lost is not None and lost.position >= self._schedule.position and not self._is_due(self._to_read[0])

    def _located(self, pending: _Pending[V]) -> Located:
        if pending.span is _UNKNOWN:
            try:
                pending.span = self._locate(pending.chunk)
            except PenstockError as error:
                pending.span, self._lost = error, pending
        return pending.span

    def _prepared(self, pending: _Pending[V]) -> Item:
        self._taken += 1
        span = self._located(pending)
        if isinstance(span, PenstockError):
            make: Callable[[], V] = partial(_raise, span)
        elif isinstance(span, list):
            pending.reads += [self._ahead.advance() for _ in range(len(span) - len(pending.reads))]
            reads, pending.reads = pending.reads, []
            make = partial(self._decode_parts, pending.chunk, reads)
        else:
            read = self._ahead.advance() if isinstance(span, tuple) else span
            make = partial(self._decode, pending.chunk, read)
        pending.value = value = Prepared(make)
        return Item(0, 0, 0, "", value.prepare)

    def _value(self, chunk: int) -> V:
        value = self._pending[chunk].value
        if value is None:
            raise Bug("a sample precedes the item that decodes its chunk")
        return value.get()

    def _release(self, uses: Mapping[int, int], samples: int) -> list[int]:
        """Note that ``samples`` were made; release and return the chunks that no other sample needs."""
        with self._lock:
            finished = self._schedule.finished(uses)
            for chunk in finished:
                del self._pending[chunk]
            self._unmade -= samples
            last = self._over and not self._unmade
        if last and not self._closed:
            self._finish()
        return finished


def _raise(error: PenstockError) -> Any:  # noqa: ANN401  never returns
    raise error
