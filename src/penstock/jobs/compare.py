"""Comparison rules of ``sync``: whether a destination already has an object, from two listings, without requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobs.plan import Step
    from penstock.values import ObjectMeta

__all__ = ["SKEW_S", "Rule", "content_tag", "merged", "part_sizes", "parts_tag", "same_time", "verdict"]

# Maximum clock error in seconds: S3, GCS, OSS and Azure refuse signatures of a clock that is further off.
SKEW_S = 900.0

_MD5_HEX = 32
_MIB = 1 << 20
# Part sizes of common tools, in MiB: rclone 5 (S3's minimum), boto3 and aws 8, s3cmd 15, Penstock 16, s5cmd 50.
_PART_BYTES = tuple(mib * _MIB for mib in (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512))


def content_tag(etag: str) -> str:
    """Return the MD5 that an ETag consists of; empty for any other ETag.

    Multipart uploads, files and some stores have other ETags.
    """
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


class Rule(NamedTuple):
    """Evidence that ``verdict`` accepts.

    Attributes:
        checksum: Compare contents, never times.
        one_clock: Both sides take their times from the same clock: one server, or this machine.
        kept: One side is this machine, where files get the modification times of their sources.

    """

    checksum: bool
    one_clock: bool
    kept: bool


def verdict(here: ObjectMeta, there: ObjectMeta, rule: Rule) -> Literal["same", "other", "unsure"]:
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


def merged(steps: Iterable[Step], existing: Iterable[ObjectMeta]) -> Iterator[tuple[Step | None, ObjectMeta | None]]:
    """Yield steps paired with existing objects of the same key, or None; both inputs are sorted by key in UTF-8."""
    here, there = iter(steps), iter(existing)
    step, meta = next(here, None), next(there, None)
    while step is not None or meta is not None:
        mine = None if step is None else _order(step.to)
        its = None if meta is None else _order(meta.key)
        takes = mine is not None and (its is None or mine <= its)
        matches = its is not None and (mine is None or its <= mine)
        yield (step if takes else None), (meta if matches else None)
        step = next(here, None) if takes else step
        meta = next(there, None) if matches else meta


def _order(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
