"""An operation in parts, as all carriers see it, and the function that runs and records a part."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from penstock.errors import NoSpace, PenstockError, public_url
from penstock.events import PartEnded, emit, listening
from penstock.events import operation as traced
from penstock.jobs.parts.records import JobPlan, PartRecord, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.jobs.parts.records import PlanJournal
    from penstock.jobs.trees.outcome import Outcome
    from penstock.options import StoreOptions
    from penstock.progress import Count

_FAILURES = 20  # in the record of a part
SKIPPED = "skipped: "  # begins the errors of what was left out


class Planned(NamedTuple):
    """Parts of a job, each as JSON: its operation's data, then the number of objects and of bytes."""

    parts: Sequence[Sequence[Any]]
    objects: int
    size_bytes: int


class JobPart(NamedTuple):
    """Part that is to be done."""

    number: int  # from 0
    piece: Any  # what its operation needs, as JSON
    again: bool  # an earlier attempt has failed


class Ended(NamedTuple):
    """Part that has ended: its record, and the worst failure."""

    record: PartRecord
    error: PenstockError | None


def ignore_progress(_objects: int, _size_bytes: int) -> None:
    """Count nothing."""


def ignore(_outcome: Outcome) -> None:
    """Note nothing."""


@dataclass(frozen=True, slots=True)
class Means:
    """Resources of a process for the parts that it does."""

    records: Records
    processes: int | None = 1  # for small objects, this one included; None: as many as processors
    count: Count = ignore_progress  # takes objects and bytes as they are done
    note: Callable[[Outcome], None] = ignore  # takes the outcome of each object


class Operation(ABC):
    """Operation in parts. Workers on other machines get a pickle of it, so it holds options without secrets."""

    name: ClassVar[str]
    verb: ClassVar[str]  # title of the progress bar
    counts: ClassVar[tuple[str, ...]]  # in the order in which reports have them
    part: ClassVar[object] = list  # schema of a part in the plan
    compares: ClassVar[bool] = False  # failures of objects are its result, whatever another process has found before
    shares: ClassVar[bool] = False  # processes share the objects of a part, not the parts
    resumes: ClassVar[bool] = True  # by ``penstock jobs resume``: the plan says all that is needed
    places: ClassVar[tuple[str, ...]] = ()  # names of the fields that hold URLs
    store: StoreOptions | str

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs to read and write: equal URLs at another endpoint are another job."""
        return tuple(getattr(self, name) for name in self.places)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments that identify the job, as JSON: public URLs, no options of stores."""
        return {name: public_url(getattr(self, name)) for name in self.places} | self.details()

    def details(self) -> dict[str, Any]:
        """Return the arguments that are not URLs, as JSON."""
        return {}

    @abstractmethod
    def planned(self) -> Planned:
        """Return the parts: every process derives the same parts from the same source."""

    def make_plan(self, journal: PlanJournal) -> Planned:  # noqa: ARG002  of plans that are continued
        """Return the parts, continued from the journal where an operation keeps one."""
        return self.planned()

    def piece(self, plan: JobPlan, number: int) -> Any:  # noqa: ANN401  JSON; operations override it
        return plan.parts[number]

    @abstractmethod
    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        """Do a part, count in ``record``, and return the worst failure; repeatable with the same result."""

    def finish(self, plan: JobPlan, records: Records) -> None:  # noqa: B027  most operations end with their parts
        """Do the last step, after all parts. Several processes may do it at once, with equal results."""


def fail(record: PartRecord, error: PenstockError, url: str = "") -> None:
    """Keep a failure in a record: the first 20 of them."""
    if len(record.failures) < _FAILURES:
        record.failures.append({"url": public_url(url or error.url), "error": str(error)})


def done(operation: Operation, part: JobPart, means: Means) -> Ended:
    """Do a part and write its record, also after a failure; raise ``NoSpace`` if no further part can succeed."""
    records = means.records
    scope = traced("part", str, records.url)
    with scope:
        ended = _done(operation, part, means)
        if listening():
            record = ended.record
            numbers = operation.name, record.part, {**record.counts}, record.cpu_seconds
            emit(PartEnded(public_url(records.url), scope.id, *numbers))
        return ended


def _done(operation: Operation, part: JobPart, means: Means) -> Ended:
    record = PartRecord(part.number, began=datetime.now(UTC).isoformat(timespec="seconds"))
    began_s, cpu_s = monotonic(), _cpu_s()
    may_be_done = not operation.compares
    try:
        error = operation.work(part, record, means)
    except NoSpace:
        raise
    except PenstockError as failure:
        # Another part may succeed, and this one another time.
        error, may_be_done = failure, True
        record.counts["failed"] = max(1, record.failed)
        fail(record, failure)
    if error is not None and may_be_done and (known := means.records.record(part.number)) is not None:
        # Another process has done the part meanwhile, and got in the way of this one.
        return Ended(known, None)
    record.seconds, record.cpu_seconds = round(monotonic() - began_s, 3), round(_cpu_s() - cpu_s, 3)
    means.records.write(record, again=part.again)
    return Ended(record, error)


def _cpu_s() -> float:
    return sum(os.times()[:4])
