"""The file that pyarrow reads from: exactly the bytes it asks for, and in Parquet what it will ask for next."""

from __future__ import annotations

import io
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.blocks import moved
from penstock.interop.arrow.layout import Layout
from penstock.values import Span
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from penstock.interop.recent import Recent
    from penstock.protocols.fetching import PendingRead
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["RandomFile"]

_WHOLE_BYTES = 1 << 20  # files up to here are one request: a second one takes longer than their bytes
_ASKED_BYTES = 64 << 10  # of a Parquet file's end pyarrow asks for first (kDefaultFooterReadSize)
_TAIL_BYTES = 128 << 10  # that are read then, as the footer may be longer
_MAGIC = b"PAR1"
_ENDING = 8  # bytes of a Parquet file after its footer: the footer's length, and the magic
_AHEAD_READS = 32
_PATIENCE = 48  # reads that come before one that was expected: six for each of pyarrow's 8 threads
_BEHIND = 4  # row groups: these threads get their turns in any order
_HIT, _SCAN = 2, 8  # more reads ahead for one that was asked for; for columns of a second row group
_AHEAD_BYTES = 64 << 20


class _Ahead(NamedTuple):
    """A read on its way, and how many had been asked for when it began."""

    read: PendingRead
    at: int


class RandomFile(io.RawIOBase):
    """One version of an object, read where it is asked for, without blocks; pyarrow's threads take turns at it.

    pyarrow lets one thread at a time read from a file of Python's. So the requests for a Parquet file's columns would
    follow one another. Once its footer was read, the columns that were asked for so far are therefore read in the next
    row groups, too: one read ahead for each run of columns, eight more when a run is asked for in a second row group,
    and two more for each that was asked for; up to 32, and 64 MiB. Where others are asked for, as a filter leaves out
    row groups, there are fewer.

    A file of up to ``whole_bytes`` is one request, whatever is read of it.
    """

    mode = "rb"

    def __init__(
        self, source: Source, meta: ObjectMeta, layouts: Recent[Layout], *, whole_bytes: int = _WHOLE_BYTES
    ) -> None:
        """Read the object ``meta`` describes; ``layouts`` keeps what the footers of Parquet files say.

        pyarrow reads a footer through one file, and the columns through another one.
        """
        super().__init__()
        self._source = source
        self._meta = meta
        self._at = 0
        self._tail = b""  # the file's last bytes; all of a small file
        self._tail_bytes = meta.size if meta.size <= whole_bytes else _TAIL_BYTES
        self._inbox = Inbox()
        self._ahead: OrderedDict[tuple[int, int], _Ahead] = OrderedDict()
        self._layouts = layouts
        self._layout = layouts.get(self._version)
        self._asked: set[tuple[int, int]] = set()  # of a Parquet file, also by reading ahead
        self._runs: dict[tuple[int, ...], None] = {}  # of columns that were asked for, in this order
        self._first = 0  # row group of these
        self._most = self._count = self._given_up = 0  # reads ahead at once; reads so far; those in vain

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._source.url(self._meta.key)

    @property
    def _version(self) -> str:
        return f"{self._meta.etag} {self._meta.size} {self.name}"

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; costs nothing."""
        self._at = moved(offset, whence, self._at, self._meta.size)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes | memoryview:  # pyarrow takes any buffer
        """Return up to ``size`` bytes, fewer only at the end: one request, or none."""
        left = max(0, self._meta.size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        data = self._range(self._at, self._at + count) if count else b""
        self._at += count
        return data

    def readinto(self, buffer: object, /) -> int:
        """Fill a writable buffer: one request, or none."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Cancel reads in flight."""
        if not self.closed:
            waiting = [read for read, _ in self._ahead.values() if not read.complete]
            if waiting:
                self._source.fetching().cancel_reads(waiting)
            self._ahead.clear()
            self._tail, self._layout = b"", None
        super().close()

    def _range(self, start: int, stop: int) -> bytes | memoryview:
        size = self._meta.size
        least = max(0, size - self._tail_bytes)
        if not least or (stop == size and start >= least) or self._is_footer(start, stop):
            self._hold(least if not least or size - start == _ASKED_BYTES else start)
        held = size - len(self._tail)
        if start >= held:
            return memoryview(self._tail)[start - held : stop - held]
        ahead = self._ahead.pop((start, stop), None)
        self._predict(start, stop, hit=ahead is not None)
        if ahead is None:
            return self._source.read(self._span(start, stop))
        self._inbox.wait(ahead.read)
        return ahead.read.take()

    def _is_footer(self, start: int, stop: int) -> bool:
        """Say whether this is a Parquet file's footer, as its last bytes have it; these were read before."""
        ends = stop == self._meta.size - _ENDING and self._tail.endswith(_MAGIC)
        return ends and stop - start == int.from_bytes(self._tail[-_ENDING:-4], "little")

    def _hold(self, start: int) -> None:
        """Keep the file's bytes from ``start`` on; what is kept already is not read again."""
        held = self._meta.size - len(self._tail)
        if start < held:
            self._tail = self._source.read(self._span(start, held)) + self._tail
            if start:
                self._learn()

    def _learn(self) -> None:
        """Read a Parquet file's footer, where the end of the file holds all of it."""
        tail = self._tail
        footer = int.from_bytes(tail[-_ENDING:-4], "little") if tail.endswith(_MAGIC) else len(tail)
        if self._layout is None and len(tail) >= footer + _ENDING:
            from pyarrow import ArrowException, BufferReader
            from pyarrow.parquet import read_metadata

            with suppress(ArrowException, OSError, ValueError):  # no Parquet after all: its reader will say so
                self._layout = Layout(read_metadata(BufferReader(tail)))
                self._layouts.keep(self._version, self._layout)

    def _predict(self, start: int, stop: int, *, hit: bool) -> None:
        """Begin to read what will be asked for, as these bytes are."""
        place = self._layout.place(start, stop) if self._layout else None
        if self._layout is None or place is None:
            return
        group, columns = place
        self._first = min(self._first, group) if self._runs else group
        self._expect(columns, hit=hit)
        self._asked.add((start, stop))
        self._count += 1
        self._forget()
        for first, end in self._layout.ahead(max(self._first, group - _BEHIND), self._runs):
            held = sum(stop - start for start, stop in self._ahead)
            if len(self._ahead) >= self._most or held + end - first > _AHEAD_BYTES:
                return
            if (first, end) not in self._asked:
                self._asked.add((first, end))
                self._begin(first, end)

    def _expect(self, columns: tuple[int, ...], *, hit: bool) -> None:
        """Read more ahead where that is of use: as was asked for, or as all row groups seem to be."""
        if hit:
            more = _HIT
        elif columns not in self._runs:
            more = 1
        else:
            more = 0 if self._given_up else _SCAN
        self._most = min(self._most + more, _AHEAD_READS)
        self._runs[columns] = None

    def _forget(self) -> None:
        """Give up reads ahead that were not asked for while many others were."""
        while self._ahead and self._count - next(iter(self._ahead.values())).at > _PATIENCE:
            _, (read, _) = self._ahead.popitem(last=False)
            self._most -= 1
            self._given_up += 1
            if not read.complete:
                self._source.fetching().cancel_reads((read,))

    def _begin(self, start: int, stop: int) -> None:
        fetching = self._source.fetching()
        reads = fetching.prepare_reads(((self._span(start, stop), None),), self._inbox)
        self._ahead[start, stop] = _Ahead(reads[0], self._count)
        fetching.send_reads(reads)

    def _span(self, start: int, stop: int) -> Span:
        return Span(self._meta.key, start, stop, self._meta.etag, whole=start == 0 and stop == self._meta.size)
