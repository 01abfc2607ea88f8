"""Makes one tree of objects equal to another: what differs is copied, and what is too much may be deleted."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Unpack

from penstock.bulk.compare import Rule, merged, verdict
from penstock.bulk.guard import LinkCheck, clear, in_the_way, link_on_the_way
from penstock.bulk.ledger import ledger
from penstock.bulk.mirror import SyncKeywords, SyncOptions, opened
from penstock.bulk.outcome import Outcome, Synced
from penstock.bulk.selection import left_out, local
from penstock.bulk.tasks import steps
from penstock.bulk.tasks.copy import Job, copy, cost_bytes, silent_bytes
from penstock.bulk.tasks.evidence import is_proven
from penstock.bulk.tasks.pool import run_jobs
from penstock.bulk.tasks.worker import suitable
from penstock.errors import Changed, NoSpace, NotFound, PenstockError, Unusable
from penstock.options import StoreOptions
from penstock.progress import bar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator

    from penstock.bulk.outcome import Status
    from penstock.bulk.plan import Step
    from penstock.values import ObjectMeta

__all__ = ["Run", "sync"]


def sync(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    report: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
    **how: Unpack[SyncKeywords],
) -> Synced:
    """Make what lies below ``dest`` equal to what lies below ``source``; both are directories or prefixes.

    An object is copied unless the destination has it: the same size, and the same content or time (docs/sync.md has the
    exact rule). Each is replaced atomically, so a sync that was interrupted is repeated, and goes on where it was.
    Between stores objects pass through memory, never through a file.

    Requests: one for each 1,000 objects on either side, and for what is copied those of ``penstock cp``; to delete one
    object, two. Memory for up to 512 MiB of objects, and for the keys of what is to be deleted.

    Args:
        source: What is copied.
        dest: Where it goes.
        report: A file that gets a line of JSON for each object that was copied, deleted, left out or failed.
        progress: Show a bar on standard error; by default where that is a terminal and rich is installed.
        store: Options of both sides, or the name of a profile.
        how: See ``SyncOptions``: ``delete``, ``checksum``, ``include``, ``exclude``, ``dry_run``, ``allow_empty``,
            ``whole_bucket``.

    Raises:
        NotFound: Nothing is there to be copied. Nothing was changed.
        Unusable: One tree lies in the other; ``delete`` for a place that is never emptied.
        PenstockError: The first failure, after all other objects were copied; nothing was deleted then.

    """
    run = Run(source, dest, SyncOptions(**how), StoreOptions() if store is None else store)
    found, first = Synced(), None
    with ledger(report, run.mirror) as note, closing(run.outcomes(progress=progress)) as outcomes:
        for outcome in outcomes:
            note(outcome)
            found.add(outcome)
            first = first or outcome.error
    found.unchanged = run.unchanged
    if first is not None:
        if found.failed > 1:
            first.message += f"; {found.failed:,} objects failed, {found.copied:,} were copied"
        raise first
    return found


@dataclass(frozen=True, slots=True)
class _Task:
    """A step, and what is at its destination, where that may be the object already."""

    step: Step
    there: ObjectMeta | None = None


class Run:
    """One sync, as it goes on.

    Attributes:
        mirror: The two trees.
        unchanged: How many objects were there already, so far.

    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        dest: str | os.PathLike[str],
        options: SyncOptions,
        store: StoreOptions | str,
    ) -> None:
        """Look at what the two URLs mean; nothing is changed. Raises as ``sync``."""
        self.options = options
        self.mirror = opened(source, dest, options, store)
        self.unchanged = 0
        self._directory = self.mirror.identity()
        here, there = local(self.mirror.source), local(self.mirror.target)
        self._rule = Rule(options.checksum, self.mirror.one_clock, here or there)
        self._link = LinkCheck(self.mirror.base)
        self._surplus: list[ObjectMeta] = []
        self._put_off: list[_Task] | None = [] if options.delete else None  # until deletions have made room
        self._processes = 1
        self._count: Callable[[int, int], None] = lambda _objects, _moved_bytes: None

    def outcomes(self, *, progress: bool | None = None, processes: int | None = 1) -> Generator[Outcome]:
        """Yield what comes of each object that is not unchanged: first all copies, then all deletions.

        Last come copies that a deletion had to make room for: a file for a directory, or the other way. What fails does
        not stop the others, unless there is no space left; nothing is deleted then. ``processes`` copy, with this one
        (``tasks.worker.suitable``).
        """
        self._processes = suitable(processes, self.mirror.source, self.mirror.target)
        planned = self.mirror.steps(empty=self.options.allow_empty, deleting=self.options.delete)
        for path, kind in left_out(self.mirror.selection):
            yield Outcome(path, "", 0, "skipped", kind)
        whole = True
        with bar("syncing", None, None, shown=False if self.options.dry_run else progress) as self._count:
            for outcome in self._copies(self._tasks(planned)):
                yield outcome
                whole = whole and outcome.error is None
            if self._surplus and self.mirror.identity() != self._directory:
                whole = False
                yield self._replaced()
            for outcome in self._deletions() if whole else self._kept():
                yield outcome
                whole = whole and outcome.error is None
            yield from self._replacements(whole=whole)

    def _replaced(self) -> Outcome:
        """Return the failure of a source that was renamed, or unmounted: what it held seems to be deleted there."""
        url = self.mirror.source.url(self.mirror.prefix)
        return Outcome(url, "", 0, "failed", error=Changed("no longer the directory that was listed", url=url))

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
                    self.unchanged += 1
                    continue
                yield self._outcome(task.step.meta, task.step.to, result)
                if isinstance(result, NoSpace):  # what comes next would be read in vain
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
        return Unusable(f"{kind}: {remedy}", url=path)

    def _replacements(self, *, whole: bool) -> Generator[Outcome]:
        """Copy what had to wait: what was in its way is deleted by now, but for empty directories, or it stays."""
        put_off, self._put_off = self._put_off or [], None
        for task in put_off if whole else ():
            clear(f"/{task.step.to}")
        yield from self._copies(iter(put_off))

    def _cost_bytes(self, task: _Task) -> int:
        both = self.options.checksum and task.there is not None  # are held, to be compared
        return cost_bytes(task.step.meta) * (2 if both else 1)

    def _tasks(self, planned: Iterator[Step]) -> Iterator[_Task]:
        """Yield what differs, or may; remember what is too much, and count what is the same."""
        for step, there in merged(planned, self.mirror.existing()):
            if step is None:
                if there is not None and self.options.delete and self.mirror.deletable(there):
                    self._surplus.append(there)
            elif step.note:  # a marker of a directory, on the way to one
                continue
            elif step.fault or there is None:
                yield _Task(step)
            else:
                found = verdict(step.meta, there, self._rule)
                if found == "same":
                    self.unchanged += 1
                    self._count(1, 0)
                else:
                    yield _Task(step, there if found == "unsure" else None)

    async def _copy(self, stop: Event, task: _Task) -> Status | None:
        """Copy one object; None where the destination has it already."""
        mirror, step = self.mirror, task.step
        if step.fault:
            raise Unusable(step.fault, url=mirror.source.url(step.meta.key))
        if local(mirror.target) and (path := self._link(step.to)):
            raise Unusable("written through this link to a directory? remove it, or name it as DEST", url=path)
        job = Job(mirror.source, step.meta, mirror.target, step.to, stamped=True)
        if task.there is not None and await is_proven(job, task.there, by_time=not self.options.checksum):
            return None
        if self.options.dry_run:
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
        """Delete what the source has not, if it is still what was listed: two requests."""
        target = self.mirror.target
        try:
            now = await steps.head(target, meta.key)
        except NotFound:
            return "deleted"
        alike = now.etag == meta.etag if meta.etag else now.modified == meta.modified
        if now.size != meta.size or not alike:
            raise Changed("it was written to since it was compared: not deleted", url=target.url(meta.key))
        await steps.delete(target, meta.key)
        return "deleted"

    def _kept(self) -> Generator[Outcome]:
        note = "not deleted, because something failed: repeat the sync"
        yield from (Outcome("", self.mirror.target.url(meta.key), meta.size, "skipped", note) for meta in self._surplus)

    def _outcome(self, meta: ObjectMeta, to: str, result: Status | PenstockError, *, deleted: bool = False) -> Outcome:
        source = "" if deleted else self.mirror.source.url(meta.key)
        there = self.mirror.target.url(to)
        if isinstance(result, PenstockError):
            return Outcome(source, there, meta.size, "failed", error=result)
        return Outcome(source, there, meta.size, result)
