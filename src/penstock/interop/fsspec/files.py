"""Bytes of a file system: reads of one slice or of thousands, and files that are opened, written, copied, transferred.

Slices become spans, and nearby spans share a request. Files are Penstock's own, but for two wrappers:
``TransactionFile`` for transactions, ``Compressed`` for compression.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fsspec.caching import caches
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.transaction import Transaction
from fsspec.utils import isfilelike

from penstock.copies import Copied, copy_object
from penstock.engine.buffer import flat
from penstock.errors import AlreadyExists, NotFound, PenstockError, Truncated, Unsupported, Unusable
from penstock.interop.awaiting import read, read_each, stat, stat_each
from penstock.source import open_source
from penstock.values import Span, as_folder, span_in, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import IO

    from fsspec.callbacks import Callback

    from penstock.source import Reader, Source, Writer
    from penstock.values import ObjectMeta

    Outcome = bytes | PenstockError
    Slice = tuple[str, int | None, int | None]  # key, start, end


async def read_slice(source: Source, wanted: Slice) -> bytes:
    """Return ``object[start:end]``: one request.

    If the slice needs the object's size, a HEAD precedes it. If it ends beyond the object, a HEAD and a second read
    follow.
    """
    span = make_span(*wanted)
    if span is not None:
        if span.stop == span.start:
            return b""
        try:
            return await read(source, span)
        except Truncated:
            if span.stop is None:
                raise
    span = exact(await stat(source, wanted[0]), *wanted[1:])
    return await read(source, span) if span.stop != span.start else b""


def read_slice_here(source: Source, wanted: Slice) -> bytes:
    span = make_span(*wanted)
    if span is not None:
        if span.stop == span.start:
            return b""
        try:
            return source.read(span)
        except Truncated:
            if span.stop is None:
                raise
    span = exact(source.head(wanted[0]), *wanted[1:])
    return source.read(span) if span.stop != span.start else b""


async def read_slices(source: Source, wanted: Sequence[Slice], gap_bytes: int) -> list[Outcome]:
    """Read many slices in parallel; return the bytes or the error of each, in order.

    Nearby slices of an object share a request. An object costs a HEAD if one of its slices needs the size or ends
    beyond it.
    """
    spans = [make_span(*each) for each in wanted]
    results: list[Outcome] = [b""] * len(wanted)
    # All slices of an object whose size is needed are read in the version that has this size.
    sized = {key for (key, *_), span in zip(wanted, spans, strict=True) if span is None}
    quick = [(at, span) for at, span in enumerate(spans) if span and span.stop != span.start and span.key not in sized]
    await _read_nearby(source, quick, gap_bytes, results)
    sized |= {span.key for at, span in quick if isinstance(results[at], Truncated)}
    late = [at for at, (key, *_) in enumerate(wanted) if key in sized]
    if late:
        keys = [*dict.fromkeys(wanted[at][0] for at in late)]
        metas = dict(zip(keys, await stat_each(source, keys), strict=True))
        pinned: list[tuple[int, Span]] = []
        for at in late:
            key, start, end = wanted[at]
            meta = metas[key]
            if isinstance(meta, PenstockError):
                results[at] = meta
            else:
                span = exact(meta, start, end)
                results[at] = b""
                pinned += [(at, span)] if span.stop != span.start else []
        await _read_nearby(source, pinned, gap_bytes, results)
    return results


async def _read_nearby(
    source: Source, spans: Sequence[tuple[int, Span]], gap_bytes: int, results: list[Outcome]
) -> None:
    """Read spans, nearby ones in one request, and store each outcome in ``results`` at the span's position."""
    runs = [*merge_ranges([span for _, span in spans], gap_bytes)]
    found = await read_each(source, [run.span for run in runs])
    for run, outcome in zip(runs, found, strict=True):
        for member in run.members:
            at, span = spans[member]
            if isinstance(outcome, PenstockError) or len(run.members) == 1:
                results[at] = outcome
            else:
                start = span.start - run.span.start
                results[at] = outcome[start : start + (span.stop or 0) - span.start]


def check_lists(paths: object, starts: object, ends: object) -> tuple[list[int | None], list[int | None]]:
    """Return starts and ends for each path; as in fsspec, one number may stand for all."""
    if not isinstance(paths, list):
        message = f"paths must be a list, got {type(paths).__name__}"
        raise TypeError(message)
    each: list[list[int | None]] = []
    for name, given in (("starts", starts), ("ends", ends)):
        values = [given] * len(paths) if given is None or isinstance(given, int) else list(given)  # type: ignore[call-overload]
        if len(values) != len(paths):
            message = f"cat_ranges needs as many {name} as paths, got {len(values)} for {len(paths)}"
            raise ValueError(message)
        each.append(values)
    return each[0], each[1]


# Largest gap between two ranges that share a request: Arrow's ``hole_size_limit``.
GAP_BYTES = 8 << 10
# Largest request for several ranges: the ranges of a longer one would arrive one after another.
_RUN_BYTES = 4 << 20


class NearbyRanges(NamedTuple):
    """Nearby ranges of one object, read in one request."""

    span: Span
    # Positions of the ranges in the caller's sequence.
    members: list[int]


def make_span(key: str, start: int | None, end: int | None) -> Span | None:
    """Return ``object[start:end]`` as a span that can be read without the object's size; None if the size is needed.

    The span's ``stop`` may be beyond the object's end. An empty slice has ``stop`` equal to ``start``.
    """
    start = start or 0
    if end is None:
        return Span(key, start) if start <= 0 else None
    if start < 0 or end < 0:
        return None
    return Span(key, start, max(start, end))


def exact(meta: ObjectMeta, start: int | None, end: int | None) -> Span:
    first, stop, _ = slice(start, end).indices(meta.size)
    return span_in(meta, first, max(first, stop))


def merge_ranges(spans: Sequence[Span], gap_bytes: int) -> Iterator[NearbyRanges]:
    """Yield runs that contain every span once; spans of one object at most ``gap_bytes`` apart share a run.

    A span without a ``stop`` gets a separate run. A span that would make a run longer than 4 MiB begins a new one.
    """
    order = sorted(range(len(spans)), key=lambda at: (spans[at].stop is None, *spans[at][:2]))
    run: NearbyRanges | None = None
    for at in order:
        span = spans[at]
        if run is not None and (joined := _merge_spans(run.span, span, gap_bytes)) is not None:
            run.members.append(at)
            run = NearbyRanges(joined, run.members)
            continue
        if run is not None:
            yield run
        run = NearbyRanges(span, [at])
    if run is not None:
        yield run


def _merge_spans(run: Span, span: Span, gap_bytes: int) -> Span | None:
    if run.stop is None or span.stop is None or run.key != span.key or run.etag != span.etag:
        return None
    stop = max(run.stop, span.stop)
    if span.start - run.stop > gap_bytes or stop - run.start > _RUN_BYTES:
        return None
    return Span(run.key, run.start, stop, run.etag, run.whole or span.whole)


_PIECE_BYTES = 8 << 20
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 4 << 10, 64 << 20  # a file holds eight blocks


def block_bytes(cache_type: object, block_size: object, size: int) -> int | None:
    """Return the bytes of a read-ahead block, for an object of ``size`` bytes and fsspec's cache options.

    ``cache_type`` "none" gives 4 KiB, so that larger reads request exactly their bytes; "all" gives the whole object,
    up to 64 MiB. All other types give ``block_size`` to Penstock's own reader, which reads ahead during sequential
    reads; None means its default.
    """
    if cache_type not in caches:
        known = ", ".join(repr(each) for each in caches)
        raise Unusable(f"cache_type={cache_type!r}: fsspec has {known}")
    given = 0 if block_size in (None, "default") else whole(block_size, "block_size", 1)
    wanted = {"none": _LEAST_BLOCK_BYTES, "all": size}.get(str(cache_type), given)
    return max(_LEAST_BLOCK_BYTES, min(wanted, _MOST_BLOCK_BYTES)) if wanted else None


def open_to_read(
    place: Callable[[], tuple[Source, str]], cache_type: object, block_size: object, meta: ObjectMeta | None = None
) -> Reader:
    """Open the version of ``meta``, or the current one (a HEAD). The file can be pickled if ``place`` can."""
    # Raise for invalid options before the first request.
    block_bytes(cache_type, block_size, 0)
    source, key = place()
    meta = meta or source.head(key, sums=True)
    reader = source.open_read(key, meta, block_bytes=block_bytes(cache_type, block_size, meta.size))
    reader.anew = partial(open_to_read, place, cache_type, block_size, meta)
    return reader


def open_to_write(source: Source, key: str, mode: str, **written: Any) -> Writer:
    """Open a file that replaces (``wb``) or creates (``xb``: a HEAD; checked again on close) an object."""
    if mode not in ("wb", "xb"):
        raise Unusable(f"mode must be 'rb', 'wb' or 'xb', got {mode!r}", url=source.url(key))
    if mode == "xb" and source.stat_existing([key])[0] is not None:
        raise AlreadyExists("the object exists already", url=source.url(key))
    return source.open_write(key, create_only=mode == "xb", **written)


# Options that tune other file systems, and change no result: docs/fsspec.md has the reasons.
TUNING = frozenset(
    (
        *("batch_size", "block_size", "cache_options", "cache_type", "callback", "chunksize", "fill_cache"),
        *("max_concurrency", "refresh"),
    )
)
_WRITTEN = {
    "metadata": "metadata",
    "Metadata": "metadata",
    "content_type": "content_type",
    "ContentType": "content_type",
}


def check_options(options: Mapping[str, Any], url: str = "", *known: str) -> None:
    """Raise ``Unsupported`` for an option that would be lost; None, and options that only tune, are accepted."""
    lost = [name for name, value in options.items() if value is not None and name not in {*TUNING, *known}]
    if lost:
        advice = "leave it out, or write with the store's own client"
        raise Unsupported(f"Penstock's file system has no option {', '.join(lost)}: {advice}", url=url)


def attributes_of(options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return the options of a write that ``open_write`` takes: ``metadata`` and ``content_type``."""
    given = {name: value for name, value in options.items() if name in _WRITTEN and value is not None}
    found = {_WRITTEN[name]: value for name, value in given.items()}
    if len(found) < len(given):
        raise Unsupported(f"options given twice: {', '.join(given)}", url=url)
    check_options(options, url, *given)
    return found


def pipe(source: Source, key: str, value: object, *, create: bool, **written: Any) -> None:
    """Write an object: one request up to the part size; above it, or with ``create``, through ``open_write``."""
    data = memoryview(value).cast("B") if memoryview(value).nbytes else memoryview(b"")  # type: ignore[arg-type]
    if not create and len(data) <= source.options.write.part_bytes:
        source.put(key, data, **written)
        return
    with source.open_write(key, create_only=create, **written) as writer:
        writer.write(data)


def copy_entry(source: Source, key: str, target: Source, name: str) -> Copied | None:
    """Copy an object, server-side within a bucket; for a directory do nothing, since it is not an object."""
    try:
        return copy_object(source, key, target, name)
    except NotFound:
        _check_directory(source, key)
        return None


def upload(local: str, writer: Writer | TransactionFile, callback: Callback) -> None:
    with Path(local).open("rb") as reader, writer:
        callback.set_size(os.fstat(reader.fileno()).st_size)
        while piece := reader.read(_PIECE_BYTES):
            writer.write(piece)
            callback.relative_update(len(piece))


def download(source: Source, key: str, local: str | os.PathLike[str] | IO[bytes], callback: Callback) -> None:
    """Download an object to a local file, atomically, or into an open file; for a directory create a local one."""
    try:
        meta = source.head(key, sums=True)
    except NotFound:
        _check_directory(source, key)
        if not isfilelike(local):
            Path(local).mkdir(parents=True, exist_ok=True)  # type: ignore[arg-type]  # a path
        return
    callback.set_size(meta.size)
    with source.open_read(key, meta) as reader:
        if isfilelike(local):
            _pour(reader, local, callback)  # type: ignore[arg-type]
            return
        path = Path(local).absolute()  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        here, name = open_source(path)
        with here.open_write(name) as writer:
            _pour(reader, writer, callback)


def _pour(reader: Reader, writer: Writer | IO[bytes], callback: Callback) -> None:
    while piece := reader.read(_PIECE_BYTES):
        writer.write(piece)
        callback.relative_update(len(piece))


def _check_directory(source: Source, key: str) -> None:
    page = source.page(as_folder(key), delimiter="/")
    if not (page.entries or page.prefixes):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))


class Publication(Transaction):  # type: ignore[misc]  # fsspec ships no type information
    """A transaction that also ends if a file cannot be published; fsspec 2025.12 then left all later writes pending."""

    def complete(self, commit: bool = True) -> None:
        """Publish all files, or discard them; after a failure discard the remaining files."""
        system = self.fs
        try:
            super().complete(commit)
        finally:
            while self.files:
                with suppress(PenstockError):
                    self.files.popleft().discard()
            system._intrans = False  # noqa: SLF001  fsspec's name for it
            system._transaction = None  # noqa: SLF001  the same


class _Wrapper(io.BufferedIOBase):
    """A file over a writer, with its name and mode."""

    def __init__(self, writer: Writer | TransactionFile) -> None:
        super().__init__()
        self._writer = writer

    @property
    def name(self) -> str:
        return self._writer.name

    @property
    def mode(self) -> str:
        return self._writer.mode

    def _dealloc_warn(self, wrapper: object) -> None:
        self._writer._dealloc_warn(wrapper)  # noqa: SLF001  io's name for it


class TransactionFile(_Wrapper):
    """A file that is published by its file system's transaction, not when it is closed."""

    _writer: Writer

    def writable(self) -> bool:
        self._check_open()
        return True

    def tell(self) -> int:
        self._check_open()
        return self._writer.tell()

    def write(self, data: object, /) -> int:
        self._check_open()
        return self._writer.write(data)

    def commit(self) -> None:
        """Publish the object; raise ``Unusable`` if the file is still open, as wrappers may still hold bytes."""
        if not self.closed:
            self.discard()
            raise Unusable("not closed before its transaction ended: nothing is published", url=self.name)
        self._writer.close()

    def discard(self) -> None:
        self._writer.abort()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def close(self) -> None:
        """Close the file; discard it if an exception propagates, even if the transaction succeeds."""
        if not self.closed and self._unwinding() is not None:
            self.discard()
        super().close()

    def _unwinding(self) -> BaseException | None:
        return self._writer._unwinding()  # noqa: SLF001  for wrappers of a writer

    def _check_open(self) -> None:
        if self.closed:
            message = f"this file is closed, and is published when the transaction ends: {self.name}"
            raise ValueError(message)


def compressor(path: str, compression: str | None) -> str | None:
    """Return the name of a compression, or None; ``"infer"`` derives it from the path's suffix."""
    try:
        name: str | None = get_compression(path, compression)
    except ValueError:
        known = ", ".join(repr(each) for each in compr if each)
        raise Unusable(f"compression={compression!r}: fsspec has {known} here, and 'infer'") from None
    return name


class Compressed(_Wrapper):
    """A compressing writer that also closes its file; fsspec's compressors leave the file open.

    Leaving a ``with`` block by an exception, or dropping the last reference, publishes nothing, as with ``Writer``.
    """

    def __init__(self, file: Writer | TransactionFile, compression: str) -> None:
        super().__init__(file)
        self._into: IO[bytes] = compr[compression](file, mode="w")

    def writable(self) -> bool:
        return self._into.writable()

    def write(self, data: object, /) -> int:
        """Write ``data`` and return the number of bytes taken, before compression."""
        return self._into.write(flat(data))

    def tell(self) -> int:
        return self._into.tell()

    def close(self) -> None:
        """Finish the compressed data and publish the object; raise the errors of ``Writer.close``."""
        if not self.closed:
            try:
                self._into.close()
                self._writer.close()
            finally:
                super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        self._writer.__exit__(kind, error, trace)
        # The compressor writes its last bytes to the file, which is closed already.
        with suppress(Exception):
            self._into.close()
        super().close()

    def __del__(self) -> None:
        """Publish nothing: the underlying file is dropped as well, and cleans up."""
