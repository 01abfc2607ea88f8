"""Evidence that a destination already has an object: from two listings, without requests, or from contents and times.

``verdict`` decides by listings; it computes only. Where it is unsure, requests decide.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from hashlib import md5
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.errors import NotFound
from penstock.jobs import tasks
from penstock.jobs.copying.copy import MTIME, PIECE_BYTES, READERS, CopyJob
from penstock.jobs.trees.selection import encode_key, local
from penstock.values import cut_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobs.trees.plan import CopyStep
    from penstock.source import Source
    from penstock.values import ObjectMeta

# Maximum clock error in seconds: S3, GCS, OSS and Azure refuse signatures of a clock that is further off.
SKEW_S = 900.0

_MD5_HEX = 32
_MIB = 1 << 20
# Part sizes of common tools, in MiB: rclone 5 (S3's minimum), boto3 and aws 8, s3cmd 15, Penstock 16, s5cmd 50.
_PART_BYTES = tuple(mib * _MIB for mib in (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512))


def content_tag(etag: str) -> str:
    """Return the MD5 that an ETag consists of; empty for other ETags: of multipart uploads, files and some stores."""
    return etag.lower() if len(etag) == _MD5_HEX and etag.isalnum() else ""


def parts_tag(etag: str) -> int:
    """Return the number of parts in an ETag of S3's form ``MD5-number``; 0 for any other form."""
    digest, _, number = etag.partition("-")
    return int(number) if content_tag(digest) and number.isdecimal() else 0


def part_sizes(size: int, number: int, own_bytes: int) -> list[int]:
    """Return the usual part sizes, and ``own_bytes``, that split ``size`` bytes into ``number`` parts."""
    usual = sorted({own_bytes, *_PART_BYTES})
    return [each for each in usual if -(-size // each) == number]


def same_time(one: float, other: float) -> bool:
    """Return whether two modification times are equal, after a store, a file or a text kept six decimals of them."""
    return abs(one - other) < 2e-6  # noqa: PLR2004  floats of today's timestamps are 0.24 microseconds apart


class EvidenceRule(NamedTuple):
    """Evidence that ``verdict`` accepts."""

    checksum: bool  # compare contents, never times
    one_clock: bool  # both sides take their times from the same clock: one server, or this machine
    kept: bool  # one side is this machine, where files get the modification times of their sources


def verdict(here: ObjectMeta, there: ObjectMeta, rule: EvidenceRule) -> Literal["same", "other", "unsure"]:
    """Compare an object with the one at its destination.

    The first rule that applies decides; times do not count if the sizes differ:

    1. Different sizes: different objects.
    2. Equal MD5s as ETags: the same content. With ``rule.checksum``, different MD5s: different objects.
    3. Without ``rule.checksum``: the same object if times are kept and equal, or if the destination is newer than the
       source; with two clocks, newer by at least ``SKEW_S``.
    4. Anything else is unsure: contents decide, or modification times that were stored as metadata.
    """
    if here.size != there.size:
        return "other"
    mine, its = content_tag(here.etag), content_tag(there.etag)
    if mine and its and mine == its:
        return "same"
    if rule.checksum:
        return "other" if mine and its else "unsure"
    if here.modified is None or there.modified is None:
        return "unsure"
    if rule.kept and same_time(here.modified, there.modified):
        return "same"
    margin_s = 0.0 if rule.one_clock else SKEW_S
    return "same" if there.modified - here.modified >= margin_s else "unsure"


def pair_steps(
    steps: Iterable[CopyStep], existing: Iterable[ObjectMeta]
) -> Iterator[tuple[CopyStep | None, ObjectMeta | None]]:
    """Yield steps paired with existing objects of the same key, or None; both inputs are sorted by key in UTF-8."""
    here, there = iter(steps), iter(existing)
    step, meta = next(here, None), next(there, None)
    while step is not None or meta is not None:
        mine = None if step is None else encode_key(step.to)
        its = None if meta is None else encode_key(meta.key)
        takes = mine is not None and (its is None or mine <= its)
        matches = its is not None and (mine is None or its <= mine)
        yield (step if takes else None), (meta if matches else None)
        step = next(here, None) if takes else step
        meta = next(there, None) if matches else meta


async def is_there(job: CopyJob, *, surely: bool) -> bool:
    """Return whether the destination already has this object: one request.

    The sizes must be equal, and so must the ETags if both are MD5s of the content. Otherwise the destination must have
    been written after the source was last changed, without doubt about clocks; or a file is read and compared. With
    ``surely``, times do not count. An object that cannot be compared counts as missing.
    """
    try:
        found = await tasks.head(job.target, job.to)
    except NotFound:
        return False
    if found.size != job.meta.size:
        return False
    here, there = content_tag(job.meta.etag), content_tag(found.etag)
    if here and there:
        return here == there
    return await _is_same(job, found, surely=surely)


async def _is_same(job: CopyJob, found: ObjectMeta, *, surely: bool) -> bool:
    if not surely and is_later(job.source, job.meta, job.target, found):
        return True
    if local(job.source) and local(job.target):
        return await tasks.run_blocking(same_bytes, job, found)
    if surely or local(job.source) or local(job.target):
        tags = job.meta.etag, found.etag
        known = any(map(content_tag, tags)) or (not surely and any(parts_tag(each.lower()) for each in tags))
        return known and await tasks.run_blocking(same_digest, job, found)
    return parts_tag(found.etag.lower()) > 0 and found.etag.lower() == job.meta.etag.lower()


def is_later(source: Source, meta: ObjectMeta, target: Source, found: ObjectMeta) -> bool:
    """Return whether the target's object was certainly written after the source's was last changed."""
    if found.modified is None or meta.modified is None:
        return False
    changed = meta.modified
    if local(source):
        # A file that was moved here is as old as it was there; its status has changed now.
        with suppress(OSError):
            changed = max(changed, Path(f"/{meta.key}").stat().st_ctime)
    sides = [(each.root.partition(":")[0], each.place) for each in (source, target)]
    return found.modified - changed > (0.0 if sides[0] == sides[1] else SKEW_S)


async def is_proven(job: CopyJob, found: ObjectMeta, *, by_time: bool) -> bool:
    """Return whether ``found``, of the same size at the destination, is proven to be this object.

    Without ``by_time``, contents are compared (``same_bytes``). With it, two MD5s as ETags decide, or a file is read
    and compared with the MD5 of an object. Without MD5s, the modification times decide that the writers stored with
    the objects (``copy.MTIME``), which takes a HEAD of each object in a store.
    """
    if not by_time:
        return await tasks.run_blocking(same_bytes, job, found)
    here, there = content_tag(job.meta.etag), content_tag(found.etag)
    if here and there:
        return here == there
    if (local(job.source) and there) or (local(job.target) and here):
        return await tasks.run_blocking(same_digest, job, found)
    if found.modified is None or job.meta.modified is None:
        return False
    made = [job.meta.modified, *await _read_source_mtime(job.source, job.meta)]
    # A store's modification time says when an object was written, not when its source was changed; a file has the time
    # of its source.
    kept = [found.modified] if local(job.target) else await _read_source_mtime(job.target, found)
    return any(same_time(one, other) for one in made for other in kept)


async def _read_source_mtime(source: Source, meta: ObjectMeta) -> list[float]:
    """Return the modification time of an object's source, if its writer stored it; else an empty list."""
    if local(source):
        return []
    try:
        return [float((await tasks.head(source, meta.key)).metadata.get(MTIME, ""))]
    except ValueError:
        return []


def same_bytes(job: CopyJob, found: ObjectMeta) -> bool:
    """Return whether ``found``, of the same size at the destination, has the bytes of the job's object.

    Equal multipart ETags on both sides prove it, and so does an ETag that the bytes of a file produce. If ETags do not
    prove it (no MD5, other part sizes, encryption), both are read up to the first piece that differs.
    """
    here, there = job.meta.etag.lower(), found.etag.lower()
    if parts_tag(here) and here == there:
        return True
    if local(job.source) != local(job.target) and same_digest(job, found):
        return True
    with _read_pieces(job.source, job.meta) as mine, _read_pieces(job.target, found) as its:
        return all(one == other for one, other in zip_longest(mine, its))


def same_digest(job: CopyJob, found: ObjectMeta) -> bool:
    """Return whether a file's bytes produce the ETag of the object on the other side; only the file is read."""
    source, meta, etag = (job.source, job.meta, found.etag) if local(job.source) else (job.target, found, job.meta.etag)
    store = job.target if local(job.source) else job.source
    number = parts_tag(etag.lower())
    sizes = part_sizes(meta.size, number, store.options.write.part_bytes) if number else [max(1, meta.size)]
    with _read_pieces(source, meta) as pieces:
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
        return self._digest.hexdigest()

    def _end(self) -> None:
        self._parts.append(self._digest.digest())
        self._left, self._digest = self._part_bytes, md5(usedforsecurity=False)


def _read_pieces(source: Source, meta: ObjectMeta) -> AbstractContextManager[Iterator[bytes]]:
    return source.lookahead(cut_spans(meta, PIECE_BYTES), READERS)
