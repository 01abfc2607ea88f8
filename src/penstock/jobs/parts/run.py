"""The loop of every job in parts: plan, give parts to a carrier, record results, finish."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from logging import getLogger
from typing import TYPE_CHECKING, NoReturn, TypeVar

from penstock.errors import Changed, Conflict, Damaged, NotFound, PenstockError, Unusable, public_url, worse_of
from penstock.events import JobCounts, count_job
from penstock.events import operation as traced
from penstock.jobs.parts.carriers import Ray, carrier
from penstock.jobs.parts.operation import JobPart, Means, Operation, ignore
from penstock.jobs.parts.records import JobPlan, PartRecord, Records, Share
from penstock.jobs.trees.selection import tree
from penstock.progress import bar
from penstock.source import open_source
from penstock.values import whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Hashable, Iterator

    from penstock.jobs.parts.records import PlanJournal
    from penstock.jobs.trees.outcome import Outcome
    from penstock.options import StoreOptions
    from penstock.progress import Count

T = TypeVar("T")

_LOG = getLogger("penstock")
# Parts in a row that fail as a whole, before the others are not tried.
_LOST = 20
# At a result that other processes of the job write at the same time.
_LOOKS = 8


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Part that a process takes in a job."""

    part: str | None = None  # its share, such as "3/16"; None: all parts
    on: Ray | None = None  # does the parts; None: this process
    progress: bool | None = None
    processes: int | None = 1  # that share the parts, or small objects of each (``Operation.shares``)
    note: Callable[[Outcome], None] = ignore  # takes the outcome of each object; this process only


@dataclass(slots=True)
class Sums:
    """Sums of the records of a share of the parts."""

    parts: int = 0
    parts_done: int = 0  # without a failure
    parts_failed: int = 0  # with failures of objects
    seconds: float = 0.0  # of the recorded parts, added up
    counts: Counter[str] = field(default_factory=Counter)
    digests: int = 0  # ``notes["digest"]`` of the parts, as numbers, added up

    def add(self, record: PartRecord) -> None:
        self.parts_failed += record.failed > 0
        self.parts_done += not record.failed
        self.seconds += record.seconds
        self.counts.update(record.counts)
        self.digests += int(record.notes.get("digest", "0"), 16)


class Job:
    """Job as one process sees it: its operation, its records and its plan."""

    def __init__(self, operation: Operation, job: str | os.PathLike[str], how: JobOptions) -> None:
        self.operation, self._how = operation, how
        self._share = Share.of(how.part)
        if how.processes is not None:
            whole(how.processes, "processes", 1)
        if how.on is not None and how.processes not in (None, 1):
            raise Unusable(
                f"processes={how.processes} is for one machine, but on= gives each part to a process of the cluster: "
                "leave it out"
            )
        self._processes = how.processes if operation.shares else 1
        self._carrier = carrier(how.on, operation, 1 if operation.shares else how.processes)
        self.records = Records(job, operation.store)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        places = {public_url(each): open_source(each, operation.store)[0].place for each in operation.urls}
        places = {url: place for url, place in places.items() if place}
        like = JobPlan(operation.name, operation.arguments, (), 0, 0, now, places)
        self.plan = self.records.planned(lambda journal: self._planned(like, journal), like, operation.part)

    def _planned(self, like: JobPlan, journal: PlanJournal) -> JobPlan:
        parts, objects, size_bytes = self.operation.make_plan(journal)
        return replace(like, parts=tuple(parts), objects=objects, size_bytes=size_bytes)

    def work(self) -> Sums:
        """Do the parts of the share without a record; finish once all are done; raise the worst failure."""
        with traced("job", str, self.records.url):
            return self._work()

    def _work(self) -> Sums:
        mine = [number for number in range(len(self.plan.parts)) if self._share.has(number)]
        there, failed = (self.records.numbers(failed=each) for each in (False, True))
        sizes = {number: self.plan.parts[number][-2:] for number in mine}
        objects, size_bytes = (sum(each[at] for each in sizes.values()) for at in (0, 1))
        worst: PenstockError | None = None
        with bar(self.operation.verb, objects, size_bytes, shown=self._how.progress) as count, self._interrupted():
            counted = _PlannedCounter(count)
            for number in mine:
                if number in there:
                    counted.part(*sizes[number])
            todo = (
                JobPart(number, self.operation.piece(self.plan, number), number in failed)
                for number in mine
                if number not in there
            )
            means = Means(self.records, self._processes, counted, self._how.note)
            lost = 0
            with closing(self._carrier.carried(self.operation, todo, means)) as ended:
                for record, error in ended:
                    # Objects that were there already, or were added or removed since.
                    counted.part(*sizes[record.part])
                    count_job(self.operation.name, _count_record(record, sizes[record.part][0]))
                    worst = worse_of(worst, error)
                    lost = 0 if error is None or set(record.counts) != {"failed"} else lost + 1
                    if lost == _LOST:
                        raise worst or PenstockError("parts failed")
        sums = self.sums(mine)
        if worst is not None:
            if sums.counts["failed"] > 1:
                worst.message += f"; {sums.counts['failed']:,} objects failed in {sums.parts_failed:,} parts"
            raise worst
        if sums.parts_done < len(mine):
            raise NotFound(
                "records of this job were deleted while it ran: delete the rest (penstock jobs rm), then repeat "
                "the call to start over",
                url=self.records.url,
            )
        self._finish()
        return sums

    def sums(self, mine: list[int]) -> Sums:
        found = Sums(parts=len(mine))
        for record in self.records.read_all({*mine}.__contains__):
            found.add(record)
        return found

    def _finish(self) -> None:
        if self.records.numbers() >= {*range(len(self.plan.parts))} and not self.records.finished():
            self._finish_once()
            self.records.finish()

    def _finish_once(self) -> None:
        """Do the last step; other processes may do it at the same time, and interfere."""
        for _ in range(_LOOKS):
            with suppress(Conflict, Damaged, NotFound):
                return self.operation.finish(self.plan, self.records)
            if self.records.finished():
                return None
        return self.operation.finish(self.plan, self.records)

    @contextmanager
    def _interrupted(self) -> Generator[None]:
        """Print how to continue when the work is interrupted, by Ctrl-C or SIGTERM."""
        try:
            with _terminable():
                yield
        except (KeyboardInterrupt, SystemExit):
            command = f", or: penstock jobs resume {self.records.url}" if self.operation.resumes else ""
            _LOG.warning("interrupted; parts that are done are recorded: repeat the same call%s", command)
            raise


def require_job(part: str | None, on: Ray | None, processes: int | None = 1) -> None:
    """Refuse options that distribute the parts of a job, in a call without a job."""
    if part is not None or on is not None or processes != 1:
        raise Unusable("part=, on= and processes= distribute the parts of a job: pass job=, a folder for its records")


def complete_job(operation: Operation, job: str | os.PathLike[str], how: JobOptions, read: Callable[[], T]) -> T | None:
    """Do a job, and read the result of its last step (of any process); None if others have parts left."""
    work = Job(operation, job, how)
    work.work()
    if not work.records.finished():
        return None
    for _ in range(_LOOKS):
        with suppress(Changed):
            return read()
    return read()


def _count_record(record: PartRecord, objects: int) -> JobCounts:
    moved = sum(number for name, number in record.counts.items() if name.endswith("bytes"))
    return JobCounts(1, record.failed > 0, objects, record.failed, moved, record.seconds, record.cpu_seconds)


class _PlannedCounter:
    """Counter that reaches each part's planned size when the part ends."""

    def __init__(self, count: Count) -> None:
        self._count, self._objects, self._bytes = count, 0, 0

    def __call__(self, objects: int, size_bytes: int) -> None:
        self._objects, self._bytes = self._objects + objects, self._bytes + size_bytes
        self._count(objects, size_bytes)

    def part(self, objects: int, size_bytes: int) -> None:
        """Count the difference between these totals of a finished part and its progress."""
        self._count(objects - self._objects, size_bytes - self._bytes)
        self._objects = self._bytes = 0


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM, which would end the process at once, into an exception: requests are cancelled first."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def check_apart(records: Records, store: StoreOptions | str, *trees: str) -> None:
    """Refuse records in one of the trees, or around it, links and profiles resolved: a sync could delete them."""
    *where, mine = _address(records.url, store)
    for each in trees:
        *place, its = _address(each, store)
        if where == place and (str(mine).startswith(str(its)) or str(its).startswith(str(mine))):
            raise Unusable(f"the records of a job must be outside the trees: {records.url} and {each} overlap")


def _address(url: str, store: StoreOptions | str) -> tuple[Hashable, ...]:
    source, prefix = tree(url, store)
    return source.address(prefix)
