"""``ps.copy_tree``: a tree of any size is copied in parts, with records, so that nothing is done twice.

1. The source is listed once; each part is a range of its keys (``cut``). The plan is published in the job's folder.
2. A part lists its range on both sides, compares them as ``ps.sync`` does, and copies what differs.
3. The record of the part comes last. The same call, or another process, goes on with parts that have none.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from penstock.errors import Unusable, public_url
from penstock.jobs.outcome import Synced, ledger
from penstock.jobs.parts.operation import Operation, Planned, fail
from penstock.jobs.parts.records import Records
from penstock.jobs.parts.run import How, Job, check_apart
from penstock.jobs.sync import Mirror, Run, SyncOptions
from penstock.options import StoreOptions
from penstock.progress import bar
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.errors import PenstockError
    from penstock.jobs.carriers import Ray
    from penstock.jobs.parts.operation import Means, Part
    from penstock.jobs.parts.records import JobPlan, PartRecord
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = [
    "PART_OBJECTS",
    "OfRanges",
    "RangeMirror",
    "TreeCopied",
    "copy_tree",
    "cut",
    "in_parts",
    "in_range",
    "resume",
    "texts",
]

PART_OBJECTS = 20_000
_PART_BYTES = 4 << 30


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
    on: Ray | None = None,
    checksum: bool = False,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    part_objects: int = PART_OBJECTS,
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
        Unusable: One tree lies in the other, the job's folder in one of them; the folder has another job; or ``on`` is
            given with ``report``, which lists the objects of this process, or with options that hold a secret.
        PenstockError: The first failure, after all other objects and parts. The same call tries failed objects again.

    Example:
        >>> done = ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/")
        >>> done.copied, done.parts_done, done.complete
        (600, 1, True)
        >>> ps.copy_tree("s3://bucket/train/", "s3://bucket/copy/", job="s3://bucket/jobs/copy/").copied
        600

    """
    options = SyncOptions(checksum=bool(checksum), include=texts(include), exclude=texts(exclude))
    given = StoreOptions() if store is None else store
    if on is not None and report is not None:
        raise Unusable("report= lists what this process copies, and on= copies elsewhere: read the records of the job")
    mirror = Run(source, dest, options, given).mirror
    here, there = (side.url(prefix) for side, prefix in mirror.trees)
    check_apart(Records(job, given), here, there)
    operation = _CopyTree(here, there, options, given, whole(part_objects, "part_objects", 1))
    with ledger(report, mirror.trees) as note:
        sums = Job(operation, job, How(part, on, progress, processes, note)).work()
    found = TreeCopied(
        parts=sums.parts, parts_done=sums.parts_done, parts_failed=sums.parts_failed, seconds=sums.seconds
    )
    for name in _CopyTree.counts:
        setattr(found, name, sums.counts[name])
    return found


def resume(records: Records, plan: JobPlan, **options: Any) -> TreeCopied:  # noqa: ANN401  those of copy_tree
    """Continue a job of this operation with the arguments that its plan has; see ``copy_tree`` for ``options``."""
    named = {name: plan.arguments[name] for name in ("checksum", "include", "exclude")}
    return copy_tree(plan.arguments["source"], plan.arguments["dest"], job=records.url, **named, **options)


def texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return one text or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


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
class RangeMirror(Mirror):
    """The part of two trees whose names lie after ``after`` and, unless it is None, not after ``until``.

    Attributes:
        after: Name that precedes the first one; empty: none.
        until: The last name; None: there is no last one.

    """

    after: str = ""
    until: str | None = None

    @classmethod
    def of(cls, mirror: Mirror, after: str, until: str | None) -> Self:
        """Return the range of two trees."""
        trees = mirror.source, mirror.prefix, mirror.target, mirror.base
        return cls(*trees, mirror.chosen, mirror.seen, after, until)

    def listed(self, source: Source, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the selected objects of a side that lie in the range."""
        for entries in in_range(source, prefix, self.after, self.until):
            yield from self.chosen_of(source, prefix, entries)


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


def in_parts(metas: Iterable[tuple[str, int]], most_objects: int) -> Planned:
    """Return the ranges of sorted names with their sizes, each as its last name, objects and bytes."""
    parts, objects, size_bytes = list[tuple[str, int, int]](), 0, 0
    with bar("listing", None, None) as count:
        for last, number, taken_bytes in cut(metas, most_objects, _PART_BYTES):
            parts.append((last, number, taken_bytes))
            objects, size_bytes = objects + number, size_bytes + taken_bytes
            count(number, 0)
    return Planned(parts, objects, size_bytes)


class OfRanges(Operation):
    """An operation whose parts are ranges of keys."""

    __slots__ = ()

    def piece(self, plan: JobPlan, number: int) -> tuple[str, str | None]:
        """Return the name before a part, and its last name: ranges leave no gaps, and the last one has no end."""
        after = plan.parts[number - 1][0] if number else ""
        return after, None if number + 1 == len(plan.parts) else plan.parts[number][0]


@dataclass(frozen=True, slots=True)
class _CopyTree(OfRanges):
    """Copies of ranges of keys."""

    name: ClassVar[str] = "copy_tree"
    verb: ClassVar[str] = "copying"
    counts: ClassVar[tuple[str, ...]] = ("copied", "copied_bytes", "unchanged", "skipped", "failed")

    source: str
    dest: str
    options: SyncOptions
    store: StoreOptions | str
    part_objects: int

    @property
    def arguments(self) -> dict[str, Any]:
        """The two trees, and what is compared."""
        options = self.options
        names = {"source": public_url(self.source), "dest": public_url(self.dest), "checksum": options.checksum}
        return names | {"include": [*options.include], "exclude": [*options.exclude]}

    def planned(self) -> Planned:
        """List the source."""
        mirror = Run(self.source, self.dest, self.options, self.store).mirror
        # Raises where there is nothing.
        found = mirror.steps(empty=False, deleting=False)
        skip = len(mirror.prefix)
        return in_parts(((step.meta.key[skip:], step.meta.size) for step in found), self.part_objects)

    def work(self, part: Part, record: PartRecord, means: Means) -> PenstockError | None:
        """Compare the range on both sides, and copy what differs."""
        run = Run(self.source, self.dest, replace(self.options, allow_empty=True), self.store)
        run.mirror = RangeMirror.of(run.mirror, *part.piece)
        counts, first = Synced(), None
        with closing(run.outcomes(processes=means.processes, count=means.count)) as outcomes:
            for outcome in outcomes:
                means.note(outcome)
                counts.add(outcome)
                if outcome.error is not None:
                    first = first or outcome.error
                    fail(record, outcome.error, outcome.source or outcome.dest)
        counts.unchanged = run.unchanged
        record.counts = {name: getattr(counts, name) for name in self.counts}
        return first
