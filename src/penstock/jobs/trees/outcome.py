"""Outcome of one object: as a value, as a line of JSON, in a summary, and in the report file of a sync."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import NoSpace, PenstockError, Unusable, kind_of
from penstock.jobs.trees.selection import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.source import Source

Status = Literal["copied", "moved", "deleted", "planned", "skipped", "failed"]
_SHOWN = 100  # failures kept in a summary


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one object."""

    source: str  # empty for a deletion at the destination
    dest: str
    size: int
    status: Status  # ``planned``: action of a dry run; ``skipped``: left out or already there
    note: str = ""  # why the object was left out
    error: PenstockError | None = None


def make_outcome(source: str, dest: str, size: int, result: Status | PenstockError, note: str = "") -> Outcome:
    if isinstance(result, PenstockError):
        return Outcome(source, dest, size, "failed", error=result)
    return Outcome(source, dest, size, result, note)


def as_line(outcome: Outcome) -> str:
    record: dict[str, object] = {"source": outcome.source or None, "dest": outcome.dest or None}
    record |= {"size": outcome.size, "status": outcome.status}
    if outcome.note:
        record["note"] = outcome.note
    if outcome.error is not None:
        record["error"] = str(outcome.error)
    return json.dumps(record) + "\n"


@dataclass(slots=True)
class Synced:
    """Result of ``ps.sync``.

    Attributes:
        copied: Number of objects copied.
        copied_bytes: Size of the copied objects in bytes.
        unchanged: Number of objects that the destination already had.
        deleted: Number of objects deleted at the destination.
        planned: Number of objects that a dry run would have copied or deleted.
        skipped: Number of entries left out: links to directories, deletions after a failure.
        failed: Number of objects that failed.
        failures: The first 100 failures; those of a job are in its records.
        parts: Number of parts of a job, in this process's share; 0 without a job.
        parts_done: Parts that are done, without a failure.
        parts_failed: Parts in which objects failed.
        seconds: Seconds that the recorded parts took, added up.
    """

    copied: int = 0
    copied_bytes: int = 0
    unchanged: int = 0
    deleted: int = 0
    planned: int = 0
    skipped: int = 0
    failed: int = 0
    failures: list[Outcome] = field(default_factory=list)
    parts: int = 0
    parts_done: int = 0
    parts_failed: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether all parts are done."""
        return self.parts_done == self.parts

    def add(self, outcome: Outcome) -> None:
        setattr(self, outcome.status, getattr(self, outcome.status) + 1)
        if outcome.status == "copied":
            self.copied_bytes += outcome.size
        if outcome.status == "failed" and len(self.failures) < _SHOWN:
            self.failures.append(outcome)


@contextmanager
def ledger(
    path: str | os.PathLike[str] | None, trees: Iterable[tuple[Source, str]]
) -> Iterator[Callable[[Outcome], None]]:
    """Create the report file, outside of ``trees``, unless ``path`` is None; yield a function that appends to it."""
    if path is None:
        yield lambda _outcome: None
        return
    if not isinstance(path, str | os.PathLike):
        raise Unusable(f"report must be the path of a file, got {kind_of(path)}")
    name = os.fspath(path)
    whole = os.path.realpath(name).lstrip("/")
    for side, folder in trees:
        if local(side) and whole.startswith(folder):
            raise Unusable("the report must be outside the trees that are compared: choose another place", url=name)
    with _errors(name):
        opened = Path(name).open("wb", buffering=0)  # noqa: SIM115  closed below
    # Outside ``_errors``: errors of the caller are not errors of the file.
    with opened as file:

        def add(outcome: Outcome) -> None:
            with _errors(name):
                line = memoryview(as_line(outcome).encode())
                while line:
                    line = line[file.write(line) :]

        yield add


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoSpace if error.errno in NoSpace.ERRNOS else Unusable
        raise kind(f"cannot write the report: {error.strerror}", url=path) from error
