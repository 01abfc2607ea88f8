"""Whether a destination has an object already, by what two listings say: the rules of ``sync``, without any look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.bulk.plan import Step
    from penstock.values import ObjectMeta

__all__ = ["SKEW_S", "Rule", "content_tag", "merged", "part_sizes", "parts_tag", "same_time", "verdict"]

SKEW_S = 900.0  # most that a clock may be wrong: with more, S3, GCS, OSS and Azure refuse what it signs

_MD5_HEX = 32
_MIB = 1 << 20
# What tools cut uploads into: S3's least and rclone 5, boto3 and aws 8, s3cmd 15, this one 16, s5cmd 50; MiB.
_PART_BYTES = tuple(mib * _MIB for mib in (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512))


def content_tag(etag: str) -> str:
    """Return the MD5 that an ETag is; empty where it is none: of uploads in parts and of files, and of some stores."""
    return etag.lower() if len(etag) == _MD5_HEX and etag.isalnum() else ""


def parts_tag(etag: str) -> int:
    """Return the number of parts that an ETag of S3's form says (``MD5-number``); 0 where it is of another form."""
    digest, _, number = etag.partition("-")
    return int(number) if content_tag(digest) and number.isdecimal() else 0


def part_sizes(size: int, number: int, own_bytes: int) -> list[int]:
    """Return the usual sizes of parts that make ``number`` of ``size`` bytes, ``own_bytes`` among them."""
    usual = sorted({own_bytes, *_PART_BYTES})
    return [each for each in usual if -(-size // each) == number]


def same_time(one: float, other: float) -> bool:
    """Say whether two times of change are one, of which a store, a file or a text kept six digits."""
    return abs(one - other) < 2e-6  # noqa: PLR2004  a float of today's times has steps of 0.24 microseconds


class Rule(NamedTuple):
    """What is compared.

    Attributes:
        checksum: Contents, and never times.
        one_clock: Both sides take their times from one clock: one server, or this machine.
        kept: One side is this machine's, whose files get the times of what they were made of.

    """

    checksum: bool
    one_clock: bool
    kept: bool


def verdict(here: ObjectMeta, there: ObjectMeta, rule: Rule) -> Literal["same", "other", "unsure"]:
    """Compare an object with the one at its destination.

    In this order, and never by a time where the sizes differ:

    1. Another size is another object.
    2. Equal MD5s as ETags are the same content.
    3. Unless only contents count: the same time, where times are kept; or a destination that is newer than the source,
       by more than two clocks may differ (``SKEW_S``) where there are two.
    4. All else is unsure: contents decide, or times that were kept as metadata.
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
    """Pair what goes to a destination with what is there; both come in the order of their keys, in UTF-8."""
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
