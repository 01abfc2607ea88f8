"""What one step of an examination found."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from penstock.errors import PenstockError, Unsupported, printable

__all__ = ["Finding", "step"]


@dataclass(slots=True)
class Finding:
    """One step.

    Attributes:
        name: What was examined: ``name resolution``, ``list``.
        outcome: ``passed``; ``failed``; ``warned``, where it works and something about it should be known; ``skipped``,
            where it was not tried.
        detail: What was found, in one line; of a failure, also what to do.
        elapsed_s: Seconds that it took.
        error: The failure.

    """

    name: str
    outcome: Literal["passed", "failed", "warned", "skipped"] = "passed"
    detail: str = ""
    elapsed_s: float = 0.0
    error: PenstockError | None = field(default=None, compare=False)

    def fail(self, detail: str) -> None:
        """Set the outcome to ``failed``."""
        self.outcome, self.detail = "failed", detail

    def warn(self, detail: str) -> None:
        """Set the outcome to ``warned``."""
        self.outcome, self.detail = "warned", detail

    def skip(self, detail: str) -> None:
        """Set the outcome to ``skipped``."""
        self.outcome, self.detail = "skipped", detail


class step:  # noqa: N801  used as a function is
    """Time a block, and take its error as what was found; ``Unsupported`` skips the step."""

    def __init__(self, name: str) -> None:
        """Begin a finding of this name."""
        self._finding, self._began = Finding(name), monotonic()

    def __enter__(self) -> Finding:
        """Return the finding, for the block to fill."""
        return self._finding

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """Complete the finding; only errors of Penstock end here."""
        finding = self._finding
        if isinstance(error, Unsupported):
            finding.skip(str(error))
        elif isinstance(error, PenstockError):
            finding.fail(str(error))
            finding.error = error
        finding.elapsed_s = monotonic() - self._began
        finding.detail = printable(finding.detail)
        return isinstance(error, PenstockError)
