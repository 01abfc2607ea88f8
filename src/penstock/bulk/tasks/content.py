"""Whether two objects have the same bytes: by an ETag that is made of them, else by reading both."""

from __future__ import annotations

from hashlib import md5
from itertools import zip_longest
from typing import TYPE_CHECKING

from penstock.bulk.compare import part_sizes, parts_tag
from penstock.bulk.selection import local
from penstock.bulk.tasks.copy import READERS, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from penstock.bulk.tasks.copy import Job
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["same_bytes", "same_digest"]


def same_bytes(job: Job, found: ObjectMeta) -> bool:
    """Say whether ``found``, of the same size at the destination, has the bytes of the job's object.

    One ETag of parts on both sides proves it, and so does one that a file's bytes make. Where ETags do not prove it (no
    MD5, parts of other sizes, encryption), both are read, up to the first piece that differs.
    """
    here, there = job.meta.etag.lower(), found.etag.lower()
    if parts_tag(here) and here == there:
        return True
    if local(job.source) != local(job.target) and same_digest(job, found):
        return True
    with _pieces(job.source, job.meta) as mine, _pieces(job.target, found) as its:
        return all(one == other for one, other in zip_longest(mine, its))


def same_digest(job: Job, found: ObjectMeta) -> bool:
    """Say whether a file's bytes make the ETag of the object on the other side: the file is read, the object is not."""
    source, meta, etag = (job.source, job.meta, found.etag) if local(job.source) else (job.target, found, job.meta.etag)
    store = job.target if local(job.source) else job.source
    number = parts_tag(etag.lower())
    sizes = part_sizes(meta.size, number, store.options.write.part_bytes) if number else [max(1, meta.size)]
    with _pieces(source, meta) as pieces:
        return etag.lower() in _tags(pieces, sizes, parts=bool(number))


def _tags(pieces: Iterable[bytes], sizes: list[int], *, parts: bool) -> set[str]:
    """Return the ETags that S3 gives to these bytes: their MD5, or of ``parts`` the MD5 of the MD5s of each size."""
    digests = [_Parts(size) for size in sizes]
    for piece in pieces:
        for digest in digests:
            digest.update(piece)
    return {digest.tag() if parts else digest.whole() for digest in digests}


class _Parts:
    """MD5s of parts of one size."""

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
        """Return the ETag of an upload in these parts; the last is shorter, or as long."""
        self._end()
        return f"{md5(b''.join(self._parts), usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def whole(self) -> str:
        """Return the MD5 of all, where there is one part."""
        return self._digest.hexdigest()

    def _end(self) -> None:
        self._parts.append(self._digest.digest())
        self._left, self._digest = self._part_bytes, md5(usedforsecurity=False)


def _pieces(source: Source, meta: ObjectMeta) -> AbstractContextManager[Iterator[bytes]]:
    return source.lookahead(spans(meta), READERS)
