"""Attempts of a part on workers that may die: when another follows, and the record of a part that is set aside."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from penstock.errors import Transient
from penstock.jobs.parts.operation import Ended, fail
from penstock.jobs.parts.records import PartRecord

if TYPE_CHECKING:
    from penstock.jobs.parts.operation import JobPart, Means

# Before a part is given to another worker.
PAUSE_S = 0.5
# For attempts on machines that are gone, until Ray has noticed: it takes 10 to 20 s.
_PATIENCE_S = 60.0


class PartAttempt:
    """Part that a worker does, or that waits for another worker."""

    def __init__(self, part: JobPart, deaths: int = 0, patience_s: float = _PATIENCE_S) -> None:
        self.part, self.deaths = part, deaths
        self.not_before = monotonic() + PAUSE_S
        self._patience_s = patience_s

    def again(self, retries: int, *, gone: bool = False) -> PartAttempt | None:
        """Return the next attempt; None after the last one. A machine that is ``gone`` does not count for a while."""
        if gone and self._patience_s > 0:
            return PartAttempt(self.part, self.deaths, self._patience_s - PAUSE_S)
        if self.deaths < retries:
            return PartAttempt(self.part, self.deaths + 1, self._patience_s)
        return None

    def set_aside(self, why: str, means: Means) -> Ended:
        """Record the part as failed: it has ended all the workers that it may end."""
        times = self.deaths + 1
        lost = Transient(
            f"part {self.part.number} was set aside: its worker died {times} time{'s' * (times > 1)} ({why}); repeat "
            "the call, with smaller parts if memory is short",
            url=means.records.url,
        )
        record = PartRecord(self.part.number, {"failed": 1})
        fail(record, lost)
        means.records.write(record)
        return Ended(record, lost)
