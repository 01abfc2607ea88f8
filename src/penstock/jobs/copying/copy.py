"""Atomic copy of one object in bounded memory."""

from __future__ import annotations

from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from time import sleep
from typing import TYPE_CHECKING

from penstock.copies import PAUSE_S, check_distinct, check_same_version, one_object
from penstock.engine.contracts.driver import Attributes, Copy
from penstock.errors import Cancelled, Changed, ChecksumMismatch, NoSpace, Unsupported
from penstock.jobs import tasks
from penstock.jobs.trees.selection import local
from penstock.values import Checksum, ObjectMeta, Span, content_type_of, cut_spans, marked, span_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from threading import Event

    from penstock.source import Source, Writer

# Metadata key of the source's modification time in seconds since the epoch, named as in rclone and s3fs.
MTIME = "mtime"
# Up to this size, an object takes two requests: read and put.
_WHOLE_BYTES = 8 << 20
PIECE_BYTES = 8 << 20
_PART_BYTES = 16 << 20
_AHEAD_BYTES = 32 << 20
# Memory of one long object: 64 MiB in its writer, 32 MiB read ahead, and parts in between.
_STREAM_BYTES = 128 << 20
# Number of equal shares of options.read.ahead_bytes (256 MiB); one object uses one of them.
READERS = 8


@dataclass(frozen=True, slots=True)
class CopyJob:
    """Object as listed, and its destination."""

    source: Source
    meta: ObjectMeta
    target: Source
    to: str
    stamped: bool = False  # the copy gets the modification time of the source
    marked: bool = False  # the copy gets a mark of this write, which distinguishes it from the source


def cost_bytes(meta: ObjectMeta) -> int:
    """Return the maximum memory in bytes that copying an object takes."""
    return meta.size if meta.size <= _WHOLE_BYTES else _STREAM_BYTES


def silent_bytes(meta: ObjectMeta) -> int:
    """Return the bytes of an object that ``copy`` does not report: all of a small object, 0 of a large one."""
    return meta.size if meta.size <= _WHOLE_BYTES else 0


async def copy(job: CopyJob, moved: Callable[[int], None], stop: Event) -> None:
    """Copy one object: on the server within a bucket, in two requests if it is small, else in pieces.

    ``moved`` receives the bytes as they are copied, except ``silent_bytes``. Once ``stop`` is set, an object that is
    still being copied in pieces is not published; nor is one whose source changed after it was listed.
    """
    if job.source.root == job.target.root and not local(job.source) and job.source.supports(Copy):
        await _on_server(job)
        moved(job.meta.size - silent_bytes(job.meta))
    else:
        await _relay(job, moved if job.meta.size > _WHOLE_BYTES else _ignore_progress, stop)


async def move(job: CopyJob, moved: Callable[[int], None], stop: Event, *, there: bool = False) -> None:
    """Copy one object unless it is ``there`` already; delete the source once the copy is proven a separate object.

    A copy that cannot be distinguished from its source is written again after a pause, so that its modification time
    must differ; if that does not help, the source is kept.
    """
    if there and await delete_source(job, written=False):
        return
    await copy(job, moved, stop)
    if await delete_source(job):
        return
    await tasks.run_blocking(sleep, PAUSE_S)
    await copy(job, _ignore_progress, stop)
    if not await delete_source(job):
        raise one_object(job.source, job.meta.key, job.target, job.to)


async def delete_source(job: CopyJob, *, written: bool = True) -> bool:
    """Delete a copied source after a check that the copy is complete and the source unchanged: three requests.

    Returns False if the copy cannot be distinguished from the source. ``written``: the copy was written just now. The
    source is kept if the copy has a different size, if the source was written after the copy, or if both are one
    object.
    """
    found = await tasks.head(job.target, job.to)
    now = await tasks.head(job.source, job.meta.key)
    if not check_distinct(job.source, (job.meta, now), job.target, found, written=written):
        return False
    await tasks.delete(job.source, job.meta.key)
    return True


async def _on_server(job: CopyJob) -> None:
    if job.meta.size <= _WHOLE_BYTES:
        with suppress(Unsupported):
            await tasks.copy(job.source, job.meta, job.to)
            return
    await tasks.run_blocking(job.source.copy, job.meta.key, job.to, job.meta)


async def _relay(job: CopyJob, moved: Callable[[int], None], stop: Event) -> None:
    """Copy through this machine, with content type and user metadata."""
    size = job.meta.size
    small = size <= min(_WHOLE_BYTES, job.source.options.read.split_bytes)
    described = await _complete_metadata(job, pinned=not small)
    job = replace(job, meta=replace(job.meta, etag=described.etag))
    kind, metadata = described.content_type, _metadata(job, described.metadata)
    metadata = marked(metadata) if job.marked else metadata
    if small:
        data = await tasks.read(job.source, span_in(job.meta))
        await tasks.put(job.target, job.to, data, metadata=metadata, content_type=kind)
        return
    try:
        await tasks.run_blocking(_stream, job, Attributes(kind, metadata), described.checksum, moved, stop)
    except NoSpace as error:
        error.message += f"; the whole object takes {size}"
        raise


async def _complete_metadata(job: CopyJob, *, pinned: bool) -> ObjectMeta:
    """Return the object with its checksum and, if the destination stores them, content type and metadata.

    One request to a store; none for a small object that goes to a folder, because the response to its read has the
    checksum. With ``pinned`` it has a version, too, which a web server's index page does not name.
    """
    meta = job.meta
    if local(job.source):
        return meta if local(job.target) else replace(meta, content_type=meta.content_type or content_type_of(meta.key))
    sums = meta.size > _WHOLE_BYTES and meta.checksum is None and job.source.sums
    if not sums and (meta.etag or not pinned) and (local(job.target) or meta.content_type):
        return meta
    described = await tasks.head(job.source, meta.key, sums=sums)
    if (meta.etag or described.etag, meta.size) != (described.etag, described.size):
        raise Changed("the object was written to since it was listed: copy it again", url=job.source.url(meta.key))
    return described


def _metadata(job: CopyJob, kept: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metadata of the copy: a file gets the source's time; a store prefers the time in ``kept``."""
    modified = job.meta.modified
    if not job.stamped or modified is None:
        return kept
    own = {MTIME: f"{modified:.6f}"}
    return own if local(job.target) else {**own, **kept}


def _stream(
    job: CopyJob, said: Attributes, checksum: Checksum | None, moved: Callable[[int], None], stop: Event
) -> None:
    running = None if checksum is None else checksum.begin()
    with job.target.open_write(job.to, metadata=said.metadata, content_type=said.content_type) as writer:
        sizes = [*writer.cut(job.meta.size)]
        with closing(_copy_pieces(job, writer, sizes)) as pieces:
            for piece in pieces:
                if stop.is_set():
                    raise Cancelled("cancelled", url=writer.url)
                if running is not None:
                    running.update(piece)
                moved(len(piece))
        if running is not None and checksum is not None and not running.matches():
            message = f"the bytes read do not match the store's {checksum.name}: copy it again"
            raise ChecksumMismatch(message, url=job.source.url(job.meta.key))
        # A store pins every read to the listed version; a file may have changed in the meantime.
        if local(job.source):
            check_same_version(job.source, job.meta, job.source.head(job.meta.key))


def _copy_pieces(job: CopyJob, writer: Writer, sizes: Sequence[int]) -> Generator[bytes | memoryview]:
    """Copy an object piece by piece and yield each piece in order; its memory is reused for later pieces.

    An object of several parts of usual sizes is read directly into the writer's buffers, which are reused, without a
    copy in memory. Larger parts would take too much memory at once.
    """
    if not len(sizes) > 1 or max(sizes) > _PART_BYTES:
        with job.source.lookahead(cut_spans(job.meta, PIECE_BYTES), READERS) as pieces:
            for piece in pieces:
                writer.write(piece)
                yield piece
        return
    filling: deque[tuple[bytearray, int]] = deque()  # parts and their end offsets in the object
    with closing(job.source.scatter(_places(job.meta, writer, sizes, filling), _AHEAD_BYTES)) as filled:
        for span in filled:
            stop, (part, end) = span.stop or 0, filling[0]
            with memoryview(part)[len(part) - (end - span.start) : len(part) - (end - stop)] as moved:
                yield moved
            if stop == end:
                writer.give(filling.popleft()[0])


def _places(
    meta: ObjectMeta, writer: Writer, sizes: Sequence[int], filling: deque[tuple[bytearray, int]]
) -> Iterator[tuple[Span, memoryview]]:
    """Yield the spans of an object with the buffer to read each into; add each part to ``filling``."""
    start = 0
    for size in sizes:
        buffer = writer.lend(size)
        filling.append((buffer, start + size))
        for at in range(0, size, PIECE_BYTES):
            stop = min(at + PIECE_BYTES, size)
            yield Span(meta.key, start + at, start + stop, meta.etag), memoryview(buffer)[at:stop]
        start += size


def _ignore_progress(_moved_bytes: int) -> None:
    """Count nothing."""
