"""A sync makes one tree, or a range of its names, like another, with as few requests and bytes as possible.

``Mirror`` holds the two trees, which must not overlap; rules limit deletions at the target.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from math import inf
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypedDict

from penstock.copies import are_distinct, one_bucket
from penstock.engine.contracts.driver import Delete, Put
from penstock.engine.listing.select import selector
from penstock.errors import Changed, NoSpace, NotFound, PenstockError, Unusable
from penstock.jobs import steps
from penstock.jobs.copy import Job, copy, cost_bytes, silent_bytes
from penstock.jobs.evidence import SKEW_S, Rule, is_proven, merged, verdict
from penstock.jobs.guard import LinkCheck, check_names, clear, clear_unfinished, folding, in_the_way, link_on_the_way
from penstock.jobs.outcome import Outcome
from penstock.jobs.plan import Destination, Origin, plan
from penstock.jobs.pool import run_jobs, suitable
from penstock.jobs.selection import Selection, elsewhere, left_out, local, resolved, sized
from penstock.progress import bar
from penstock.source import open_source
from penstock.stores.urls import check_deletable, check_lived_in, parse
from penstock.values import UNKNOWN_SIZE, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from penstock.jobs.outcome import Status
    from penstock.jobs.plan import Step
    from penstock.options import StoreOptions
    from penstock.progress import Count
    from penstock.source import Source
    from penstock.values import ObjectMeta


__all__ = ["Mirror", "Run", "Sieve", "SyncKeywords", "SyncOptions", "in_range", "opened", "tree"]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """Options of ``ps.sync``.

    Attributes:
        delete: Delete objects at the destination that the source does not have, at the end and only if nothing failed.
        checksum: Compare contents, never times.
        include: Globs of relative keys, for both sides: only matching keys take part.
        exclude: Globs of relative keys, for both sides: matching keys are ignored, and stay at the destination.
        dry_run: Change nothing.
        allow_empty: Accept an empty source; with ``delete``, this empties the destination.
        whole_bucket: Allow ``delete`` on a whole bucket.

    """

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
            if (value := getattr(self, name)) not in (True, False):
                raise Unusable(f"{name} must be True or False, got {value!r}")


class SyncKeywords(TypedDict, total=False):
    """Keyword arguments of ``ps.sync``: the fields of ``SyncOptions``."""

    delete: bool
    checksum: bool
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    dry_run: bool
    allow_empty: bool
    whole_bucket: bool


@dataclass(frozen=True, slots=True)
class Mirror:
    """Source and target tree: keys below ``base`` at the target correspond to keys below ``prefix`` at the source.

    ``seen`` receives every object listed at the source, selected or not; it is set if one tree may contain the other
    under a different name. Only names after ``after`` and, unless it is None, not after ``until`` take part.
    """

    source: Source
    prefix: str
    target: Source
    base: str
    chosen: Callable[[str, int], bool]
    seen: Callable[[ObjectMeta], None] | None = None
    after: str = ""
    until: str | None = None

    @property
    def whole(self) -> bool:
        """Whether all names take part."""
        return not self.after and self.until is None

    @property
    def trees(self) -> tuple[tuple[Source, str], ...]:
        """Store and prefix of both sides."""
        return (self.source, self.prefix), (self.target, self.base)

    @property
    def selection(self) -> Selection:
        """Source tree as a ``Selection``, as in ``cp``."""
        return Selection(self.source, Origin(self.source.root, self.prefix, "tree"))

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
        """Whether the trees surely do not overlap: in one bucket, or on this machine, ``opened`` refuses overlaps."""
        return one_bucket(self.source, self.target) or (local(self.source) and local(self.target))

    def identity(self) -> tuple[int, int] | None:
        """Return device and inode of a local source directory; None for a store or a missing directory.

        They distinguish the directory from a different one with the same name.
        """
        if local(self.source):
            with suppress(OSError):
                found = os.stat(f"/{self.prefix}")
                return found.st_dev, found.st_ino
        return None

    def steps(self, *, empty: bool, deleting: bool) -> Iterator[Step]:
        """Return the planned steps in key order; the first page is listed before this returns.

        Raises:
            NotFound: No object is selected, and ``empty`` does not allow that.
            Unusable: The source is a single object.

        """
        found = self.listed(self.source, self.prefix)
        first = next(found, None)
        if first is None:
            self._check_empty(empty=empty, deleting=deleting)
        origin = Origin(self.source.root, self.prefix, "tree")
        place = Destination(self.target.root, self.base, into=True)
        metas = chain(() if first is None else (first,), found)
        fold = folding(self.base) if local(self.target) else None
        return plan([origin], ((origin, meta) for meta in metas), place, fold)

    def _check_empty(self, *, empty: bool, deleting: bool) -> None:
        if not self.whole and next(replace(self, after="", until=None).listed(self.source, self.prefix), None):
            return
        name = self.prefix.rstrip("/")
        if name and not local(self.source) and self.source.stat_existing([name])[0] is not None:
            raise Unusable("a single object: penstock cp copies it", url=self.source.url(name))
        if not empty:
            danger = ", and delete would empty the destination" if deleting else ""
            message = f"nothing is there, or chosen{elsewhere(self.source.root)}{danger}"
            remedy = "correct the source, or say --allow-empty (allow_empty=True)"
            raise NotFound(f"{message}: {remedy}", url=self.source.url(self.prefix))

    def existing(self) -> Iterator[ObjectMeta]:
        """Yield the selected objects that exist at the target."""
        return self.listed(self.target, self.base)

    def deletable(self, meta: ObjectMeta) -> bool:
        """Return whether an object that the source lacks may be deleted.

        A directory marker stays if the source is a file system, which cannot name it, or if its key is ``base``.
        """
        marker = not meta.size and meta.key.endswith("/")
        return not marker or not (local(self.source) or meta.key == self.base)

    def listed(self, source: Source, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the selected objects of a side, in key order."""
        for entries in in_range(source, prefix, self.after, self.until):
            yield from self.chosen_of(source, prefix, entries)

    def left_out(self) -> Iterator[tuple[str, str]]:
        """Yield path and kind of each entry of a local source that is not an object."""
        after, until = _order(self.after), None if self.until is None else _order(self.until)

        def holds(name: str) -> bool:
            first = _order(name)
            inside = name.endswith("/") and after.startswith(first)
            return (first > after or inside) and (until is None or first <= until)

        return left_out(self.selection, holds)

    def chosen_of(self, source: Source, prefix: str, entries: Sequence[ObjectMeta]) -> Sequence[ObjectMeta]:
        """Return the selected ones of some objects of a side, with their sizes."""
        if self.seen is not None and source is self.source:
            for each in entries:
                self.seen(each)
        return sized(source, [each for each in entries if self.chosen(each.key[len(prefix) :], each.size)])


def in_range(source: Source, prefix: str, after: str, until: str | None) -> Iterator[Sequence[ObjectMeta]]:
    """Yield pages of the objects below a prefix whose names lie after ``after``, and not after ``until``."""
    start = prefix + after if after else ""
    stop = None if until is None else _order(prefix + until)
    for page in source.pages(prefix, start_after=start):
        entries = page.entries
        if stop is not None and entries and _order(entries[-1].key) > stop:
            yield [each for each in entries if _order(each.key) <= stop]
            return
        yield entries


def _order(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def opened(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], how: SyncOptions, store: StoreOptions | str
) -> Mirror:
    """Return the two trees that two URLs name; no request.

    Raises:
        ConfigError: Invalid glob.
        Unusable: A side is a file instead of a tree; one tree lies in the other; ``delete`` on a protected place, or on
            a whole bucket without ``whole_bucket``.
        Unsupported: The destination does not support writing, or deleting with ``delete``.
        NotFound: The source directory does not exist.

    """
    chosen = selector(how.include, how.exclude, markers=True)
    here, prefix = tree(source, store)
    there, base = tree(dest, store)
    there.require(Put, base)
    if how.delete:
        there.require(Delete, base)
    _check_source(here, prefix)
    if local(there) and os.path.isfile(f"/{base.rstrip('/')}"):
        raise Unusable("the destination is a file, and should hold several", url=there.url(base))
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
            raise Unusable("delete in a whole bucket? say --whole-bucket (whole_bucket=True)", url=there.root)
    return mirror


def tree(url: str | os.PathLike[str], store: StoreOptions | str) -> tuple[Source, str]:
    """Return the store and the prefix of a tree; links on this machine are resolved."""
    source, key = open_source(url, store)
    if local(source):
        # Resolve links: the tree is at the target of a link.
        key = resolved(f"{as_folder(key)}.") if key else key
    return source, as_folder(key)


def _check_source(source: Source, prefix: str) -> None:
    path = f"/{prefix}"
    if local(source) and not os.path.isdir(path):
        if os.path.isfile(path.rstrip("/")):
            raise Unusable("a single file: penstock cp copies it", url=source.url(prefix.rstrip("/")))
        raise NotFound(f"no such directory{elsewhere(source.root)}", url=source.url(prefix))


def _check_apart(mirror: Mirror) -> None:
    """Refuse trees that are equal or lie in one another: by URL and, on this machine, also by device and inode."""
    here, there = mirror.source.url(mirror.prefix), mirror.target.url(mirror.base)
    message = f"source and destination lie in one another: {here} and {there}"
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


@dataclass(frozen=True, slots=True)
class _Task:
    """Step of a sync, with the existing object at its destination if the two may be equal."""

    step: Step
    there: ObjectMeta | None = None


class Run:
    """Sync in progress.

    Attributes:
        mirror: The two trees.
        unchanged: Number of objects so far that the destination already had.
        unchanged_bytes: Their bytes.
        sieve: Returns a sieve of the source's objects, or None without one; called if something is to be deleted, and
            the two sides are not surely apart.

    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        dest: str | os.PathLike[str],
        options: SyncOptions,
        store: StoreOptions | str,
        piece: tuple[str, str | None] = ("", None),
    ) -> None:
        """Open the two trees; nothing is changed. Raises the same errors as ``sync``.

        ``piece``: the name before the first one that takes part, and the last one; default: all.
        """
        self.options = options
        after, until = piece
        self.mirror = replace(opened(source, dest, options, store), after=after, until=until)
        seen = Sieve() if options.delete and self.mirror.whole and not self.mirror.apart else None
        if seen is not None:
            self.mirror = replace(self.mirror, seen=seen.add)
        self.sieve: Callable[[], Sieve | None] = lambda: seen
        self.unchanged = self.unchanged_bytes = 0
        self._directory = self.mirror.identity()
        here, there = local(self.mirror.source), local(self.mirror.target)
        self._rule = Rule(options.checksum, self.mirror.one_clock, here or there)
        self._link = LinkCheck(self.mirror.base)
        self._surplus: list[ObjectMeta] = []
        # Copies that wait until deletions have made room.
        self._put_off: list[_Task] | None = [] if options.delete else None
        self._processes = 1
        self._count: Callable[[int, int], None] = lambda _objects, _moved_bytes: None

    def outcomes(
        self, *, progress: bool | None = None, processes: int | None = 1, count: Count | None = None
    ) -> Generator[Outcome]:
        """Yield the outcome of each object that is not unchanged: first all copies, then all deletions.

        Copies that wait for a deletion come last: a file replaces a directory, or a directory a file. A failure does
        not stop the other copies, unless no space is left; after a failure nothing is deleted. ``processes`` is the
        number of processes that copy, including this one (``tasks.worker.suitable``). ``count`` takes objects and bytes
        as they are done, instead of a bar.
        """
        self._processes = suitable(processes, self.mirror.source, self.mirror.target)
        planned = self.mirror.steps(empty=self.options.allow_empty, deleting=self.options.delete)
        for path, kind in self.mirror.left_out():
            yield Outcome(path, "", 0, "skipped", kind)
        whole = True
        shown = False if self.options.dry_run or count is not None else progress
        with bar("syncing", None, None, shown=shown) as own:
            self._count = own if count is None else count
            for outcome in self._copies(self._tasks(planned)):
                yield outcome
                whole = whole and outcome.error is None
            if self._surplus and self.mirror.identity() != self._directory:
                whole = False
                yield self._replaced()
            if whole and (failure := self._overlap()):
                whole = False
                yield failure
            for outcome in self._deletions() if whole else self._kept():
                yield outcome
                whole = whole and outcome.error is None
            yield from self._replacements(whole=whole)
        if self.mirror.whole:
            self.clear()

    def clear(self) -> None:
        """Remove files that killed writers have left at a local target."""
        if local(self.mirror.target) and self.mirror.base and not self.options.dry_run:
            clear_unfinished(self.mirror.target, self.mirror.base)

    def _replaced(self) -> Outcome:
        """Return the failure of a source that was renamed or unmounted: its objects only seem to be deleted."""
        url = self.mirror.source.url(self.mirror.prefix)
        return Outcome(url, "", 0, "failed", error=Changed("no longer the directory that was listed", url=url))

    def _overlap(self) -> Outcome | None:
        """Return the failure of a destination that may contain the source, or lie in it, under a different name."""
        if not self._surplus or self.mirror.apart:
            return None
        sieve = self.sieve()
        suspects = self._surplus if sieve is None else filter(sieve.may_hold, self._surplus)
        if (found := overlap(self.mirror, suspects)) is None:
            return None
        its, mine = found
        there, here = self.mirror.target.url(its.key), self.mirror.source.url(mine.key)
        message = f"this may be {here} of the source under another name: nothing is deleted"
        error = Unusable(f"{message}; if it is another object, delete it with penstock rm, and repeat", url=there)
        return Outcome("", there, its.size, "failed", error=error)

    def _copies(self, tasks: Iterator[_Task]) -> Generator[Outcome]:
        stop = Event()
        work = partial(self._copy, stop)
        with closing(run_jobs(tasks, work, self._cost_bytes, stop, processes=self._processes)) as results:
            for task, ended in results:
                path = self._in_the_way(task.step) if isinstance(ended, Unusable) else ""
                if path and self._put_off is not None:
                    self._put_off.append(task)
                    continue
                result = self._hindered(path) if path else ended
                self._count(1, silent_bytes(task.step.meta) if result == "copied" else 0)
                if result is None:
                    self._same(task.step)
                    continue
                yield self._outcome(task.step.meta, task.step.to, result)
                # The next objects would be read in vain.
                if isinstance(result, NoSpace):
                    return

    def _in_the_way(self, step: Step) -> str:
        base, to = self.mirror.base, step.to
        if not local(self.mirror.target) or step.fault or link_on_the_way(base, to):
            return ""
        return in_the_way(base, to)

    def _hindered(self, path: str) -> Unusable:
        folder = Path(path).is_dir()
        kind = "a directory is in the place of this file" if folder else "a file is in a directory's place"
        remedy = "remove it, or say --delete (delete=True)"
        if self.options.delete:
            remedy = "remove it: nothing is deleted that is excluded or a link, and nothing at all after a failure"
            if not self.mirror.whole:
                remedy = f"repeat the call, if another part deletes it; else {remedy}"
        return Unusable(f"{kind}: {remedy}", url=path)

    def _replacements(self, *, whole: bool) -> Generator[Outcome]:
        """Copy the objects that waited for deletions.

        With ``whole``, the deletions are done, and empty directories in the way are removed first. Without it, nothing
        is removed.
        """
        put_off, self._put_off = self._put_off or [], None
        for task in put_off if whole else ():
            clear(f"/{task.step.to}")
        yield from self._copies(iter(put_off))

    def _cost_bytes(self, task: _Task) -> int:
        # Both objects are held in memory for the comparison.
        both = self.options.checksum and task.there is not None
        return cost_bytes(task.step.meta) * (2 if both else 1)

    def _tasks(self, planned: Iterator[Step]) -> Iterator[_Task]:
        """Yield tasks for objects that differ or may differ; remember surplus objects, and count equal ones."""
        for step, there in merged(planned, self.mirror.existing()):
            if step is None:
                if there is not None and self.options.delete and self.mirror.deletable(there):
                    self._surplus.append(there)
            elif step.note:  # marker of a directory
                continue
            elif step.fault or there is None:
                yield _Task(step)
            else:
                found = verdict(step.meta, there, self._rule)
                if found == "same":
                    self._same(step)
                    self._count(1, 0)
                else:
                    yield _Task(step, there if found == "unsure" else None)

    def _same(self, step: Step) -> None:
        self.unchanged += 1
        self.unchanged_bytes += step.meta.size

    async def _copy(self, stop: Event, task: _Task) -> Status | None:
        """Copy one object; return None if the destination already has it."""
        mirror, step = self.mirror, task.step
        if step.fault:
            raise Unusable(step.fault, url=mirror.source.url(step.meta.key))
        if local(mirror.target) and (path := self._link(step.to)):
            raise Unusable("cannot write through this link to a directory: remove it, or name it as DEST", url=path)
        job = Job(mirror.source, step.meta, mirror.target, step.to, stamped=True)
        if task.there is not None and await is_proven(job, task.there, by_time=not self.options.checksum):
            return None
        if self.options.dry_run:
            # With ``delete``, the blocking path may be deleted first.
            if not self.options.delete and (path := self._in_the_way(step)):
                raise self._hindered(path)
            return "planned"
        await copy(job, lambda moved_bytes: self._count(0, moved_bytes), stop)
        return "copied"

    def _deletions(self) -> Generator[Outcome]:
        if self.options.dry_run:
            yield from (self._outcome(meta, meta.key, "planned", deleted=True) for meta in self._surplus)
            return
        with closing(run_jobs(self._surplus, self._delete, lambda _: 0, Event())) as results:
            for meta, result in results:
                self._count(1, 0)
                yield self._outcome(meta, meta.key, result, deleted=True)

    async def _delete(self, meta: ObjectMeta) -> Status:
        """Delete an object that the source lacks, unless either side changed since it was listed: three requests."""
        mirror, target = self.mirror, self.mirror.target
        try:
            now = await steps.head(target, meta.key)
        except NotFound:
            return "deleted"
        alike = now.etag == meta.etag if meta.etag else now.modified == meta.modified
        if now.size != meta.size or not alike:
            raise Changed("not deleted: the object was written to since it was compared", url=target.url(meta.key))
        if await self._has(mirror.prefix + meta.key[len(mirror.base) :]):
            raise Changed("not deleted: the source has it since it was listed", url=target.url(meta.key))
        await steps.delete(target, meta.key)
        return "deleted"

    async def _has(self, key: str) -> bool:
        """Return whether the source has an object now: one request, and a listing if it seems to be there."""
        try:
            await steps.head(self.mirror.source, key)
        except NotFound:
            return False
        # A disk may find "a" where it lists "A".
        page = await steps.blocking(self.mirror.source.page, key)
        return any(each.key == key for each in page.entries)

    def _kept(self) -> Generator[Outcome]:
        note = "not deleted, because something failed: repeat the sync"
        yield from (Outcome("", self.mirror.target.url(meta.key), meta.size, "skipped", note) for meta in self._surplus)

    def _outcome(self, meta: ObjectMeta, to: str, result: Status | PenstockError, *, deleted: bool = False) -> Outcome:
        source = "" if deleted else self.mirror.source.url(meta.key)
        there = self.mirror.target.url(to)
        if isinstance(result, PenstockError):
            return Outcome(source, there, meta.size, "failed", error=result)
        return Outcome(source, there, meta.size, result)


# 1. ``Sieve`` records the name and size of every object that is listed at the source.
# 2. An object to delete that matches none of these is not part of the source: most syncs end here, without a request.
# 3. For the others, ``overlap`` searches a second listing for twins: one key ends with the other, same size and time.
# 4. A twin alone is not proof: if one tree lies in the other, all other keys have twins, too.


# With 10 million objects, one of 200 other objects passes.
_SIEVE_BYTES = 16 << 20
_HASHES = 4
# Number of other keys to check before one tree is considered to lie in the other.
_LOOKS = 8


class Sieve:
    """Bloom filter of the last key components and sizes of objects, with a fixed memory size.

    Args:
        bits: Those of a sieve that was kept; default: none are set.
        until_s: When the listing of its objects began, in seconds since the epoch: it may lack objects written later.
            Default: never.

    """

    __slots__ = ("_until_s", "bits")

    def __init__(self, bits: bytes = b"", until_s: float = inf) -> None:
        """Create a filter."""
        self.bits = bytearray(bits) or bytearray(_SIEVE_BYTES)
        self._until_s = until_s

    def add(self, meta: ObjectMeta) -> None:
        """Add an object."""
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
    drawn = int.from_bytes(blake2b(b"%d %s" % (size, _order(_name(key))), digest_size=8).digest())
    low, high = drawn & 0xFFFFFFFF, drawn >> 32 | 1
    return ((low + number * high) % (_SIEVE_BYTES << 3) for number in range(_HASHES))


def overlap(mirror: Mirror, suspects: Iterable[ObjectMeta]) -> tuple[ObjectMeta, ObjectMeta] | None:
    """Return an object to be deleted and the source object that may be the same; None without such a pair.

    One request for each 1,000 objects of the source, and a few for each pair of twins.
    """
    named: dict[str, list[ObjectMeta]] = {}
    for each in suspects:
        named.setdefault(_name(each.key), []).append(each)
    refuted: set[tuple[str, str]] = set()
    for page in mirror.source.pages(mirror.prefix) if named else ():
        for mine in sized(mirror.source, [each for each in page.entries if _name(each.key) in named]):
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
