"""Parallel, verified reads of many object ranges into memory.

``runs`` plans the requests and is pure: long runs go directly to their memory, the rest through scratch memory.
``gather`` reads them.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums
from penstock.errors import ChecksumMismatch
from penstock.progress import current
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from penstock.source import Source

# Bytes per request: one connection to S3 gives 50 to 100 MB/s, so many in parallel pay.
_MOST_BYTES = 8 * BLOCK_BYTES
# From this size on a run of whole blocks gets its own request and is not copied.
_STRAIGHT_BYTES = 2 * BLOCK_BYTES
# Unwanted bytes that are read to save a request: 30 ms at 10 MB/s.
_GAP_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """Data object in the version ``etag`` (empty: any), and the checksums to verify it with."""

    key: str
    etag: str
    size: int
    url: str
    checksums: BlockChecksums | None
    origin: int = 0  # byte offset at which block 0 of ``checksums`` begins

    def within(self, start: int, stop: int) -> str:
        return f"bytes {start} to {stop}"

    def whole(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of whole blocks within ``[start, stop)``; the same range without checksums."""
        if self.checksums is None:
            return start, stop
        first = start + (self.origin - start) % BLOCK_BYTES
        last = stop if stop == self.size else stop - (stop - self.origin) % BLOCK_BYTES
        return first, max(first, last)

    def around(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of whole blocks around ``[start, stop)``; the same range without checksums."""
        if self.checksums is None:
            return start, stop
        last = min(self.size, stop + (self.origin - stop) % BLOCK_BYTES)
        return start - (start - self.origin) % BLOCK_BYTES, last


class Want(NamedTuple):
    """Bytes ``[start, stop)`` of an object, and the writable, contiguous buffer that receives them."""

    of: Object
    start: int
    stop: int
    memory: Any
    tag: Any = None  # the caller's, to recognize the want by


class WantedPiece(NamedTuple):
    """Bytes ``[start, stop)`` of the object that belong in a want's memory."""

    want: Want
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class RangeRequest:
    """Request for bytes ``[start, stop)`` of an object, and the pieces in it."""

    of: Object
    start: int
    stop: int
    straight: bool = False  # read directly into the memory of its only piece, not into scratch memory
    pieces: list[WantedPiece] = field(default_factory=list)
    done: list[Want] = field(default_factory=list)  # the wants that are complete after this run

    def reaches(self, of: Object, start: int, stop: int) -> bool:
        near = self.of is of and self.start <= start <= self.stop + _GAP_BYTES
        return near and max(stop, self.stop) - self.start <= _MOST_BYTES


def runs(wants: Iterable[Want]) -> Iterator[RangeRequest]:
    """Yield the requests for ``wants``, which are consumed lazily; wants complete in their order.

    Nearby ranges are read together while starts ascend; any other order only costs more requests.
    """
    waiting: RangeRequest | None = None  # open for more pieces nearby
    for want in wants:
        for piece, straight in _split_want(want):
            low, high = (piece.start, piece.stop) if straight else want.of.around(piece.start, piece.stop)
            if waiting is not None and not straight and waiting.reaches(want.of, low, high):
                waiting.stop = max(high, waiting.stop)
            else:
                if waiting is not None:
                    yield waiting
                waiting = RangeRequest(want.of, low, high, straight)
            waiting.pieces.append(piece)
            if piece.stop == want.stop:
                waiting.done.append(want)
            if straight:
                yield waiting
                waiting = None
    if waiting is not None:
        yield waiting


def _split_want(want: Want) -> Iterator[tuple[WantedPiece, bool]]:
    """Cut a want into pieces for direct reads and the remainders at its ends; yield each with its ``straight`` flag."""
    of, start, stop, *_ = want
    first, last = of.whole(start, stop)
    if start == stop:
        yield WantedPiece(want, start, stop), True  # no request, but keeps the order
        return
    if last - first < _STRAIGHT_BYTES:
        first = last = stop
    if start < first:
        yield WantedPiece(want, start, first), False
    for at in range(first, last, _MOST_BYTES):
        yield WantedPiece(want, at, min(last, at + _MOST_BYTES)), True
    if last < stop:
        yield WantedPiece(want, last, stop), False


# Bytes in flight or waiting. With the overhead around it, memory stays below 256 MiB beyond the state itself.
_WINDOW_BYTES = 192 << 20


def gather(source: Source, wants: Iterable[Want], window_bytes: int = _WINDOW_BYTES) -> Generator[Want]:
    """Fill the memory of ``wants``, and yield each want in order after its bytes arrived and were verified.

    ``wants`` is consumed lazily, ``window_bytes`` plus one want ahead of the consumer, so memory allocated by the
    iterator stays within that. Long runs of whole blocks are read directly into a want's memory, one request per 8 MiB.
    Small wants, and partial blocks at both ends, share requests and are copied. With checksums, a want costs up to 1
    MiB more at each end. After the generator ends in any way, Ctrl-C and ``close`` included, nothing writes into any
    memory.
    """
    sent: deque[tuple[RangeRequest, memoryview]] = deque()
    count = current()

    def places() -> Iterator[tuple[Span, memoryview]]:
        for run in runs(wants):
            memory = _view(run.pieces[0]) if run.straight else _scratch(run.stop - run.start)
            sent.append((run, memory))
            yield Span(run.of.key, run.start, run.stop, run.of.etag), memory

    with closing(source.scatter(places(), window_bytes)) as filled:
        for _ in filled:
            run, memory = sent.popleft()
            _verify(run, memory)
            count(0, run.stop - run.start)
            for piece in () if run.straight else run.pieces:
                _view(piece)[:] = memory[piece.start - run.start : piece.stop - run.start]
            yield from run.done


def _scratch(size: int) -> memoryview:
    return np.empty(size, np.uint8).data  # not zeroed


def _view(piece: tuple[Want, int, int]) -> memoryview:
    want, start, stop = piece
    whole = memoryview(want.memory)
    return whole.cast("B")[start - want.start : stop - want.start] if whole.nbytes else memoryview(bytearray())


def _verify(run: RangeRequest, memory: memoryview) -> None:
    of = run.of
    if of.checksums is None:
        return
    first = (run.start - of.origin) // BLOCK_BYTES
    for number, at in enumerate(range(0, len(memory), BLOCK_BYTES), first):
        if not of.checksums.holds(number, memory[at : at + BLOCK_BYTES]):
            start = run.start + at
            stop = min(start + BLOCK_BYTES, run.stop)
            raise ChecksumMismatch(f"{of.within(start, stop)} do not match the written data", url=of.url)
