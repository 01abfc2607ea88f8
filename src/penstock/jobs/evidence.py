"""Evidence from stores and files that a destination already has the object that would be copied there."""

from __future__ import annotations

from hashlib import md5
from itertools import zip_longest
from typing import TYPE_CHECKING

from penstock.errors import NotFound
from penstock.jobs import steps
from penstock.jobs.compare import content_tag, part_sizes, parts_tag, same_time
from penstock.jobs.copy import MTIME, READERS, spans
from penstock.jobs.selection import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from penstock.jobs.copy import Job
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["is_proven", "is_there", "same_bytes", "same_digest"]


async def is_there(job: Job, *, surely: bool) -> bool:
    """Return whether the destination already has this object: one request.

    The sizes must be equal, and so must the ETags if both are MD5s of the content. Otherwise the destination must not
    be older than the source. With ``surely``, files are read instead of comparing times, and an object that cannot be
    compared counts as missing.
    """
    try:
        found = await steps.head(job.target, job.to)
    except NotFound:
        return False
    if found.size != job.meta.size:
        return False
    here, there = content_tag(job.meta.etag), content_tag(found.etag)
    if here and there:
        return here == there
    if surely and local(job.source) and local(job.target):
        return await steps.blocking(same_bytes, job, found)
    if surely:
        return bool(here or there) and await steps.blocking(same_digest, job, found)
    return found.modified is not None and job.meta.modified is not None and found.modified >= job.meta.modified


async def is_proven(job: Job, found: ObjectMeta, *, by_time: bool) -> bool:
    """Return whether ``found``, of the same size at the destination, is proven to be this object.

    Without ``by_time``, contents are compared (``same_bytes``). With it, two MD5s as ETags decide, or a file is read
    and compared with the MD5 of an object. Without MD5s, the modification times decide that the writers stored with
    the objects (``copy.MTIME``), which takes a HEAD of each object in a store.
    """
    if not by_time:
        return await steps.blocking(same_bytes, job, found)
    here, there = content_tag(job.meta.etag), content_tag(found.etag)
    if here and there:
        return here == there
    if (local(job.source) and there) or (local(job.target) and here):
        return await steps.blocking(same_digest, job, found)
    if found.modified is None or job.meta.modified is None:
        return False
    made = [job.meta.modified, *await _kept(job.source, job.meta)]
    # A store's modification time says when an object was written, not when its source was changed; a file has the time
    # of its source.
    kept = [found.modified] if local(job.target) else await _kept(job.target, found)
    return any(same_time(one, other) for one in made for other in kept)


async def _kept(source: Source, meta: ObjectMeta) -> list[float]:
    """Return the modification time of an object's source, if its writer stored it; else an empty list."""
    if local(source):
        return []
    try:
        return [float((await steps.head(source, meta.key)).metadata.get(MTIME, ""))]
    except ValueError:
        return []


def same_bytes(job: Job, found: ObjectMeta) -> bool:
    """Return whether ``found``, of the same size at the destination, has the bytes of the job's object.

    Equal multipart ETags on both sides prove it, and so does an ETag that the bytes of a file produce. If ETags do not
    prove it (no MD5, other part sizes, encryption), both are read up to the first piece that differs.
    """
    here, there = job.meta.etag.lower(), found.etag.lower()
    if parts_tag(here) and here == there:
        return True
    if local(job.source) != local(job.target) and same_digest(job, found):
        return True
    with _pieces(job.source, job.meta) as mine, _pieces(job.target, found) as its:
        return all(one == other for one, other in zip_longest(mine, its))


def same_digest(job: Job, found: ObjectMeta) -> bool:
    """Return whether a file's bytes produce the ETag of the object on the other side; only the file is read."""
    source, meta, etag = (job.source, job.meta, found.etag) if local(job.source) else (job.target, found, job.meta.etag)
    store = job.target if local(job.source) else job.source
    number = parts_tag(etag.lower())
    sizes = part_sizes(meta.size, number, store.options.write.part_bytes) if number else [max(1, meta.size)]
    with _pieces(source, meta) as pieces:
        return etag.lower() in _tags(pieces, sizes, parts=bool(number))


def _tags(pieces: Iterable[bytes], sizes: list[int], *, parts: bool) -> set[str]:
    """Return the ETags that S3 gives to these bytes: their MD5 or, with ``parts``, a multipart ETag per part size."""
    digests = [_Parts(size) for size in sizes]
    for piece in pieces:
        for digest in digests:
            digest.update(piece)
    return {digest.tag() if parts else digest.whole() for digest in digests}


class _Parts:
    """MD5s of parts of equal size."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._left = part_bytes
        self._digest = md5(usedforsecurity=False)
        self._parts: list[bytes] = []

    def update(self, piece: bytes) -> None:
        """Add bytes."""
        view = memoryview(piece)
        while view:
            if not self._left:
                self._end()
            taken, view = view[: self._left], view[self._left :]
            self._digest.update(taken)
            self._left -= len(taken)

    def tag(self) -> str:
        """Return the ETag of an upload in these parts; the last part may be shorter."""
        self._end()
        return f"{md5(b''.join(self._parts), usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def whole(self) -> str:
        """Return the MD5 of all bytes, if there is only one part."""
        return self._digest.hexdigest()

    def _end(self) -> None:
        self._parts.append(self._digest.digest())
        self._left, self._digest = self._part_bytes, md5(usedforsecurity=False)


def _pieces(source: Source, meta: ObjectMeta) -> AbstractContextManager[Iterator[bytes]]:
    return source.lookahead(spans(meta), READERS)
