"""Copies and moves many objects from anywhere to anywhere, each of them atomically: ``penstock cp`` and ``mv``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from threading import Event
from typing import TYPE_CHECKING

from penstock.bulk.guard import LinkCheck, check_links, check_names, check_tree
from penstock.bulk.outcome import Outcome
from penstock.bulk.plan import check, plan
from penstock.bulk.selection import destination, left_out, local, require, select
from penstock.bulk.tasks.copy import Job, copy, cost_bytes, delete_source, silent_bytes
from penstock.bulk.tasks.evidence import is_there
from penstock.bulk.tasks.pool import run_jobs
from penstock.bulk.tasks.worker import suitable
from penstock.errors import NoSpace, PenstockError, Unusable
from penstock.progress import bar
from penstock.protocols.driver import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from penstock.bulk.outcome import Status
    from penstock.bulk.plan import Step
    from penstock.options import StoreOptions
    from penstock.source import Source

__all__ = ["How", "transfer"]

_AHEAD = 10_000  # planned before the first is carried: sums for the bar, and most refusals before anything is done


@dataclass(frozen=True, slots=True)
class How:
    """The options of ``cp``, and of ``mv``, which moves; ``processes`` as ``tasks.worker.suitable`` takes them."""

    recursive: bool = False
    resume: bool = False
    dry_run: bool = False
    json: bool = False
    fail_fast: bool = False
    move: bool = False
    processes: int | None = 1

    @property
    def verb(self) -> Status:
        """What becomes of an object."""
        return "planned" if self.dry_run else "moved" if self.move else "copied"


def transfer(urls: Sequence[str], dest: str, how: How, store: StoreOptions | str) -> Generator[Outcome]:
    """Copy or move what ``urls`` mean to ``dest``, and yield what came of each object, as it ends.

    What fails does not stop the others, unless ``how`` says so or there is no space left.

    Requests: one or two for each of ``urls``, one for DEST, one for each 1,000 objects listed; for each object one on
    the server's side, two when it is small, else one for each 8 MiB read and as many as a writer takes; one more to
    another store, one more with ``resume``, three more to move. To move with ``resume`` reads files that may be there
    already, to compare them.

    Raises:
        PenstockError: A source or DEST is not usable as it is; nothing was done then.

    """
    require(dest, store, Put)
    if how.move:
        for url in urls:
            require(url, store, Delete)
        check_links(urls, store)
    selections = [select(url, store, recursive=how.recursive) for url in urls]
    if how.move:
        for each in selections:
            check_tree(each, "copy it (cp -r) and then empty it (rm -r --whole-bucket), if you mean it")
    origins = [each.origin for each in selections]
    target, place = destination(dest, store, origins)
    check(origins, place)
    check_names([(each.source, each.origin.prefix) for each in selections], target, place.key)
    found = [(each.origin, each.entries()) for each in selections]
    steps = plan(origins, ((origin, meta) for origin, metas in found for meta in metas), place)
    first = list(islice(steps, _AHEAD))
    for path, kind in chain.from_iterable(map(left_out, selections)):
        yield Outcome(path, "", 0, "skipped", kind)
    with bar("moving" if how.move else "copying", *_sums(first), shown=False if how.dry_run else None) as count:
        work = _Work(how, {each.source.root: each.source for each in selections}, (target, place.key), count)
        yield from _carry_out(chain(first, steps), work)


class _Work:
    """What is done with one step."""

    def __init__(
        self, how: How, sources: dict[str, Source], dest: tuple[Source, str], count: Callable[[int, int], None]
    ) -> None:
        self.how = how
        self.stop = Event()
        self.count = count
        self.processes = suitable(how.processes, dest[0], *sources.values())
        self._sources = sources
        self._target, base = dest
        self._link = LinkCheck(base)

    async def __call__(self, step: Step) -> Status:
        """Do it; returns its status."""
        job = Job(self._sources[step.root], step.meta, self._target, step.to)
        if step.fault:
            raise Unusable(step.fault, url=job.source.url(step.meta.key))
        if step.note:
            return "skipped"
        if local(self._target) and (path := self._link(step.to)):
            raise Unusable("written through this link to a directory? remove it, or name it as DEST", url=path)
        there = self.how.resume and await is_there(job, surely=self.how.move)
        if there and not self.how.move:
            return "skipped"
        if not self.how.dry_run:
            if not there:
                await copy(job, lambda moved_bytes: self.count(0, moved_bytes), self.stop)
            if self.how.move:
                await delete_source(job)
        return self.how.verb

    def outcome(self, step: Step, result: Status | PenstockError) -> Outcome:
        """Return what came of a step."""
        here, there = self._sources[step.root].url(step.meta.key), self._target.url(step.to)
        if isinstance(result, PenstockError):
            return Outcome(here, there, step.meta.size, "failed", error=result)
        return Outcome(here, there, step.meta.size, result, step.note)


def _carry_out(steps: Iterable[Step], work: _Work) -> Generator[Outcome]:
    results = run_jobs(steps, work, lambda step: cost_bytes(step.meta), work.stop, processes=work.processes)
    with closing(results):
        for step, result in results:
            work.count(1, silent_bytes(step.meta) if result == work.how.verb else 0)
            yield work.outcome(step, result)
            if isinstance(result, PenstockError) and (work.how.fail_fast or isinstance(result, NoSpace)):
                return  # what comes next would be read in vain


def _sums(first: Sequence[Step]) -> tuple[int | None, int | None]:
    if len(first) == _AHEAD:
        return None, None
    return len(first), sum(step.meta.size for step in first)
