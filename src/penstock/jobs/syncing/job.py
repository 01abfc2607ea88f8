"""``ps.sync`` and ``ps.copy_tree``: in this process as ``sync`` does it; with ``job``, ranges of names are parts.

1. The source is listed once; each part is a range of its names (``cut_keys``). The plan is published in the job's
folder. 2. A part lists its range on both sides, copies differing objects, and deletes those only at the destination, if
asked to. 3. The record of the part comes last. The same call, or another process, continues with parts that have none.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from struct import Struct
from time import time
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.engine.listing.select import globs
from penstock.errors import Damaged, PenstockError, Unusable, worse_of
from penstock.jobs.parts.operation import JobPart, Means, Operation, Planned, fail
from penstock.jobs.parts.records import JobPlan, PartRecord, Records
from penstock.jobs.parts.run import Job, JobOptions, check_apart
from penstock.jobs.syncing.mirror import SIEVE_BYTES, Sieve, SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.jobs.trees.outcome import Synced, ledger
from penstock.jobs.trees.selection import local
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.schema import COUNT
from penstock.source import open_source
from penstock.values import Span, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.parts.records import PlanJournal
    from penstock.jobs.syncing.mirror import Mirror

PART_OBJECTS = 20_000
_PART_BYTES = 4 << 30
# Of a plan: each process reads it at its start.
MOST_PARTS = 1 << 17
_MOST_NAME_BYTES = 16 << 20
# Of a kept sieve: when its listing began.
_HEAD = Struct("<d")
_FORM = {"source": str, "dest": str, "include": [str], "exclude": [str]}
_FORM |= dict.fromkeys(("delete", "checksum", "allow_empty", "whole_bucket"), bool)


def sync(  # noqa: PLR0913  each is named in the call
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    delete: bool = False,
    checksum: bool = False,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    dry_run: bool = False,
    allow_empty: bool = False,
    whole_bucket: bool = False,
    job: str | os.PathLike[str] | None = None,
    part: str | None = None,
    on: Ray | None = None,
    part_objects: int = PART_OBJECTS,
    report: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    processes: int | None = 1,
    store: StoreOptions | str | None = None,
) -> Synced:
    """Make the tree ``dest`` equal to the tree ``source``; both are directories or prefixes.

    An object is copied unless the destination has it with the same size and the same content or time (exact rule:
    docs/sync.md). Each object is replaced atomically: repeat an interrupted sync to continue it. Between stores,
    objects pass through memory, never through a file.

    With ``job``, for trees of millions of objects, each range of names is a part, recorded in a folder once it is done
    and not looked at again: the same call continues after a stop of any kind, and several processes or machines share
    the parts. ``delete`` then deletes the names of a part after its copies, if none of them failed. Objects that are
    added to the source later are copied if their part has not run yet. Memory does not grow with the tree.

    Requests: one for each 1,000 objects on either side; for each copied object those of ``penstock cp``; three for each
    deleted object. With ``job``, the source is listed twice, and a part takes three more. Memory: up to 512 MiB of
    objects, and the keys of the objects to delete.

    Args:
        source: Directory or prefix to copy from.
        dest: Directory or prefix to copy to.
        delete: Delete objects at the destination that the source does not have, at the end and only if nothing failed.
        checksum: Compare contents, never times.
        include: Globs of relative keys, for both sides: only matching keys take part; default: all.
        exclude: Globs of relative keys, for both sides: matching keys are ignored, and stay at the destination.
        dry_run: Change nothing.
        allow_empty: Accept an empty source; with ``delete``, this empties the destination.
        whole_bucket: Allow ``delete`` on a whole bucket.
        job: Folder for the records of parts, outside both trees; local or in any store. It stays; ``penstock jobs``
            shows it. Default: none are written.
        part: This process's share of the parts, such as ``"3/16"``: the third of sixteen; with ``job``.
        on: Ray cluster that does the parts; with ``job``. Default: this process.
        part_objects: Most objects of a part, which has 4 GiB at most unless an object is larger; only the call that
            makes the plan looks at it.
        report: File for one line of JSON per object that was copied, deleted, left out or failed.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.
        processes: Processes that copy small objects, this one included; None: as many as processors, at most 4.
        store: Options of both sides and of the job's folder, or the name of a profile.

    Returns:
        Numbers of objects that were copied, unchanged, deleted, left out, or would have been changed (``dry_run``).
        With ``job``, those of all recorded parts of this process's share, earlier calls included.

    Raises:
        NotFound: The source has no objects to copy. Nothing was changed.
        Unusable: One tree contains the other; ``delete`` on a protected place; a switch that is not True or False;
            ``part``, ``on`` or ``part_objects`` without ``job``. With ``job``: it is in a tree or has another job,
            ``dry_run``, or ``on`` with ``report``.
        PenstockError: The worst failure, after all other objects were copied; nothing was deleted, or nothing in parts
            with failures. The same call tries failed objects again.

    Example:
        >>> ps.sync("s3://bucket/train/3/", "images").copied
        60
        >>> ps.sync("s3://bucket/train/3/", "images").unchanged
        60
        >>> done = ps.sync("s3://bucket/train/", "s3://bucket/mirror/", delete=True, job="s3://bucket/jobs/mirror/")
        >>> done.copied, done.parts_done, done.complete
        (600, 1, True)
    """
    given = StoreOptions() if store is None else store
    options = SyncOptions(delete, checksum, globs(include), globs(exclude), dry_run, allow_empty, whole_bucket)
    most = whole(part_objects, "part_objects", 1)
    run = SyncRun(source, dest, options, given)
    if job is not None:
        return _in_parts(run, job, given, most, report, JobOptions(part, on, progress, processes))
    if part is not None or on is not None or most != PART_OBJECTS:
        raise Unusable("part=, on= and part_objects= are for the parts of a job: pass job=, a folder for its records")
    found, worst = Synced(), None
    outcomes = run.outcomes(progress=progress, processes=processes)
    with ledger(report, run.mirror.trees) as note, closing(outcomes):
        for outcome in outcomes:
            note(outcome)
            found.add(outcome)
            worst = worse_of(worst, outcome.error)
    found.unchanged = run.unchanged
    if worst is not None:
        if found.failed > 1:
            worst.message += f"; {found.failed:,} objects failed, {found.copied:,} were copied"
        raise worst
    return found


def copy_tree(  # noqa: PLR0913  each is named in the call
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    job: str | os.PathLike[str],
    part: str | None = None,
    on: Ray | None = None,
    checksum: bool = False,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    part_objects: int = PART_OBJECTS,
    report: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    processes: int | None = 1,
    store: StoreOptions | str | None = None,
) -> Synced:
    """Copy the tree ``source`` to ``dest`` in parts, each recorded in the folder ``job`` once it is done.

    The same job as ``ps.sync`` with ``job`` and without ``delete``: nothing is deleted at the destination.

    Requests: those of ``ps.sync`` with ``job``.

    Args:
        source: Directory or prefix to copy from.
        dest: Directory or prefix to copy to.
        job: Folder for the records, outside both trees; local or in any store. It stays; ``penstock jobs`` shows it.
        part: This process's share of the parts, such as ``"3/16"``: the third of sixteen. Default: all.
        on: Ray cluster that does the parts; default: this process.
        checksum: Compare contents, never times: see ``ps.sync``.
        include: Globs of relative keys of which one has to match; default: all.
        exclude: Globs of relative keys that are left out.
        part_objects: Most objects of a part; only the call that makes the plan looks at it.
        report: File for one line of JSON per object that this call copied, left out or failed to copy.
        progress: Show a bar on standard error; default: if that is a terminal and rich is installed.
        processes: Processes that copy small objects, this one included; None: as many as processors, at most 4.
        store: Options of both sides and of the job's folder, or the name of a profile.

    Returns:
        The counts of all recorded parts of this process's share.

    Raises:
        NotFound: The source has no objects to copy.
        Unusable: One tree contains the other, the job's folder in one of them; the folder has another job; or ``on`` is
            given with ``report``, which lists the objects of this process, or with options that hold a secret.
        PenstockError: The worst failure, after all other objects and parts. The same call tries failed objects again.

    Example:
        >>> done = ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/")
        >>> done.copied, done.parts_done, done.complete
        (600, 1, True)
        >>> ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/").copied
        600
    """
    return sync(
        source, dest, job=os.fspath(job), part=part, on=on, part_objects=part_objects, report=report, progress=progress,
        processes=processes, store=store, checksum=checksum, include=include, exclude=exclude,
    )  # fmt: skip


def resume(records: Records, plan: JobPlan, **options: Any) -> Synced:  # noqa: ANN401  those of sync
    return sync(**plan.chosen(_FORM, records.url), job=records.url, **options)


def _in_parts(
    run: SyncRun,
    job: str | os.PathLike[str],
    store: StoreOptions | str,
    part_objects: int,
    report: str | os.PathLike[str] | None,
    how: JobOptions,
) -> Synced:
    if run.options.dry_run:
        raise Unusable("dry_run=True (--dry-run) shows what one process would do: leave out job= (--job)")
    if how.on is not None and report is not None:
        raise Unusable("report= lists copies of this process, but on= uses others: read the records of the job")
    here, there = (side.url(prefix) for side, prefix in run.mirror.trees)
    records = Records(job, store)
    check_apart(records, store, here, there)
    operation = _Sync(here, there, run.options, store, part_objects, records.url)
    with ledger(report, run.mirror.trees) as note:
        sums = Job(operation, job, replace(how, note=note)).work()
    found = Synced(parts=sums.parts, parts_done=sums.parts_done, parts_failed=sums.parts_failed, seconds=sums.seconds)
    for name in operation.counts:
        setattr(found, name, sums.counts[name])
    return found


def cut_keys(metas: Iterable[tuple[str, int]], most_objects: int, most_bytes: int) -> Iterator[tuple[str, int, int]]:
    """Cut sorted keys with their sizes into parts: yield the last key of each, its objects and its bytes. Pure."""
    last, objects, size_bytes = "", 0, 0
    for key, size in metas:
        if objects and (objects == most_objects or size_bytes + size > most_bytes):
            yield last, objects, size_bytes
            objects = size_bytes = 0
        last, objects, size_bytes = key, objects + 1, size_bytes + max(size, 0)
    if objects:
        yield last, objects, size_bytes


def in_parts(
    listed: Callable[[str], Iterable[tuple[str, int]]], most_objects: int, journal: PlanJournal | None = None
) -> Planned:
    """Return the ranges of sorted names with their sizes, each as its last name, objects and bytes.

    ``listed`` yields the names after a given one. A planner that was killed is continued from its journal.
    """
    parts = [] if journal is None else journal.read()
    objects, size_bytes = sum(each[1] for each in parts), sum(each[2] for each in parts)
    with bar("listing", None, None) as count:
        count(objects, 0)
        for part in cut_keys(listed(parts[-1][0] if parts else ""), most_objects, _PART_BYTES):
            parts.append(part)
            objects, size_bytes = objects + part[1], size_bytes + part[2]
            count(part[1], 0)
            if journal is not None and journal.is_due(objects):
                journal.write(join_neighbours(parts), objects)
    return Planned(join_neighbours(parts), objects, size_bytes)


def join_neighbours(parts: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Join neighbours of ``cut_keys`` until a plan of them is small, however much there is to do."""
    while len(parts) > MOST_PARTS or sum(len(json.dumps(last)) for last, *_ in parts) > _MOST_NAME_BYTES:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [(pair[-1][0], sum(each[1] for each in pair), sum(each[2] for each in pair)) for pair in pairs]
    return parts


class OfRanges(Operation):
    """Operation whose parts are ranges of keys: the last name of each, its objects and its bytes."""

    __slots__ = ()

    part: ClassVar[object] = [str, COUNT, COUNT]

    def planned(self) -> Planned:
        return self.make_plan(None)

    @abstractmethod
    def make_plan(self, journal: PlanJournal | None) -> Planned: ...

    def piece(self, plan: JobPlan, number: int) -> tuple[str, str | None]:
        """Return the name before a part, and its last name: ranges have no gaps, and the last has no end."""
        after = plan.parts[number - 1][0] if number else ""
        return after, None if number + 1 == len(plan.parts) else plan.parts[number][0]


@dataclass(frozen=True, slots=True)
class _Sync(OfRanges):
    """Copies of ranges of names, and deletions in them."""

    name: ClassVar[str] = "sync"
    verb: ClassVar[str] = "syncing"
    counts: ClassVar[tuple[str, ...]] = ("copied", "copied_bytes", "unchanged", "deleted", "skipped", "failed")
    places: ClassVar[tuple[str, ...]] = ("source", "dest")
    shares: ClassVar[bool] = True

    source: str
    dest: str
    options: SyncOptions
    store: StoreOptions | str
    part_objects: int
    job: str

    def details(self) -> dict[str, Any]:
        given = asdict(self.options) | {"include": [*self.options.include], "exclude": [*self.options.exclude]}
        # No job is a dry run.
        del given["dry_run"]
        return given

    def make_plan(self, journal: PlanJournal | None) -> Planned:
        run, began_s = self._run(), time()
        mirror, sieve = run.mirror, run.sieve()
        # A sieve has all names of the source, so its listing begins anew.
        planned = in_parts(partial(list_names, mirror, self.options), self.part_objects, None if sieve else journal)
        if sieve is not None:
            source, key = open_source(self._kept, self.store)
            source.put(key, _HEAD.pack(began_s) + sieve.bits)
        # What the destination has is deleted by one part.
        return planned if planned.parts else Planned([("", 0, 0)], 0, 0)

    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        run = self._run(part.piece)
        if not run.mirror.whole and not local(run.mirror.target):
            # A file may have come later than its time says.
            run.sieve = partial(_sieve, self._kept, self.store, means.records.run)
        counts, worst = Synced(), None
        with closing(run.outcomes(processes=means.processes, count=means.count)) as outcomes:
            for outcome in outcomes:
                means.note(outcome)
                counts.add(outcome)
                if outcome.error is not None:
                    worst = worse_of(worst, outcome.error)
                    fail(record, outcome.error, outcome.source or outcome.dest)
        counts.unchanged = run.unchanged
        record.counts = {name: getattr(counts, name) for name in self.counts}
        return worst

    def finish(self, plan: JobPlan, records: Records) -> None:  # noqa: ARG002  of every operation
        """Remove files of killed writers from a directory, once for all parts."""
        self._run().clear()

    @property
    def _kept(self) -> str:
        return Records(self.job, self.store).place("source.sieve")

    def _run(self, piece: tuple[str, str | None] = ("", None)) -> SyncRun:
        return SyncRun(self.source, self.dest, self.options, self.store, piece)


def list_names(mirror: Mirror, options: SyncOptions, after: str) -> Iterator[tuple[str, int]]:
    """Return names and sizes of the source's objects after one; without any object at all, raise unless allowed."""
    mirror = replace(mirror, after=after)
    skip = len(mirror.prefix)
    found = mirror.list_source(empty=options.allow_empty or bool(after), deleting=options.delete)
    return ((each.key[skip:], each.size) for each in found)


@lru_cache(maxsize=1)
def _sieve(url: str, store: StoreOptions | str, run: str) -> Sieve:  # noqa: ARG001  part of the key
    """Return the Bloom filter of the source's objects that the planner has kept for a run of the job."""
    source, key = open_source(url, store)
    data = source.read(Span(key))
    if len(data) != _HEAD.size + SIEVE_BYTES:
        size = _HEAD.size + SIEVE_BYTES
        raise Damaged(f"cannot read the Bloom filter of a job: it must have {size} bytes, got {len(data)}", url=url)
    return Sieve(data[_HEAD.size :], *_HEAD.unpack(data[: _HEAD.size]))
