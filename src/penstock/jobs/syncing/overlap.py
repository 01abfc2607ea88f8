"""Objects that a sync would delete, and that may be its own source under another name."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from penstock.copies import are_distinct
from penstock.jobs.copying.evidence import SKEW_S
from penstock.jobs.trees.selection import encode_key, stat_unsized
from penstock.values import UNKNOWN_SIZE, ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobs.syncing.mirror import Mirror

# 1. ``Sieve`` records the name and size of every object that is listed at the source.
# 2. An object to delete that matches none of these is not part of the source: most syncs end here, without a request.
# 3. For the others, ``overlap`` searches a second listing for twins: one key ends with the other, same size and time.
# 4. A twin alone is not proof: if one tree lies in the other, all other keys have twins, too.


# With 10 million objects, one of 200 other objects passes.
SIEVE_BYTES = 16 << 20
_HASHES = 4
# Number of other keys to check before one tree is considered to lie in the other.
_LOOKS = 8


class Sieve:
    """Bloom filter of the last key components and sizes of objects, with a fixed memory size.

    ``until_s`` is when the listing of kept objects began, in seconds since the epoch: it may lack objects written
    later.
    """

    __slots__ = ("_until_s", "bits")

    def __init__(self, bits: bytes = b"", until_s: float = inf) -> None:
        self.bits = bytearray(bits) or bytearray(SIEVE_BYTES)
        self._until_s = until_s

    def add(self, meta: ObjectMeta) -> None:
        for at in _bits(meta.key, meta.size):
            self.bits[at >> 3] |= 1 << (at & 7)

    def may_hold(self, meta: ObjectMeta) -> bool:
        """Return whether an object of this name, and of this or an unknown size, may have been added."""
        if self._until_s < inf and (meta.modified is None or meta.modified > self._until_s - SKEW_S):
            return True
        return any(
            all(self.bits[at >> 3] & 1 << (at & 7) for at in _bits(meta.key, size))
            for size in (meta.size, UNKNOWN_SIZE)
        )


def _bits(key: str, size: int) -> Iterator[int]:
    # Python's own hashes differ from process to process.
    drawn = int.from_bytes(blake2b(b"%d %s" % (size, encode_key(_name(key))), digest_size=8).digest())
    low, high = drawn & 0xFFFFFFFF, drawn >> 32 | 1
    return ((low + number * high) % (SIEVE_BYTES << 3) for number in range(_HASHES))


def overlap(mirror: Mirror, suspects: Iterable[ObjectMeta]) -> tuple[ObjectMeta, ObjectMeta] | None:
    """Return an object to be deleted and the source object that may be the same: a listing, a few requests per twin."""
    named: dict[str, list[ObjectMeta]] = {}
    for each in suspects:
        named.setdefault(_name(each.key), []).append(each)
    refuted: set[tuple[str, str]] = set()
    for page in mirror.source.pages(mirror.prefix) if named else ():
        for mine in stat_unsized(mirror.source, [each for each in page.entries if _name(each.key) in named]):
            for its in named[_name(mine.key)]:
                if (offsets := _offsets(mirror, mine, its)) is None or offsets in refuted:
                    continue
                if are_distinct(mirror.source, mine, mirror.target, its) or _apart(mirror, mine, its):
                    continue
                if not _is_refuted(mirror, mine, offsets):
                    return its, mine
                refuted.add(offsets)
    return None


def _offsets(mirror: Mirror, mine: ObjectMeta, its: ObjectMeta) -> tuple[str, str] | None:
    """Return the path of the target in the source, and of the source in the target; None if no key ends the other."""
    here, there = mine.key[len(mirror.prefix) :], its.key[len(mirror.base) :]
    if f"/{here}".endswith(f"/{there}"):
        return here[: len(here) - len(there)], ""
    if there.endswith(f"/{here}"):
        return "", there[: len(there) - len(here)]
    return None


def _apart(mirror: Mirror, mine: ObjectMeta, its: ObjectMeta) -> bool:
    """Return whether a HEAD of both objects shows that they differ, or that one no longer exists."""
    [now] = mirror.source.stat_existing([mine.key])
    [then] = mirror.target.stat_existing([its.key])
    return now is None or then is None or are_distinct(mirror.source, now, mirror.target, then)


def _is_refuted(mirror: Mirror, mine: ObjectMeta, offsets: tuple[str, str]) -> bool:
    """Return whether a key of the inner tree is missing, or differs in size, where the outer tree would have it."""
    inside, around = offsets
    if inside:
        keys = [mine.key[len(mirror.prefix) :]]
        there = mirror.target.stat_existing([mirror.base + each for each in keys])
        here = mirror.source.stat_existing([mirror.prefix + inside + each for each in keys])
    elif around:
        pages = mirror.source.pages(mirror.prefix)
        keys = [each.key[len(mirror.prefix) :] for page in islice(pages, 1) for each in page.entries[:_LOOKS]]
        there = mirror.source.stat_existing([mirror.prefix + each for each in keys])
        here = mirror.target.stat_existing([mirror.base + around + each for each in keys])
    else:
        return False
    return any(
        one is not None and (other is None or other.size != one.size) for one, other in zip(there, here, strict=True)
    )


def _name(key: str) -> str:
    return key.rpartition("/")[2]
