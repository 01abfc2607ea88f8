"""A sync makes one tree, or a range of its names, like another, with as few requests and bytes as possible."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from penstock.errors import Changed, NoSpace, NotFound, PenstockError, Unusable
from penstock.jobs import tasks
from penstock.jobs.copying.copy import CopyJob, copy, cost_bytes, silent_bytes
from penstock.jobs.copying.evidence import EvidenceRule, is_proven, pair_steps, verdict
from penstock.jobs.syncing.mirror import Sieve, SyncOptions, open_mirror, overlap
from penstock.jobs.tasks import run_jobs, suitable
from penstock.jobs.trees.guard import LinkCheck, clear, clear_unfinished, in_the_way, link_on_the_way, obstacle
from penstock.jobs.trees.outcome import Outcome, Status, make_outcome
from penstock.jobs.trees.selection import local
from penstock.progress import bar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator

    from penstock.jobs.trees.plan import CopyStep
    from penstock.options import StoreOptions
    from penstock.progress import Count
    from penstock.values import ObjectMeta


@dataclass(frozen=True, slots=True)
class _Task:
    """Step of a sync, with the existing object at its destination if the two may be equal."""

    step: CopyStep
    there: ObjectMeta | None = None


class SyncRun:
    """Sync in progress.

    ``unchanged`` and ``unchanged_bytes`` count objects so far that the destination already had. ``sieve`` returns a
    sieve of the source's objects, or None without one; it is called if something is to be deleted, and the two sides
    are not surely apart.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        dest: str | os.PathLike[str],
        options: SyncOptions,
        store: StoreOptions | str,
        piece: tuple[str, str | None] = ("", None),
    ) -> None:
        """Open the two trees; names after the first of ``piece``, up to the second, are compared."""
        self.options = options
        after, until = piece
        self.mirror = replace(open_mirror(source, dest, options, store), after=after, until=until)
        seen = Sieve() if options.delete and self.mirror.whole and not self.mirror.apart else None
        if seen is not None:
            self.mirror = replace(self.mirror, seen=seen.add)
        self.sieve: Callable[[], Sieve | None] = lambda: seen
        self.unchanged = self.unchanged_bytes = 0
        self._directory = self.mirror.identity()
        here, there = local(self.mirror.source), local(self.mirror.target)
        self._rule = EvidenceRule(options.checksum, self.mirror.one_clock, here or there)
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
        not stop the other copies, unless no space is left; after a failure nothing is deleted. ``count`` takes objects
        and bytes as they are done, instead of a bar.
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
        """Return the failure of a source that was renamed or unmounted: its objects only appear to be deleted."""
        url = self.mirror.source.url(self.mirror.prefix)
        return Outcome(url, "", 0, "failed", error=Changed("no longer the directory that was listed", url=url))

    def _overlap(self) -> Outcome | None:
        """Return the failure of a destination that may contain the source, or be in it, under a different name."""
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

    def _copies(self, coming: Iterator[_Task]) -> Generator[Outcome]:
        stop = Event()
        work = partial(self._copy, stop)
        with closing(run_jobs(coming, work, self._cost_bytes, stop, processes=self._processes)) as results:
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

    def _in_the_way(self, step: CopyStep) -> str:
        base, to = self.mirror.base, step.to
        if not local(self.mirror.target) or step.fault or link_on_the_way(base, to):
            return ""
        return in_the_way(base, to)

    def _hindered(self, path: str) -> Unusable:
        remedy = "remove it, or say --delete (delete=True)"
        if self.options.delete:
            remedy = "remove it: nothing is deleted that is excluded or a link, and nothing at all after a failure"
            if not self.mirror.whole:
                remedy = f"repeat the call, if another part deletes it; else {remedy}"
        return Unusable(f"{obstacle(path)}: {remedy}", url=path)

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

    def _tasks(self, planned: Iterator[CopyStep]) -> Iterator[_Task]:
        """Yield tasks for objects that differ or may differ; record surplus objects, and count equal ones."""
        for step, there in pair_steps(planned, self.mirror.listed(self.mirror.target, self.mirror.base)):
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

    def _same(self, step: CopyStep) -> None:
        self.unchanged += 1
        self.unchanged_bytes += step.meta.size

    async def _copy(self, stop: Event, task: _Task) -> Status | None:
        """Copy one object; return None if the destination already has it."""
        mirror, step = self.mirror, task.step
        if step.fault:
            raise Unusable(step.fault, url=mirror.source.url(step.meta.key))
        if local(mirror.target) and (path := self._link(step.to)):
            raise Unusable("cannot write through this link to a directory: remove it, or pass its target", url=path)
        job = CopyJob(mirror.source, step.meta, mirror.target, step.to, stamped=True)
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
            now = await tasks.head(target, meta.key)
        except NotFound:
            return "deleted"
        alike = now.etag == meta.etag if meta.etag else now.modified == meta.modified
        if now.size != meta.size or not alike:
            raise Changed("not deleted: the object was written to since it was compared", url=target.url(meta.key))
        if await self._has(mirror.prefix + meta.key[len(mirror.base) :]):
            raise Changed("not deleted: the source has a new object of this name", url=target.url(meta.key))
        await tasks.delete(target, meta.key)
        return "deleted"

    async def _has(self, key: str) -> bool:
        """Return whether the source has an object now: one request, and a listing if it may exist."""
        try:
            await tasks.head(self.mirror.source, key)
        except NotFound:
            return False
        # A disk may find "a" where it lists "A".
        page = await tasks.run_blocking(self.mirror.source.page, key)
        return any(each.key == key for each in page.entries)

    def _kept(self) -> Generator[Outcome]:
        note = "not deleted, because something failed: repeat the sync"
        yield from (Outcome("", self.mirror.target.url(meta.key), meta.size, "skipped", note) for meta in self._surplus)

    def _outcome(self, meta: ObjectMeta, to: str, result: Status | PenstockError, *, deleted: bool = False) -> Outcome:
        source = "" if deleted else self.mirror.source.url(meta.key)
        return make_outcome(source, self.mirror.target.url(to), meta.size, result)
