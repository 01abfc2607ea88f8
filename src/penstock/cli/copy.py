"""Copies one object, atomically and in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.cli.selection import local
from penstock.errors import Cancelled, Changed, Damaged, NoSpace, NotFound
from penstock.protocols.driver import Copy
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Job", "copy", "cost_bytes", "delete_source", "is_there"]

_WHOLE_BYTES = 8 << 20  # up to here an object is two requests: read, put
_PIECE_BYTES = 8 << 20
_STREAM_BYTES = 128 << 20  # held by one long object: 64 MiB by its writer, 32 MiB read ahead, pieces in between
_READERS = 8  # share options.read.ahead_bytes, 256 MiB, as that many
_MD5_HEX = 32


@dataclass(frozen=True, slots=True)
class Job:
    """One object, as it was listed, and where it goes."""

    source: Source
    meta: ObjectMeta
    target: Source
    to: str


def cost_bytes(meta: ObjectMeta) -> int:
    """Return the most memory that copying an object takes."""
    return meta.size if meta.size <= _WHOLE_BYTES else _STREAM_BYTES


def copy(job: Job, moved: Callable[[int], None], stop: Event) -> None:
    """Copy one object: on the server within a bucket, in two requests when it is small, else in pieces.

    ``moved`` is told the bytes as they go. Once ``stop`` is set nothing is published that still comes in pieces.

    Raises:
        Changed: The source is no longer what was listed; nothing was published then.
        NoSpace: The disk is full, or a quota used up; the text says how much the object takes.

    """
    size = job.meta.size
    if job.source.root == job.target.root and not local(job.source) and job.source.supports(Copy):
        job.source.copy(job.meta.key, job.to, job.meta)
        moved(size)
    else:
        _relay(job, moved, stop)


def is_there(job: Job, *, surely: bool) -> bool:
    """Say whether what is at the destination is this object: one request.

    Its size must be the same; and its ETag, where both stores made it of the content. Else its time must not be before
    the source's, or, ``surely``, files are read for their MD5, and what cannot be compared is not there.
    """
    try:
        found = job.target.head(job.to)
    except NotFound:
        return False
    if found.size != job.meta.size:
        return False
    if _of_content(found.etag) and _of_content(job.meta.etag):
        return found.etag == job.meta.etag
    if surely:
        content = _content(job.source, job.meta)
        return content != "" and content == _content(job.target, found)
    return found.modified is not None and job.meta.modified is not None and found.modified >= job.meta.modified


def delete_source(job: Job) -> None:
    """Delete a copied source after a check that the copy is complete and the source unchanged: three requests.

    Raises:
        Damaged: The copy has another size. The source stands.
        Changed: The source was written since. It stands, and the copy is of its former version.

    """
    found = job.target.head(job.to)
    if found.size != job.meta.size:
        message = f"{job.meta.size} bytes were copied, {found.size} are there; the source was not deleted"
        raise Damaged(message, url=job.target.url(job.to))
    _unchanged(job)
    job.source.delete([job.meta.key])


def _relay(job: Job, moved: Callable[[int], None], stop: Event) -> None:
    """Copy through this machine, with content type and user metadata."""
    size, described = job.meta.size, _with_metadata(job)
    if size <= _WHOLE_BYTES:
        data = job.source.read(Span(job.meta.key, 0, size, job.meta.etag, whole=True))
        job.target.put(job.to, data, metadata=described.metadata, content_type=described.content_type)
        moved(size)
        return
    try:
        _stream(job, described, moved, stop)
    except NoSpace as error:
        error.message += f"; the whole object takes {size}"
        raise


def _with_metadata(job: Job) -> ObjectMeta:
    """Return the object with its metadata where the destination can hold it: one request."""
    if local(job.target) or job.meta.content_type:
        return job.meta
    described = job.source.head(job.meta.key)
    if described.etag != job.meta.etag:
        raise Changed("it was written to since it was listed: copy it again", url=job.source.url(job.meta.key))
    return described


def _stream(job: Job, described: ObjectMeta, moved: Callable[[int], None], stop: Event) -> None:
    target = job.target.open_write(job.to, metadata=described.metadata, content_type=described.content_type)
    with job.source.lookahead(_spans(job.meta), _READERS) as pieces, target as writer:
        for piece in pieces:
            if stop.is_set():
                raise Cancelled("called off", url=writer.url)
            writer.write(piece)
            moved(len(piece))
        if local(job.source):  # a store holds every read to the version that was listed; a file may yet have moved on
            _unchanged(job)


def _spans(meta: ObjectMeta) -> Iterator[Span]:
    for start in range(0, meta.size, _PIECE_BYTES):
        yield Span(meta.key, start, min(start + _PIECE_BYTES, meta.size), meta.etag)


def _unchanged(job: Job) -> None:
    now = job.source.head(job.meta.key)
    if (now.size, now.etag) != (job.meta.size, job.meta.etag):
        raise Changed("it was written to while it was copied: copy it again", url=job.source.url(job.meta.key))


def _content(source: Source, meta: ObjectMeta) -> str:
    """Return an object's MD5, for which a file is read; empty where the store does not tell it."""
    if _of_content(meta.etag) or not local(source):
        return meta.etag if _of_content(meta.etag) else ""
    digest = md5(usedforsecurity=False)
    with source.lookahead(_spans(meta), _READERS) as pieces:
        for piece in pieces:
            digest.update(piece)
    return digest.hexdigest()


def _of_content(etag: str) -> bool:
    """Say whether an ETag is an MD5; those of uploads in parts and of files are not, and tell nothing elsewhere."""
    return len(etag) == _MD5_HEX and etag.isalnum()
