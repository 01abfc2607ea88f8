"""Read-only file over one version of an object: read-ahead for small reads, parallel ranges for large ones."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from dataclasses import replace
from itertools import repeat
from operator import methodcaller
from typing import TYPE_CHECKING

from penstock.engine.blocks import BlockReader
from penstock.engine.contracts.fetching import CachedFetching
from penstock.engine.operations.policy import again
from penstock.engine.waiting import Inbox
from penstock.errors import Changed, ChecksumMismatch, Unusable
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.engine.budget import Budget
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.values import Running

CHANGED = "the object was replaced between two reads of it: read it again"

_BLOCK_BYTES = 4 << 20
# Blocks held at once, for repeated reads nearby and for read-ahead.
_MOST_BLOCKS = 8
_AHEAD = 3  # blocks in flight once reading turns out to be sequential


class Reader(BlockReader):
    """A read-only, seekable file over one version of an object; a different version raises ``Changed``.

    If ``meta`` names no version, such as that of a web server's index page, it is that of the first read.

    Reads of a block (4 MiB) or more go straight into the caller's memory, in parallel ranges, one request each. Smaller
    reads are served from blocks; while reading is sequential, the next three blocks are fetched ahead. Memory beyond
    the returned data: eight blocks. Opening costs one HEAD.

    If ``meta`` has a checksum, data read from front to back, in any steps, is compared with it before the last bytes
    are returned. On a mismatch this read and all later ones raise ``ChecksumMismatch``.
    """

    def __init__(self, fetching: Callable[[], Fetching], meta: ObjectMeta, url: str, block_bytes: int = 0) -> None:
        super().__init__(meta.size, block_bytes or _BLOCK_BYTES)
        self._fetching = fetching
        self._url = url
        self._meta = meta
        self._inbox = Inbox()
        self._blocks: OrderedDict[int, ReadOperation] = OrderedDict()
        self._last = -2
        self._pid = os.getpid()
        self._compared = 0  # bytes from the front that were compared, or will be
        self._running: Running | None = None if meta.checksum is None else meta.checksum.begin()
        self._mismatch: ChecksumMismatch | None = None

    @property
    def name(self) -> str:
        return self._url

    @property
    def etag(self) -> str:
        return self._meta.etag

    def close(self) -> None:
        if not self.closed:
            self._drop([read for read in self._blocks.values() if not read.complete])
            self._blocks.clear()
        super().close()

    def _straight(self, start: int, target: Buffer) -> None:
        span = self._span(start, start + target.size)
        self._pin(read_into(self._fetching(), span, target))
        self._compare(start, target.view())

    def _block(self, number: int) -> bytes:
        """Return a block; fetch it if necessary and, while reading is sequential, the blocks after it."""
        if self._pid != os.getpid():
            # In a forked child: the parent's reads in flight are not ours.
            self._inbox, self._blocks, self._pid = Inbox(), OrderedDict(), os.getpid()
        ahead = _AHEAD if number in (self._last, self._last + 1) else 0
        last = max(0, self.size - 1) // self._block_bytes
        missing = [each for each in range(number, min(number + ahead, last) + 1) if each not in self._blocks]
        if missing:
            spans = [self._span(each * self._block_bytes, self._end_of(each)) for each in missing]
            self._blocks.update(zip(missing, start_reads(self._fetching(), spans, self._inbox), strict=True))
        self._last = number
        read = self._blocks[number]
        self._blocks.move_to_end(number)
        try:
            self._inbox.wait(read)
            data = read.take()
            self._pin(read.version)
            self._compare(number * self._block_bytes, data)
        except BaseException:
            self._blocks.pop(number, None)
            raise
        while len(self._blocks) > _MOST_BLOCKS:
            self._drop([self._blocks.popitem(last=False)[1]])
        return data

    def _end_of(self, number: int) -> int:
        return min((number + 1) * self._block_bytes, self.size)

    def _span(self, start: int, stop: int) -> Span:
        whole = start == 0 and stop == self.size
        checksum = self._meta.checksum if whole else None
        return Span(self._meta.key, start, stop, self._meta.etag, whole, self._meta.size, checksum)

    def _pin(self, version: str) -> None:
        """Bind later reads to the version of the first, and compare the reads in progress."""
        if version and version != self._meta.etag:
            if self._meta.etag:
                raise Changed(CHANGED, url=self._url)
            self._meta = replace(self._meta, etag=version)

    def _compare(self, start: int, data: bytes | memoryview) -> None:
        """Add bytes that follow those already added; once complete, raise ``ChecksumMismatch`` if they differ."""
        if self._mismatch is not None:
            raise again(self._mismatch)
        skip, running = self._compared - start, self._running
        if running is None or not 0 <= skip < len(data):
            return
        self._compared = start + len(data)
        caches = isinstance(self._fetching(), CachedFetching)
        if len(data) == self.size and not caches:
            # The engine compares objects that it reads whole.
            self._running = None
            return
        running.update(memoryview(data)[skip:])
        if self._compared == self.size:
            self._running = None
            if not running.matches():
                named = self._meta.checksum.name if self._meta.checksum is not None else ""
                advice = "clear the cache (penstock cache clear) and read again" if caches else "read again"
                message = f"the bytes read do not match the store's {named}: {advice}"
                self._mismatch = ChecksumMismatch(message, url=self._url)
                raise again(self._mismatch)

    def _drop(self, reads: list[ReadOperation]) -> None:
        unfinished = [read for read in reads if not read.complete]
        if unfinished and self._pid == os.getpid():
            self._fetching().cancel_reads(unfinished)


def scatter(fetching: Fetching, places: Iterator[tuple[Span, Buffer]], window: Budget) -> Generator[Span]:
    """Fill each target with its span, one request each, and yield the spans in order, once they are full.

    ``places`` is drawn from lazily: places that are drawn and not yet yielded hold at most the bytes that ``window``
    allows at that moment, plus one place. The first error, in order, ends the generator. Once it has ended for any
    reason (an error, Ctrl-C, closing), nothing writes into a target.
    """
    pid, inbox = os.getpid(), Inbox()
    reads: deque[tuple[Span, ReadOperation | None]] = deque()  # no read for an empty span
    held_bytes, drained = 0, False
    try:
        while True:
            batch: list[tuple[Span, Buffer]] = []
            while held_bytes < window.bytes_limit and not drained:
                place = next(places, None)
                if place is None:
                    drained = True
                else:
                    batch.append(place)
                    held_bytes += place[1].size
            if batch:
                prepared = fetching.prepare_reads([place for place in batch if place[1].size], inbox)
                each = iter(prepared)
                reads.extend([(span, next(each) if buffer.size else None) for span, buffer in batch])
                # Send only after the reads are stored, because an interrupt may come meanwhile.
                fetching.send_reads(prepared)
            if not reads:
                return
            span, read = reads[0]
            if read is not None:
                inbox.wait(read)
                read.check()
            reads.popleft()
            held_bytes -= (span.stop or 0) - span.start
            yield span
            if pid != os.getpid():
                raise Unusable("reads cannot continue after a fork: start them in the new process")
    finally:
        if pid == os.getpid():
            fetching.stop_reads([read for _, read in reads if read is not None])


_taken: Callable[[ReadOperation], bytes] = methodcaller("take")  # for ``map``, which is faster than a loop


def start_reads(fetching: Fetching, spans: Iterable[Span], owner: Owner) -> list[ReadOperation]:
    reads = fetching.prepare_reads(zip(spans, repeat(None)), owner)
    fetching.send_reads(reads)
    return reads


def read_many(fetching: Fetching, spans: Iterable[Span]) -> list[bytes]:
    return [*map(_taken, complete_reads(fetching, spans))]


def complete_reads(fetching: Fetching, spans: Iterable[Span]) -> list[ReadOperation]:
    """Read all spans at once and return their reads in order, once all are complete."""
    inbox = Inbox()
    reads = start_reads(fetching, spans, inbox)
    try:
        # The last read first, so that one wake-up serves all of them.
        for read in reversed(reads):
            if not read.complete:
                inbox.wait(read)
    except BaseException:
        fetching.cancel_reads(reads)
        raise
    return reads


def read_into(fetching: Fetching, span: Span, buffer: Buffer) -> str:
    """Fill ``buffer`` with the span, in parallel ranges, and return its version.

    After the return, or an error, nothing writes into the buffer.
    """
    inbox = Inbox()
    reads = fetching.prepare_reads(((span, buffer),), inbox)
    try:
        fetching.send_reads(reads)
        inbox.wait(reads[0])
    except BaseException:
        fetching.stop_reads(reads)
        raise
    reads[0].check()
    return reads[0].version
