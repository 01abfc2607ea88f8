"""``ps.copy_tree``: a tree of any size is copied in parts, with records, so that nothing is done twice.

1. The source is listed once; each part is a range of its keys (``cut``). The plan is published in the job's folder.
2. A part lists its range on both sides, compares them as ``ps.sync`` does, and copies what differs.
3. The record of the part comes last. The same call, or another process, goes on with parts that have none.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, Unusable, public_url
from penstock.jobs.outcome import Synced, ledger
from penstock.jobs.records import JobPlan, PartRecord, Records, Share
from penstock.jobs.sync import Mirror, Run, SyncOptions
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from penstock.jobs.outcome import Outcome
    from penstock.progress import Count
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["TreeCopied", "copy_tree", "cut", "job_run"]

_OPERATION = "copy_tree"
_PART_OBJECTS = 20_000
_PART_BYTES = 4 << 30
_FAILURES = 20  # in the record of a part
_COUNTS = ("copied", "copied_bytes", "unchanged", "skipped", "failed")


@dataclass(slots=True)
class TreeCopied(Synced):
    """Result of ``ps.copy_tree``: the counts of all parts that are recorded, those of earlier calls included.

    Attributes:
        parts: Number of parts of the job.
        parts_done: Parts that are done, without a failure.
        parts_failed: Parts in which objects failed.
        seconds: Seconds that the recorded parts took, added up.

    """

    parts: int = 0
    parts_done: int = 0
    parts_failed: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether all parts are done."""
        return self.parts_done == self.parts


def copy_tree(  # noqa: PLR0913  see design/0091
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    job: str | os.PathLike[str],
    part: str | None = None,
    checksum: bool = False,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    part_objects: int = _PART_OBJECTS,
    report: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    processes: int | None = 1,
    store: StoreOptions | str | None = None,
) -> TreeCopied:
    """Copy the tree ``source`` to ``dest`` in parts, each recorded in the folder ``job`` once it is done.

    For trees of millions of objects. The same call continues after a stop of any kind, a kill included: parts that are
    recorded are not looked at again, and the others copy what is missing. Several processes or machines share the work
    with ``part="1/16"`` to ``"16/16"``, as the tasks of an array in Slurm or Kubernetes; any of them makes the plan.

    A part is a range of keys, of at most ``part_objects`` objects and 4 GiB where one object is not larger. Within a
    part, objects are compared and copied as by ``ps.sync``: one that the destination has is not copied. Nothing is
    deleted at the destination. Objects that are added to the source later are copied if their part has not run yet.

    Requests: one for each 1,000 objects of the source for the plan, and again on both sides in the parts; for each
    copied object those of ``penstock cp``; three for each part. Memory does not grow with the number of objects.

    Args:
        source: Directory or prefix to copy from.
        dest: Directory or prefix to copy to.
        job: Folder for the records, outside both trees; local or in any store. It stays; ``penstock jobs`` shows it.
        part: This process's share of the parts, such as ``"3/16"``: the third of sixteen. Default: all.
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
        Unusable: One tree lies in the other, the job's folder in one of them; or the folder has another job.
        PenstockError: The first failure, after all other objects and parts. The same call tries failed objects again.

    Example:
        >>> done = ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/")
        >>> done.copied, done.parts_done, done.complete
        (600, 1, True)
        >>> ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/").copied
        600

    """
    options = SyncOptions(checksum=checksum, include=include, exclude=exclude)
    given = StoreOptions() if store is None else store
    records, share = Records(job, given), Share.of(part)
    run = Run(source, dest, options, given)
    _check_apart(records, run.mirror)
    arguments = {
        "source": public_url(run.mirror.source.url(run.mirror.prefix)),
        "dest": public_url(run.mirror.target.url(run.mirror.base)),
        "checksum": bool(checksum),
        "include": [include] if isinstance(include, str) else [*include],
        "exclude": [exclude] if isinstance(exclude, str) else [*exclude],
    }
    like = JobPlan(_OPERATION, arguments, (), 0, 0, datetime.now(UTC).isoformat(timespec="seconds"))
    most = whole(part_objects, "part_objects", 1)
    plan = records.planned(lambda: _planned(run.mirror, like, most), like)
    with ledger(report, run.mirror.trees) as note:
        return _Parts(records, plan, share, (source, dest, options, given)).work(
            note, progress=progress, processes=processes
        )


def job_run(records: Records, plan: JobPlan, **options: Any) -> TreeCopied:  # noqa: ANN401  those of copy_tree
    """Continue a job of this operation with the arguments that its plan has; see ``copy_tree`` for ``options``."""
    if plan.operation != _OPERATION:
        raise Unusable(f"a job of {plan.operation} is not one of {_OPERATION}", url=records.url)
    named = {name: plan.arguments[name] for name in ("checksum", "include", "exclude")}
    return copy_tree(plan.arguments["source"], plan.arguments["dest"], job=records.url, **named, **options)


def cut(metas: Iterable[tuple[str, int]], most_objects: int, most_bytes: int) -> Iterator[tuple[str, int, int]]:
    """Cut sorted keys with their sizes into parts: yield the last key of each, its objects and its bytes. Pure."""
    last, objects, size_bytes = "", 0, 0
    for key, size in metas:
        if objects and (objects == most_objects or size_bytes + size > most_bytes):
            yield last, objects, size_bytes
            objects = size_bytes = 0
        last, objects, size_bytes = key, objects + 1, size_bytes + max(size, 0)
    if objects:
        yield last, objects, size_bytes


@dataclass(frozen=True, slots=True)
class _RangeMirror(Mirror):
    """The part of two trees whose names lie after ``after`` and, unless it is None, not after ``until``."""

    after: str = ""
    until: str | None = None

    def listed(self, source: Source, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the selected objects of a side that lie in the range."""
        start = prefix + self.after if self.after else ""
        stop = None if self.until is None else _order(prefix + self.until)
        for page in source.pages(prefix, start_after=start):
            entries = page.entries
            over = stop is not None and bool(entries) and _order(entries[-1].key) > stop
            if over:
                entries = [each for each in entries if _order(each.key) <= (stop or b"")]
            yield from self.chosen_of(source, prefix, entries)
            if over:
                return


def _order(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _planned(mirror: Mirror, like: JobPlan, most_objects: int) -> JobPlan:
    skip, parts, objects, size_bytes = len(mirror.prefix), list[Any](), 0, 0
    with bar("listing", None, None) as count:
        # Raises where there is nothing.
        steps = mirror.steps(empty=False, deleting=False)
        metas = ((step.meta.key[skip:], step.meta.size) for step in steps)
        for last, number, taken_bytes in cut(metas, most_objects, _PART_BYTES):
            parts.append([last, number, taken_bytes])
            objects, size_bytes = objects + number, size_bytes + taken_bytes
            count(number, 0)
    return replace(like, parts=tuple(parts), objects=objects, size_bytes=size_bytes)


def _check_apart(records: Records, mirror: Mirror) -> None:
    for source, prefix in mirror.trees:
        tree = source.url(prefix)
        if records.url.startswith(tree) or tree.startswith(records.url):
            raise Unusable(f"the records of a job lie outside the trees: {records.url} and {tree} overlap")


class _Counted:
    """A counter of one part, which passes on what it counts."""

    def __init__(self, count: Count) -> None:
        self._count, self._objects, self._bytes = count, 0, 0

    def __call__(self, objects: int, size_bytes: int) -> None:
        self._objects, self._bytes = self._objects + objects, self._bytes + size_bytes
        self._count(objects, size_bytes)

    def up_to(self, objects: int, size_bytes: int) -> None:
        """Count what is missing to these totals."""
        self(objects - self._objects, size_bytes - self._bytes)


@dataclass(slots=True)
class _Parts:
    """The parts of a job that this process does."""

    records: Records
    plan: JobPlan
    share: Share
    how: tuple[Any, Any, SyncOptions, StoreOptions | str]
    first: PenstockError | None = field(default=None, init=False)
    stop: Event = field(default_factory=Event, init=False)

    def work(self, note: Callable[[Outcome], None], *, progress: bool | None, processes: int | None) -> TreeCopied:
        """Do the parts that have no record; return the counts of all parts of the share.

        Raises:
            PenstockError: The first failure.

        """
        mine = [number for number in range(len(self.plan.parts)) if self.share.has(number)]
        there, failed = (self.records.numbers(failed=each) for each in (False, True))
        whole_objects = sum(self._part(number)[1] for number in mine)
        whole_bytes = sum(self._part(number)[2] for number in mine)
        with bar("copying", whole_objects, whole_bytes, shown=progress) as count:
            for number in mine:
                counted = _Counted(count)
                if number not in there:
                    record = self._done(number, note, processes, counted)
                    self.records.write(record, again=number in failed)
                # Objects that are there already, or were added or removed since.
                counted.up_to(*self._part(number)[1:])
        found = self._counted(mine)
        if self.first is not None:
            if found.failed > 1:
                self.first.message += f"; {found.failed:,} objects failed, {found.copied:,} were copied"
            raise self.first
        return found

    def _part(self, number: int) -> tuple[str, int, int]:
        last, objects, size_bytes = self.plan.parts[number]
        return last, objects, size_bytes

    def _done(self, number: int, note: Callable[[Outcome], None], processes: int | None, count: Count) -> PartRecord:
        began_s = monotonic()
        source, dest, options, store = self.how
        run = Run(source, dest, replace(options, allow_empty=True), store)
        after = self._part(number - 1)[0] if number else ""
        until = None if number + 1 == len(self.plan.parts) else self._part(number)[0]
        mirror = run.mirror
        run.mirror = _RangeMirror(
            mirror.source, mirror.prefix, mirror.target, mirror.base, mirror.chosen, mirror.seen, after, until
        )
        counts, record = Synced(), PartRecord(number)
        with closing(run.outcomes(processes=processes, count=count)) as outcomes:
            for outcome in outcomes:
                note(outcome)
                counts.add(outcome)
                self._failed(outcome, record)
        counts.unchanged = run.unchanged
        record.counts = {name: getattr(counts, name) for name in _COUNTS}
        record.seconds = round(monotonic() - began_s, 3)
        return record

    def _failed(self, outcome: Outcome, record: PartRecord) -> None:
        if outcome.error is None:
            return
        self.first = self.first or outcome.error
        if len(record.failures) < _FAILURES:
            record.failures.append({"url": public_url(outcome.source or outcome.dest), "error": str(outcome.error)})

    def _counted(self, mine: list[int]) -> TreeCopied:
        done, failed = (self.records.numbers(failed=each) & {*mine} for each in (False, True))
        failed -= done
        found = TreeCopied(parts=len(mine), parts_done=len(done), parts_failed=len(failed))
        for record in [*self.records.read(done), *self.records.read(failed, failed=True)]:
            for name in _COUNTS:
                setattr(found, name, getattr(found, name) + record.counts.get(name, 0))
            found.seconds += record.seconds
        return found
