"""Read-only file over one version of an object: read-ahead for small reads, parallel ranges for large ones."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
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
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 4 << 10, 64 << 20  # a file holds eight blocks
MOST_AHEAD_BYTES = 1 << 30
# Pages of a block. One page is the least request: it is transferred in a tenth of the time of a round trip.
_PAGES = 16
_AHEAD = 3  # blocks in flight once reading turns out to be sequential
# Share of an object that is read first and last at least: an index in its front or at its end grows with it.
_INDEX_SHARE = 256
# From this seek on, an object whose blocks are all held is read by blocks.
_FEW_SEEKS = 2
# Length of a sequence after a seek from which on more is read ahead, in quarters of a block: as fast as twice as much
# in whole blocks.
_LONG_BLOCKS = 2
_QUARTERS = 4
# Blocks held at once, for repeated reads nearby and for read-ahead.
_MOST_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class RangeSizes:
    """Sizes of the requests for one object.

    Attributes:
        size_bytes: Size of the object.
        page_bytes: Least size of a request, and the grid on which requests begin and end.
        block_pages: Most pages of a request.
        ahead_pages: Most pages that are requested ahead of the position.
        adapts: Whether sizes follow the pattern of reading. Otherwise a seek requests the pages that it needs, and the
            page that follows requests all ``ahead_pages``.
    """

    size_bytes: int
    page_bytes: int
    block_pages: int
    ahead_pages: int
    adapts: bool

    @property
    def pages(self) -> int:
        return -(-self.size_bytes // self.page_bytes)

    @property
    def index_pages(self) -> int:
        """Pages that the first read requests in the front, and the first read near the end requests there."""
        if self.pages <= self.block_pages:
            return self.pages
        return max(1, min(-(-self.size_bytes // (_INDEX_SHARE * self.page_bytes)), self.block_pages))


class HeldRanges:
    """Reads of one object, each of whole pages; none overlap. The least recently used are dropped first."""

    def __init__(self, sizes: RangeSizes) -> None:
        self._sizes = sizes
        self._reads: OrderedDict[int, ReadOperation] = OrderedDict()  # by their first page
        self._first: dict[int, int] = {}  # of the read that holds a page
        self._stop = -1  # position after the read that was used last
        self._low = 0  # page with which the current sequence began
        self._seeks = 0

    def find(self, at: int) -> ReadOperation:
        """Return the read that holds a position, as the most recently used."""
        first = self._first[at // self._sizes.page_bytes]
        self._reads.move_to_end(first)
        read = self._reads[first]
        self._stop = read.span.stop or 0
        return read

    def add(self, reads: Iterable[ReadOperation]) -> None:
        for read in reads:
            pages = self._pages_of(read)
            self._reads[pages.start] = read
            self._first.update(dict.fromkeys(pages, pages.start))

    def remove(self, read: ReadOperation) -> None:
        pages = self._pages_of(read)
        if self._reads.pop(pages.start, None) is not None:
            for page in pages:
                del self._first[page]

    def shrink(self) -> list[ReadOperation]:
        """Remove the reads that are too many, and return them."""
        sizes, removed = self._sizes, []
        most = max(_MOST_BLOCKS * sizes.block_pages, sizes.ahead_pages + 2 * sizes.block_pages)
        while len(self._first) > most and len(self._reads) > 1:
            removed.append(next(iter(self._reads.values())))
            self.remove(removed[-1])
        return removed

    def remove_all(self) -> list[ReadOperation]:
        reads = [*self._reads.values()]
        self._reads.clear()
        self._first.clear()
        return reads

    def choose(self, at: int, count: int) -> list[tuple[int, int]]:
        """Return the ranges to request for a read of ``count`` bytes from ``at`` on, which lies within the object."""
        sizes = self._sizes
        first = at // sizes.page_bytes
        stop = min(-(-(at + count) // sizes.page_bytes), sizes.pages)
        held = first in self._first
        in_sequence = 0 <= at - self._stop < sizes.block_pages * sizes.page_bytes and self._stop >= 0
        begin, ahead = self._find_sequence(first, in_sequence=in_sequence)
        if begin < 0 and not held:
            begin, stop = self._seek_range(first, stop) if sizes.adapts and sizes.ahead_pages else (first, stop)
        elif not held or (in_sequence and ahead == sizes.ahead_pages):
            stop += ahead
            if ahead == sizes.ahead_pages >= sizes.block_pages:
                # Whole blocks, so that each block that is entered requests one.
                stop = -(-stop // sizes.block_pages) * sizes.block_pages
        piece = sizes.block_pages
        if piece // 2 < ahead < sizes.ahead_pages:
            piece = max(1, piece // _QUARTERS)
        return [*self._missing(first if held or begin < 0 else begin, min(stop, sizes.pages), piece)]

    def _find_sequence(self, page: int, *, in_sequence: bool) -> tuple[int, int]:
        """Return the first page after those held before ``page``, and how many to read ahead; -1 after a seek.

        A short gap before the page belongs to the sequence: reading over it takes less time than a request.
        """
        sizes = self._sizes
        begin = page
        while begin and begin - 1 not in self._first and page - begin < sizes.block_pages // 4:
            begin -= 1
        low = begin
        while low - 1 in self._first:
            low = self._first[low - 1]
        if low == begin:
            self._low = page
            return -1, 0
        # The first reads of a long sequence are dropped.
        self._low = low = min(low, self._low) if in_sequence else low
        ahead = sizes.ahead_pages
        if sizes.adapts and low:
            # After a seek reading may end anywhere: what was requested in vain stays a share of what was read.
            behind = begin - low
            long = behind >= _LONG_BLOCKS * sizes.block_pages
            ahead = min(ahead, max(2, behind * 2 // 5 if long else behind // 3))
        return (begin, ahead) if page - begin <= ahead else (-1, 0)

    def _seek_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return the pages to request after a seek to ``first``: those of an index, or those needed, or their block."""
        sizes = self._sizes
        last = max(0, sizes.size_bytes - sizes.index_pages * sizes.page_bytes) // sizes.page_bytes
        if first == 0:
            return 0, max(stop, sizes.index_pages)
        if first >= last:
            return last, sizes.pages
        low = first - first % sizes.block_pages
        high = min(low + sizes.block_pages, sizes.pages)
        self._seeks += 1
        often = self._seeks >= _FEW_SEEKS and sizes.pages <= _MOST_BLOCKS * sizes.block_pages
        if often or any(page in self._first for page in range(low, high)):
            # More seeks into this block are likely to follow.
            begin = first
            while begin > low and begin - 1 not in self._first:
                begin -= 1
            end = first
            while end < high and end not in self._first:
                end += 1
            return begin, max(stop, end)
        return first, stop

    def _missing(self, begin: int, stop: int, piece: int) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of the pages without a read, each of ``piece`` pages at most."""
        sizes = self._sizes
        page = begin
        while page < stop:
            low = page
            while page < stop and page not in self._first and page - low < piece:
                page += 1
            if page > low:
                yield low * sizes.page_bytes, min(page * sizes.page_bytes, sizes.size_bytes)
            else:
                page += 1

    def _pages_of(self, read: ReadOperation) -> range:
        page_bytes = self._sizes.page_bytes
        return range(read.span.start // page_bytes, -(-(read.span.stop or 0) // page_bytes))


class Reader(BlockReader):
    """A read-only, seekable file over one version of an object; a different version raises ``Changed``.

    If ``meta`` names no version, such as that of a web server's index page, it is that of the first read.

    Reads of a block (4 MiB) or more go straight into the caller's memory, in parallel ranges, one request each. Smaller
    reads are served from ranges that are held. The first read and a seek request little (``HeldRanges``); while reading
    is sequential, up to three blocks are requested ahead. Memory beyond the returned data: eight blocks, or
    ``read_ahead`` and two. Opening costs one HEAD.

    ``block_bytes`` and ``read_ahead`` (bytes), where given, are kept from the first request on.

    If ``meta`` has a checksum, data read from front to back, in any steps, is compared with it before the last bytes
    are returned. On a mismatch this read and all later ones raise ``ChecksumMismatch``.
    """

    def __init__(
        self,
        fetching: Callable[[], Fetching],
        meta: ObjectMeta,
        url: str,
        block_bytes: int | None = None,
        read_ahead: int | None = None,
    ) -> None:
        super().__init__(meta.size, block_bytes or _BLOCK_BYTES)
        self._fetching = fetching
        self._url = url
        self._meta = meta
        self._given = block_bytes, read_ahead
        self._inbox = Inbox()
        self._held: HeldRanges | None = None
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
        if not self.closed and self._held is not None:
            self._drop(self._held.remove_all())
        super().close()

    def _straight(self, start: int, target: Buffer) -> None:
        span = self._span(start, start + target.size)
        self._pin(read_into(self._fetching(), span, target))
        self._compare(start, target.view())

    def _read_around(self, at: int, count: int) -> tuple[int, bytes]:
        """Return the range that holds byte ``at``; request it if necessary, and the next while reading in sequence."""
        if self._pid != os.getpid():
            # In a forked child: the parent's reads in flight are not ours.
            self._inbox, self._held, self._pid = Inbox(), None, os.getpid()
        if self._held is None:
            self._held = HeldRanges(self._sizes())
        held = self._held
        missing = [self._span(start, stop) for start, stop in held.choose(at, count)]
        if missing:
            held.add(start_reads(self._fetching(), missing, self._inbox))
        read = held.find(at)
        start = read.span.start
        try:
            self._inbox.wait(read)
            data = read.take()
            self._pin(read.version)
            self._compare(start, data)
        except BaseException:
            held.remove(read)
            raise
        self._drop(held.shrink())
        return start, data

    def _sizes(self) -> RangeSizes:
        block_bytes, read_ahead = self._given
        # A cache keeps whole blocks: the same ones, however an object is read.
        pages = 1 if block_bytes or isinstance(self._fetching(), CachedFetching) else _PAGES
        page_bytes = max(1, self._block_bytes // pages)
        ahead_bytes = _AHEAD * self._block_bytes if read_ahead is None else read_ahead
        adapts = block_bytes is None and read_ahead is None
        return RangeSizes(self.size, page_bytes, pages, -(-ahead_bytes // page_bytes), adapts)

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

    def _drop(self, reads: Iterable[ReadOperation]) -> None:
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
