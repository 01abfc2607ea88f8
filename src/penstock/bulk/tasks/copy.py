"""Copies one object, atomically and in bounded memory."""

from __future__ import annotations

from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bulk.selection import local
from penstock.bulk.tasks import steps
from penstock.errors import Cancelled, Changed, Damaged, NoSpace, Unsupported
from penstock.protocols.driver import Attributes, Copy
from penstock.values import Span, content_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from threading import Event

    from penstock.source import Source, Writer
    from penstock.values import ObjectMeta

__all__ = ["MTIME", "READERS", "Job", "copy", "cost_bytes", "delete_source", "silent_bytes", "spans"]

MTIME = "mtime"  # metadata: when the source was changed, in seconds since the epoch; rclone's and s3fs's name for it
_WHOLE_BYTES = 8 << 20  # up to here an object is two requests: read, put
_PIECE_BYTES = 8 << 20
_PART_BYTES = 16 << 20
_AHEAD_BYTES = 32 << 20
_STREAM_BYTES = 128 << 20  # held by one long object: 64 MiB by its writer, 32 MiB read ahead, parts in between
READERS = 8  # of one object; share options.read.ahead_bytes, 256 MiB, as that many


@dataclass(frozen=True, slots=True)
class Job:
    """One object, as it was listed, and where it goes; with the time of its last change, where it is ``stamped``."""

    source: Source
    meta: ObjectMeta
    target: Source
    to: str
    stamped: bool = False


def cost_bytes(meta: ObjectMeta) -> int:
    """Return the most memory that copying an object takes."""
    return meta.size if meta.size <= _WHOLE_BYTES else _STREAM_BYTES


def silent_bytes(meta: ObjectMeta) -> int:
    """Return the bytes of an object whose copy tells of none as they go: it is over at once."""
    return meta.size if meta.size <= _WHOLE_BYTES else 0


async def copy(job: Job, moved: Callable[[int], None], stop: Event) -> None:
    """Copy one object: on the server within a bucket, in two requests when it is small, else in pieces.

    ``moved`` is told the bytes as they go, but for ``silent_bytes``. Once ``stop`` is set nothing is published that
    still comes in pieces.

    Raises:
        Changed: The source is no longer what was listed; nothing was published then.
        NoSpace: The disk is full, or a quota used up; the text says how much the object takes.

    """
    if job.source.root == job.target.root and not local(job.source) and job.source.supports(Copy):
        await _on_server(job)
        moved(job.meta.size - silent_bytes(job.meta))
    else:
        await _relay(job, moved if job.meta.size > _WHOLE_BYTES else _nothing, stop)


async def delete_source(job: Job) -> None:
    """Delete a copied source after a check that the copy is complete and the source unchanged: three requests.

    Raises:
        Damaged: The copy has another size. The source stands.
        Changed: The source was written since. It stands, and the copy is of its former version.

    """
    found = await steps.head(job.target, job.to)
    if found.size != job.meta.size:
        message = f"{job.meta.size} bytes were copied, {found.size} are there; the source was not deleted"
        raise Damaged(message, url=job.target.url(job.to))
    _check_unchanged(job, await steps.head(job.source, job.meta.key))
    await steps.delete(job.source, job.meta.key)


async def _on_server(job: Job) -> None:
    if job.meta.size <= _WHOLE_BYTES:
        with suppress(Unsupported):
            await steps.copy(job.source, job.meta, job.to)
            return
    await steps.blocking(job.source.copy, job.meta.key, job.to, job.meta)


async def _relay(job: Job, moved: Callable[[int], None], stop: Event) -> None:
    """Copy through this machine, with content type and user metadata."""
    size = job.meta.size
    kind, kept = await _described(job)
    metadata = _metadata(job, kept)
    if size <= min(_WHOLE_BYTES, job.source.options.read.split_bytes):
        data = await steps.read(job.source, Span(job.meta.key, 0, size, job.meta.etag, whole=True))
        await steps.put(job.target, job.to, data, metadata=metadata, content_type=kind)
        return
    try:
        await steps.blocking(_stream, job, Attributes(kind, metadata), moved, stop)
    except NoSpace as error:
        error.message += f"; the whole object takes {size}"
        raise


async def _described(job: Job) -> tuple[str, Mapping[str, str]]:
    """Return content type and metadata where the destination can hold them: one request, of a store."""
    meta = job.meta
    if local(job.target) or meta.content_type:
        return meta.content_type, meta.metadata
    if local(job.source):
        return content_type_of(meta.key), meta.metadata
    described = await steps.head(job.source, meta.key)
    if described.etag != meta.etag:
        raise Changed("it was written to since it was listed: copy it again", url=job.source.url(meta.key))
    return described.content_type, described.metadata


def _metadata(job: Job, kept: Mapping[str, str]) -> Mapping[str, str]:
    """Return the copy's metadata. A file gets the source's time; a store keeps one that the source came with."""
    modified = job.meta.modified
    if not job.stamped or modified is None:
        return kept
    own = {MTIME: f"{modified:.6f}"}
    return own if local(job.target) else {**own, **kept}


def _stream(job: Job, said: Attributes, moved: Callable[[int], None], stop: Event) -> None:
    target = job.target.open_write(job.to, metadata=said.metadata, content_type=said.content_type)
    with target as writer:
        sizes = [*writer.cut(job.meta.size)]
        with closing(_pieces(job, writer, sizes)) as pieces:
            for size in pieces:
                if stop.is_set():
                    raise Cancelled("called off", url=writer.url)
                moved(size)
        if local(job.source):  # a store holds every read to the version that was listed; a file may yet have moved on
            _check_unchanged(job, job.source.head(job.meta.key))


def _pieces(job: Job, writer: Writer, sizes: Sequence[int]) -> Generator[int]:
    """Move an object piece by piece, and yield the bytes of each.

    Where it takes several parts of usual sizes it is read into the writer's own memory, which is used again and again:
    nothing is copied on the way. Larger parts would be too much to be held beside each other.
    """
    if not len(sizes) > 1 or max(sizes) > _PART_BYTES:
        with job.source.lookahead(spans(job.meta), READERS) as pieces:
            for piece in pieces:
                writer.write(piece)
                yield len(piece)
        return
    filling: deque[tuple[bytearray, int]] = deque()  # parts, and where each ends in the object
    with closing(job.source.scatter(_places(job.meta, writer, sizes, filling), _AHEAD_BYTES)) as filled:
        for span in filled:
            stop = span.stop or 0
            yield stop - span.start
            if stop == filling[0][1]:
                writer.give(filling.popleft()[0])


def _places(
    meta: ObjectMeta, writer: Writer, sizes: Sequence[int], filling: deque[tuple[bytearray, int]]
) -> Iterator[tuple[Span, memoryview]]:
    """Yield the pieces of an object with the memory that each is to be read into; adds each part to ``filling``."""
    start = 0
    for size in sizes:
        buffer = writer.lend(size)
        filling.append((buffer, start + size))
        for at in range(0, size, _PIECE_BYTES):
            stop = min(at + _PIECE_BYTES, size)
            yield Span(meta.key, start + at, start + stop, meta.etag), memoryview(buffer)[at:stop]
        start += size


def _nothing(_moved_bytes: int) -> None:
    """Count nothing."""


def spans(meta: ObjectMeta) -> Iterator[Span]:
    """Yield the pieces that an object is read in."""
    for start in range(0, meta.size, _PIECE_BYTES):
        yield Span(meta.key, start, min(start + _PIECE_BYTES, meta.size), meta.etag)


def _check_unchanged(job: Job, now: ObjectMeta) -> None:
    if (now.size, now.etag) != (job.meta.size, job.meta.etag):
        raise Changed("it was written to while it was copied: copy it again", url=job.source.url(job.meta.key))
