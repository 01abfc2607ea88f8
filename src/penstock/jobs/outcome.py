"""Outcome of one object: as a value, as a line of JSON, and in a summary."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.errors import PenstockError

__all__ = ["Outcome", "Status", "Synced", "as_line"]

Status = Literal["copied", "moved", "deleted", "planned", "skipped", "failed"]
_SHOWN = 100  # failures kept in a summary


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one object.

    Attributes:
        source: URL of the object; empty for a deletion at the destination.
        dest: URL at the destination.
        size: Size in bytes.
        status: Completed action; ``planned``: action of a dry run; ``skipped``: left out or already there; ``failed``.
        note: Reason why the object was left out.
        error: Cause of the failure.

    """

    source: str
    dest: str
    size: int
    status: Status
    note: str = ""
    error: PenstockError | None = None


def as_line(outcome: Outcome) -> str:
    """Return an outcome as one line of JSON, with the line break."""
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
        failures: The first 100 failures.

    """

    copied: int = 0
    copied_bytes: int = 0
    unchanged: int = 0
    deleted: int = 0
    planned: int = 0
    skipped: int = 0
    failed: int = 0
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        setattr(self, outcome.status, getattr(self, outcome.status) + 1)
        if outcome.status == "copied":
            self.copied_bytes += outcome.size
        if outcome.status == "failed" and len(self.failures) < _SHOWN:
            self.failures.append(outcome)
