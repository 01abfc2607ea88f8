"""A file for pyarrow: reads exactly the requested bytes, and reads ahead the expected columns of Parquet files.

Byte ranges of a Parquet file's columns, and those that a reader of some columns needs next; pure arithmetic.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.engine.blocks import moved
from penstock.engine.waiting import Inbox
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.engine.contracts.fetching import PendingRead
    from penstock.interop.recent import Recent
    from penstock.source import Source
    from penstock.values import ObjectMeta


__all__ = ["Layout", "RandomFile"]

# Files up to this size are read in one request: a second request takes longer than the transfer of the bytes.
_WHOLE_BYTES = 1 << 20
# pyarrow first reads this much of a Parquet file's end (kDefaultFooterReadSize).
_ASKED_BYTES = 64 << 10
# Read instead of _ASKED_BYTES, because the footer may be longer.
_TAIL_BYTES = 128 << 10
_MAGIC = b"PAR1"
# Bytes of a Parquet file after its footer: the footer's length and the magic number.
_ENDING = 8
_AHEAD_READS = 32
# A read ahead is given up after this many other reads: six for each of pyarrow's 8 threads.
_PATIENCE = 48
# Reads ahead begin up to this many row groups before the current one: pyarrow's threads read in any order.
_BEHIND = 4
# Additional reads ahead: after a read ahead was used; when columns are requested in a second row group.
_HIT, _SCAN = 2, 8
_AHEAD_BYTES = 64 << 20


class _Ahead(NamedTuple):
    """A read ahead, and the number of requested reads when it began."""

    read: PendingRead
    at: int


class RandomFile(io.RawIOBase):
    """A random-access file of one version of an object, without blocks; pyarrow's threads use it in turn.

    pyarrow lets only one thread at a time read from a Python file, so the requests for a Parquet file's columns would
    run one after another. Therefore, once the footer was read, the columns requested so far are read ahead in the next
    row groups. The limit of reads ahead grows by one for each run of columns, by eight when a run is requested in a
    second row group, and by two for each read ahead that is used; up to 32 reads and 64 MiB. The limit shrinks when
    reads ahead are not used, for example because a filter skips row groups.

    A file of up to ``whole_bytes`` is read in one request, even if only a part is needed.
    """

    mode = "rb"

    def __init__(
        self, source: Source, meta: ObjectMeta, layouts: Recent[Layout], *, whole_bytes: int = _WHOLE_BYTES
    ) -> None:
        """Open the object that ``meta`` describes; ``layouts`` caches the layouts from Parquet footers.

        The cache is shared by files because pyarrow reads the footer through one file and the columns through another.
        """
        super().__init__()
        self._source = source
        self._meta = meta
        self._at = 0
        self._tail = b""  # the file's last bytes; for a small file all bytes
        self._tail_bytes = meta.size if meta.size <= whole_bytes else _TAIL_BYTES
        self._inbox = Inbox()
        self._ahead: OrderedDict[tuple[int, int], _Ahead] = OrderedDict()
        self._layouts = layouts
        self._layout = layouts.get(self._version)
        self._asked: set[tuple[int, int]] = set()  # ranges requested or read ahead
        self._runs: dict[tuple[int, ...], None] = {}  # requested runs of columns, in order
        self._first = 0  # lowest row group requested
        # Limit of parallel reads ahead; requested reads so far; reads ahead that were given up.
        self._most = self._count = self._given_up = 0

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
        """Set and return the position; no request."""
        self._at = moved(offset, whence, self._at, self._meta.size)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes | memoryview:  # pyarrow takes any buffer
        """Return up to ``size`` bytes, fewer only at the end of the file: at most one request."""
        left = max(0, self._meta.size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        data = self._range(self._at, self._at + count) if count else b""
        self._at += count
        return data

    def readinto(self, buffer: object, /) -> int:
        """Fill a writable buffer and return the number of bytes: at most one request."""
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
        """Return whether the range is a Parquet footer, by the length in the file's last bytes, if already read."""
        ends = stop == self._meta.size - _ENDING and self._tail.endswith(_MAGIC)
        return ends and stop - start == int.from_bytes(self._tail[-_ENDING:-4], "little")

    def _hold(self, start: int) -> None:
        """Load the file's bytes from ``start`` on into memory, except those already in memory."""
        held = self._meta.size - len(self._tail)
        if start < held:
            self._tail = self._source.read(self._span(start, held)) + self._tail
            if start:
                self._learn()

    def _learn(self) -> None:
        """Parse a Parquet file's footer if the bytes in memory contain all of it."""
        tail = self._tail
        footer = int.from_bytes(tail[-_ENDING:-4], "little") if tail.endswith(_MAGIC) else len(tail)
        if self._layout is None and len(tail) >= footer + _ENDING:
            from pyarrow import ArrowException, BufferReader
            from pyarrow.parquet import read_metadata

            # Not a valid Parquet file after all: its reader will report that.
            with suppress(ArrowException, OSError, ValueError):
                self._layout = Layout(read_metadata(BufferReader(tail)))
                self._layouts.keep(self._version, self._layout)

    def _predict(self, start: int, stop: int, *, hit: bool) -> None:
        """Start reads ahead of the bytes expected after the requested range."""
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
        """Raise the limit of reads ahead: after a hit, for new columns, or if all row groups seem to be read."""
        if hit:
            more = _HIT
        elif columns not in self._runs:
            more = 1
        else:
            more = 0 if self._given_up else _SCAN
        self._most = min(self._most + more, _AHEAD_READS)
        self._runs[columns] = None

    def _forget(self) -> None:
        """Give up reads ahead that were not requested during many other reads."""
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


class _Column(Protocol):
    data_page_offset: int
    dictionary_page_offset: int | None
    total_compressed_size: int


class _Group(Protocol):
    num_columns: int

    def column(self, number: int, /) -> _Column: ...


class _Metadata(Protocol):
    num_row_groups: int

    def row_group(self, number: int, /) -> _Group: ...


class Layout:
    """The column chunks of each row group, in byte order; read from the metadata when needed."""

    def __init__(self, metadata: _Metadata) -> None:
        """Take the metadata of a file's footer (``pyarrow.parquet.FileMetaData``)."""
        self._metadata = metadata
        self._count = metadata.num_row_groups
        self._chunks: dict[int, list[tuple[int, int, int]]] = {}
        self._runs: dict[tuple[int, int, int], tuple[int, int]] = {}
        # Only of the first column: a footer of 1,000 columns and 1,000 row groups has a million column chunks.
        groups = [metadata.row_group(number) for number in range(self._count)] if self._count > 1 else []
        self._starts = [_range(group, 0)[0] for group in groups if group.num_columns]

    def place(self, start: int, stop: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the row group and the columns whose consecutive chunks are ``[start, stop)``.

        None if the range is anything else, or if the file has only one row group.
        """
        at = bisect_right(self._starts, start) - 1
        held = [each for each in self._ranges(at) if start <= each[0] and each[1] <= stop] if at >= 0 else []
        if not held or (held[0][0], held[-1][1]) != (start, stop):
            return None
        return at, tuple(column for *_, column in held)

    def ahead(self, first: int, runs: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
        """Yield the byte range of each run of columns (as ``place`` returns them), from row group ``first`` on."""
        for number in range(max(0, first), self._count):
            for columns in runs:
                start, stop = self._run(number, columns)
                # A row group may store its columns in a different order.
                if start < stop:
                    yield start, stop

    def _run(self, number: int, columns: tuple[int, ...]) -> tuple[int, int]:
        key = number, columns[0], columns[-1]
        found = self._runs.get(key)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._runs[key] = _range(group, columns[0])[0], _range(group, columns[-1])[1]
        return found

    def _ranges(self, number: int) -> list[tuple[int, int, int]]:
        found = self._chunks.get(number)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._chunks[number] = sorted(_range(group, column) for column in range(group.num_columns))
        return found


def _range(group: _Group, number: int) -> tuple[int, int, int]:
    column = group.column(number)
    start = column.data_page_offset
    if column.dictionary_page_offset:  # None; some writers store 0
        start = min(start, column.dictionary_page_offset)
    return start, start + column.total_compressed_size, number
