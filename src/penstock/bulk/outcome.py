"""What came of one object: as a value, as a line of JSON, and summed up."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock.errors import PenstockError

__all__ = ["Outcome", "Status", "Synced", "as_line"]

Status = Literal["copied", "moved", "deleted", "planned", "skipped", "failed"]
_SHOWN = 100  # failures that a sum keeps


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one object.

    Attributes:
        source: Its URL; empty where something at the destination is deleted.
        dest: The URL that it goes to.
        size: Bytes.
        status: What was done, or (``planned``) would be; ``skipped``: left out, or there already; ``failed``.
        note: Why it was left out.
        error: Why it failed.

    """

    source: str
    dest: str
    size: int
    status: Status
    note: str = ""
    error: PenstockError | None = None


def as_line(outcome: Outcome) -> str:
    """Return an outcome as a JSON object on one line, which ends in a line break."""
    record: dict[str, object] = {"source": outcome.source or None, "dest": outcome.dest or None}
    record |= {"size": outcome.size, "status": outcome.status}
    if outcome.note:
        record["note"] = outcome.note
    if outcome.error is not None:
        record["error"] = str(outcome.error)
    return json.dumps(record) + "\n"


@dataclass(slots=True)
class Synced:
    """What ``ps.sync`` did.

    Attributes:
        copied: Objects that were copied.
        copied_bytes: Their bytes.
        unchanged: Objects that were there already.
        deleted: Objects that were deleted at the destination.
        planned: What a dry run would have copied or deleted.
        skipped: What was left out: links to directories, deletions after a failure.
        failed: Objects that failed.
        failures: The first hundred of them.

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
        """Count one more."""
        setattr(self, outcome.status, getattr(self, outcome.status) + 1)
        if outcome.status == "copied":
            self.copied_bytes += outcome.size
        if outcome.status == "failed" and len(self.failures) < _SHOWN:
            self.failures.append(outcome)
