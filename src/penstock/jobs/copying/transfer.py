"""Copies and moves of many objects between any two places, each atomic: ``penstock cp`` and ``mv``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from threading import Event
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Delete, Put
from penstock.errors import NoSpace, PenstockError, Unusable
from penstock.jobs.copying.copy import CopyJob, copy, cost_bytes, move, silent_bytes
from penstock.jobs.copying.evidence import is_there
from penstock.jobs.tasks import run_jobs, suitable
from penstock.jobs.trees.guard import (
    LinkCheck,
    check_links,
    check_names,
    check_tree,
    find_folding,
    in_the_way,
    obstacle,
)
from penstock.jobs.trees.outcome import Outcome, Status, make_outcome
from penstock.jobs.trees.plan import CopyStep, plan, refuse_self_copy
from penstock.jobs.trees.selection import check_recursive, destination, left_out, local, require, select
from penstock.progress import bar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Source

# Objects planned before the first copy: gives totals for the bar, and most refusals before anything is done.
_AHEAD = 10_000


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """Options of ``cp`` and of ``mv`` (``move``); ``processes`` as in ``tasks.suitable``."""

    recursive: bool = False
    resume: bool = False
    dry_run: bool = False
    json: bool = False
    fail_fast: bool = False
    move: bool = False
    processes: int | None = 1

    @property
    def verb(self) -> Status:
        return "planned" if self.dry_run else "moved" if self.move else "copied"


def transfer(urls: Sequence[str], dest: str, how: TransferOptions, store: StoreOptions | str) -> Generator[Outcome]:
    """Copy or move the objects that ``urls`` name to ``dest``; yield the outcome of each object as it ends.

    A failure does not stop the other objects, unless ``how.fail_fast`` is set or no space is left.

    Requests: one or two for each of ``urls``, one for DEST, one for each 1,000 objects listed. For each object: one for
    a copy on the server, two if it is small, else one for each 8 MiB read and those of its writer; one more to a
    different store, one more with ``resume``, three more to move. A move with ``resume`` reads files that may be there
    already, to compare them.
    """
    require(dest, store, Put)
    if how.move:
        for url in urls:
            require(url, store, Delete)
        check_links(urls, store)
    selections = [select(url, store, recursive=how.recursive) for url in urls]
    if how.recursive:
        for each in selections:
            check_recursive(each)
    if how.move:
        for each in selections:
            check_tree(each, "copy it (cp -r) and then empty it (rm -r --whole-bucket), if you mean it")
    origins = [each.origin for each in selections]
    target, place = destination(dest, store, origins)
    refuse_self_copy(origins, place)
    check_names([(each.source, each.origin.prefix) for each in selections], target, place.key)
    found = [(each.origin, each.entries()) for each in selections]
    fold = find_folding(place.key) if local(target) else None
    steps = plan(origins, ((origin, meta) for origin, metas in found for meta in metas), place, fold)
    first = list(islice(steps, _AHEAD))
    for path, kind in chain.from_iterable(map(left_out, selections)):
        yield Outcome(path, "", 0, "skipped", kind)
    with bar("moving" if how.move else "copying", *_sums(first), shown=False if how.dry_run else None) as count:
        work = _StepWork(how, {each.source.root: each.source for each in selections}, (target, place.key), count)
        yield from _carry_out(chain(first, steps), work)


class _StepWork:
    """Work on one step, as a callable."""

    def __init__(
        self,
        how: TransferOptions,
        sources: dict[str, Source],
        dest: tuple[Source, str],
        count: Callable[[int, int], None],
    ) -> None:
        self.how = how
        self.stop = Event()
        self.count = count
        self.processes = suitable(how.processes, dest[0], *sources.values())
        self._sources = sources
        self._target, base = dest
        self._link = LinkCheck(base)

    async def __call__(self, step: CopyStep) -> Status:
        job = CopyJob(self._sources[step.root], step.meta, self._target, step.to, marked=self.how.move)
        if step.fault:
            raise Unusable(step.fault, url=job.source.url(step.meta.key))
        if step.note:
            return "skipped"
        if local(self._target) and (path := self._link(step.to)):
            raise Unusable("cannot write through this link to a directory: remove it, or pass its target", url=path)
        # Without a dry run, the file system refuses it.
        if self.how.dry_run and local(self._target) and (path := in_the_way("", step.to)):
            raise Unusable(f"{obstacle(path)}: remove it, or name another DEST", url=path)
        there = self.how.resume and await is_there(job, surely=self.how.move)
        if there and not self.how.move:
            return "skipped"
        if not self.how.dry_run:
            if self.how.move:
                await move(job, self._moved, self.stop, there=there)
            else:
                await copy(job, self._moved, self.stop)
        return self.how.verb

    def _moved(self, moved_bytes: int) -> None:
        self.count(0, moved_bytes)

    def outcome(self, step: CopyStep, result: Status | PenstockError) -> Outcome:
        here, there = self._sources[step.root].url(step.meta.key), self._target.url(step.to)
        return make_outcome(here, there, step.meta.size, result, step.note)


def _carry_out(steps: Iterable[CopyStep], work: _StepWork) -> Generator[Outcome]:
    results = run_jobs(steps, work, lambda step: cost_bytes(step.meta), work.stop, processes=work.processes)
    with closing(results):
        for step, result in results:
            work.count(1, silent_bytes(step.meta) if result == work.how.verb else 0)
            yield work.outcome(step, result)
            if isinstance(result, PenstockError) and (work.how.fail_fast or isinstance(result, NoSpace)):
                # The next objects would be read in vain.
                return


def _sums(first: Sequence[CopyStep]) -> tuple[int | None, int | None]:
    if len(first) == _AHEAD:
        return None, None
    return len(first), sum(step.meta.size for step in first)
