"""Whether what is at a destination is the object that would be copied there, as far as stores and files can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.bulk.compare import content_tag, same_time
from penstock.bulk.selection import local
from penstock.bulk.tasks import steps
from penstock.bulk.tasks.content import same_bytes, same_digest
from penstock.bulk.tasks.copy import MTIME
from penstock.errors import NotFound

if TYPE_CHECKING:
    from penstock.bulk.tasks.copy import Job
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["is_proven", "is_there"]


async def is_there(job: Job, *, surely: bool) -> bool:
    """Say whether what is at the destination is this object: one request.

    Its size must be the same; and its ETag, where both stores made it of the content. Else its time must not be before
    the source's, or, ``surely``, files are read for their MD5, and what cannot be compared is not there.
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
    """Say whether ``found``, of the same size at the destination, is surely this object.

    Unless ``by_time`` allows less, contents are compared (``tasks.content``). Else a file is read for the MD5 that an
    object has; where a store has none, the times decide that the writer of either object kept with it
    (``copy.MTIME``): a HEAD of each that lies in a store.
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
    # When a store wrote an object says nothing of what it was made of, but for what a file was made of.
    kept = [found.modified] if local(job.target) else await _kept(job.target, found)
    return any(same_time(one, other) for one in made for other in kept)


async def _kept(source: Source, meta: ObjectMeta) -> list[float]:
    """Return the time of change of what an object was made of, where its writer kept it."""
    if local(source):
        return []
    try:
        return [float((await steps.head(source, meta.key)).metadata.get(MTIME, ""))]
    except ValueError:
        return []
