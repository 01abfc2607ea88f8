"""An operation in parts, as all carriers see it, and the one function that does a part and records it."""

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
from penstock.jobs.parts.records import PartRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.jobs.outcome import Outcome
    from penstock.jobs.parts.records import JobPlan, Records
    from penstock.options import StoreOptions
    from penstock.progress import Count

_FAILURES = 20  # in the record of a part


class Planned(NamedTuple):
    """The parts of a job.

    Attributes:
        parts: Each part as JSON: what its operation needs, then the number of objects and of bytes.
        objects: Objects of all parts.
        size_bytes: Bytes of all parts.

    """

    parts: Sequence[Sequence[Any]]
    objects: int
    size_bytes: int


class JobPart(NamedTuple):
    """A part that is to be done.

    Attributes:
        number: Its number, from 0.
        piece: What its operation needs: JSON.
        again: Whether an earlier attempt has failed.

    """

    number: int
    piece: Any
    again: bool


class Ended(NamedTuple):
    """A part that has ended: its record, and the worst failure."""

    record: PartRecord
    error: PenstockError | None


def ignore_progress(_objects: int, _size_bytes: int) -> None:
    """Count nothing."""


def ignore(_outcome: Outcome) -> None:
    """Note nothing."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a process has for the parts that it does.

    Attributes:
        records: The records of the job.
        processes: Processes for small objects, this one included; None: as many as processors.
        count: Takes objects and bytes as they are done.
        note: Takes the outcome of each object.

    """

    records: Records
    processes: int | None = 1
    count: Count = ignore_progress
    note: Callable[[Outcome], None] = ignore


class Operation(ABC):
    """An operation in parts. Workers on other machines get a pickle of it, so it holds options without secrets.

    Attributes:
        name: Name of the operation in records.
        verb: Title of the progress bar.
        counts: Names of its counts, in the order in which reports have them.
        part: Schema of a part in the plan.
        compares: Whether failures of objects are its result, whatever another process has found before.
        store: Options of its stores, or the name of a profile.

    """

    name: ClassVar[str]
    verb: ClassVar[str]
    counts: ClassVar[tuple[str, ...]]
    part: ClassVar[object] = list
    compares: ClassVar[bool] = False
    store: StoreOptions | str

    @property
    @abstractmethod
    def urls(self) -> tuple[str, ...]:
        """The URLs of what is read and written: the same ones at another endpoint are another job."""

    @property
    @abstractmethod
    def arguments(self) -> Mapping[str, Any]:
        """The arguments that identify the job, as JSON: public URLs, no options of stores."""

    @abstractmethod
    def planned(self) -> Planned:
        """Return the parts; every process finds the same ones of the same source."""

    def piece(self, plan: JobPlan, number: int) -> Any:  # noqa: ANN401  JSON; operations override it
        """Return what a part needs of the plan."""
        return plan.parts[number]

    @abstractmethod
    def work(self, part: JobPart, record: PartRecord, means: Means) -> PenstockError | None:
        """Do a part, count in ``record``, and return the worst failure; a second run of a part finds the same.

        Raises:
            PenstockError: The part as a whole cannot be done.

        """

    def finish(self, plan: JobPlan, records: Records) -> None:  # noqa: B027  most operations end with their parts
        """Do what comes after all parts. Several processes may do it at once, with equal results."""


def fail(record: PartRecord, error: PenstockError, url: str = "") -> None:
    """Keep a failure in a record: the first 20 of them."""
    if len(record.failures) < _FAILURES:
        record.failures.append({"url": public_url(url or error.url), "error": str(error)})


def done(operation: Operation, part: JobPart, means: Means) -> Ended:
    """Do a part and write its record, whatever becomes of it.

    Raises:
        NoSpace: No further part can succeed.
        PenstockError: The record cannot be written.

    """
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
