"""The two trees of a sync, which must not overlap, and its options; rules limit deletions at the target.

One tree may be a part of the other under another name, so what a sync would delete may be its own source:

1. ``Sieve`` records the name and size of every object that is listed at the source.
2. An object to delete that matches none of these is not part of the source: most syncs end here, without a request.
3. For the others, ``overlap`` searches a second listing for twins: one key ends with the other, same size and time.
4. A twin alone is not proof: if one tree lies in the other, all other keys have twins, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING

from penstock.copies import are_distinct, one_bucket
from penstock.engine.contracts.driver import Delete, Put
from penstock.engine.listing.select import selector
from penstock.errors import NotFound, Unusable
from penstock.jobs.copying.evidence import SKEW_S
from penstock.jobs.trees.guard import check_names, find_folding
from penstock.jobs.trees.plan import CopyStep, Destination, Origin, plan
from penstock.jobs.trees.selection import (
    Selection,
    elsewhere,
    encode_key,
    in_range,
    left_out,
    local,
    stat_unsized,
    tree,
)
from penstock.stores.urls import check_deletable, check_lived_in, parse
from penstock.values import UNKNOWN_SIZE, ObjectMeta, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.options import StoreOptions
    from penstock.source import Source

# With 10 million objects, one of 200 other objects passes.
SIEVE_BYTES = 16 << 20
_HASHES = 4
# Number of other keys to check before one tree is considered to lie in the other.
_LOOKS = 8


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """Options of ``ps.sync``: see there."""

    delete: bool = False
    checksum: bool = False
    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    dry_run: bool = False
    allow_empty: bool = False
    whole_bucket: bool = False

    def __post_init__(self) -> None:
        """Check the switches: a text such as "no" would delete."""
        for name in ("delete", "checksum", "dry_run", "allow_empty", "whole_bucket"):
            switch(getattr(self, name), name)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Source and target tree: keys below ``base`` at the target correspond to keys below ``prefix`` at the source."""

    source: Source
    prefix: str
    target: Source
    base: str
    chosen: Callable[[str, int], bool]
    # receives every object listed at the source; set if one tree may contain the other under a different name
    seen: Callable[[ObjectMeta], None] | None = None
    after: str = ""  # only names after this one take part
    until: str | None = None  # and none after this one

    @property
    def whole(self) -> bool:
        return not self.after and self.until is None

    @property
    def trees(self) -> tuple[tuple[Source, str], ...]:
        return (self.source, self.prefix), (self.target, self.base)

    @property
    def one_clock(self) -> bool:
        """Whether both sides are on the same server, or both on this machine."""
        if local(self.source) or local(self.target):
            return local(self.source) and local(self.target)
        scheme, _, settings, _ = self.source.address("")
        other, _, others, _ = self.target.address("")
        return (scheme, settings) == (other, others)

    @property
    def apart(self) -> bool:
        """Whether the trees surely do not overlap: ``open_mirror`` refuses that in one bucket or on this machine."""
        return one_bucket(self.source, self.target) or (local(self.source) and local(self.target))

    def identity(self) -> tuple[int, int] | None:
        """Return device and inode of a local source directory, which identify it."""
        if local(self.source):
            with suppress(OSError):
                found = os.stat(f"/{self.prefix}")
                return found.st_dev, found.st_ino
        return None

    def steps(self, *, empty: bool, deleting: bool) -> Iterator[CopyStep]:
        """Return the planned steps in key order; the first page is listed before this returns."""
        metas = self.list_source(empty=empty, deleting=deleting)
        origin, place = self._origin, Destination(self.target.root, self.base, into=True)
        fold = find_folding(self.base) if local(self.target) else None
        return plan([origin], ((origin, meta) for meta in metas), place, fold)

    def list_source(self, *, empty: bool, deleting: bool) -> Iterator[ObjectMeta]:
        """Return the source's objects in key order; the first page is listed, and refused if empty, before."""
        found = self.listed(self.source, self.prefix)
        first = next(found, None)
        if first is None:
            self._check_empty(empty=empty, deleting=deleting)
        return chain(() if first is None else (first,), found)

    @property
    def _origin(self) -> Origin:
        return Origin(self.source.root, self.prefix, "tree")

    def _check_empty(self, *, empty: bool, deleting: bool) -> None:
        if not self.whole and next(replace(self, after="", until=None).listed(self.source, self.prefix), None):
            return
        name = self.prefix.rstrip("/")
        if name and not local(self.source) and self.source.stat_existing([name])[0] is not None:
            raise Unusable("this is a single object: use penstock cp", url=self.source.url(name))
        if not empty:
            danger = ", and delete would empty the destination" if deleting else ""
            message = f"no object found or chosen{elsewhere(self.source.root)}{danger}"
            remedy = "correct the source, or say --allow-empty (allow_empty=True)"
            raise NotFound(f"{message}: {remedy}", url=self.source.url(self.prefix))

    def deletable(self, meta: ObjectMeta) -> bool:
        """Say whether to delete an object; markers stay if the source cannot name them, or at ``base`` itself."""
        marker = not meta.size and meta.key.endswith("/")
        return not marker or not (local(self.source) or meta.key == self.base)

    def listed(self, source: Source, prefix: str) -> Iterator[ObjectMeta]:
        for entries in in_range(source, prefix, self.after, self.until):
            if self.seen is not None and source is self.source:
                for each in entries:
                    self.seen(each)
            chosen = [each for each in entries if self.chosen(each.key[len(prefix) :], each.size)]
            yield from stat_unsized(source, chosen)

    def left_out(self) -> Iterator[tuple[str, str]]:
        """Yield path and kind of each entry of a local source that is not an object."""
        after, until = encode_key(self.after), None if self.until is None else encode_key(self.until)

        def holds(name: str) -> bool:
            first = encode_key(name)
            inside = name.endswith("/") and after.startswith(first)
            return (first > after or inside) and (until is None or first <= until)

        return left_out(Selection(self.source, self._origin), holds)


def open_mirror(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], how: SyncOptions, store: StoreOptions | str
) -> Mirror:
    """Return the two trees that two URLs name; refuse protected places and trees that overlap. No request."""
    chosen = selector(how.include, how.exclude, markers=True)
    here, prefix = tree(source, store)
    there, base = tree(dest, store)
    there.require(Put, base)
    if how.delete:
        there.require(Delete, base)
    _check_source(here, prefix)
    if local(there) and os.path.isfile(f"/{base.rstrip('/')}"):
        raise Unusable("the destination is a file: name a directory or prefix", url=there.url(base))
    mirror = Mirror(here, prefix, there, base, chosen)
    _check_apart(mirror)
    if how.delete:
        place = parse(there.url(base))
        if base or local(there):
            check_deletable(place)
        else:
            check_lived_in(place)
        # The root of a profile may be a prefix of its bucket.
        if not (str(there.address(base)[-1]) or how.whole_bucket or how.dry_run):
            raise Unusable("this deletes in a whole bucket: pass --whole-bucket (whole_bucket=True)", url=there.root)
    return mirror


def _check_source(source: Source, prefix: str) -> None:
    path = f"/{prefix}"
    if local(source) and not os.path.isdir(path):
        if os.path.isfile(path.rstrip("/")):
            raise Unusable("this is a single file: use penstock cp", url=source.url(prefix.rstrip("/")))
        raise NotFound(f"no such directory{elsewhere(source.root)}", url=source.url(prefix))


def _check_apart(mirror: Mirror) -> None:
    """Refuse trees that are equal or overlap: by URL and, on this machine, also by device and inode."""
    here, there = mirror.source.url(mirror.prefix), mirror.target.url(mirror.base)
    message = f"source and destination overlap: {here} and {there}"
    *where, mine = mirror.source.address(mirror.prefix)
    *place, its = mirror.target.address(mirror.base)
    if where == place and (str(mine).startswith(str(its)) or str(its).startswith(str(mine))):
        raise Unusable(message)
    check_names([(mirror.source, mirror.prefix)], mirror.target, mirror.base)
    if local(mirror.source) and local(mirror.target):
        pair = f"/{mirror.prefix}", f"/{mirror.base}"
        if _above(*pair) or _above(*reversed(pair)):  # two mounts of one directory
            raise Unusable(message)


def _above(folder: str, path: str) -> bool:
    """Return whether an existing directory is ``path`` or a parent of it, by device and inode."""
    found = os.stat(folder) if os.path.isdir(folder) else None
    while found is not None:
        if os.path.exists(path) and os.path.samestat(os.stat(path), found):
            return True
        parent = os.path.dirname(path.rstrip("/"))
        if parent == path:
            break
        path = parent
    return False


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
