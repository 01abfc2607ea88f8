"""Findings about a store, a step at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import PenstockError, Unsupported, printable


@dataclass(slots=True)
class Finding:
    """Finding of one step: ``detail`` is one line, for a failure with the remedy; ``warned`` steps work with limits."""

    name: str
    outcome: Literal["passed", "failed", "warned", "skipped"] = "passed"
    detail: str = ""
    elapsed_s: float = 0.0
    error: PenstockError | None = field(default=None, compare=False)

    def fail(self, detail: str) -> None:
        self.outcome, self.detail = "failed", detail

    def warn(self, detail: str) -> None:
        self.outcome, self.detail = "warned", detail

    def skip(self, detail: str) -> None:
        self.outcome, self.detail = "skipped", detail


class step:  # noqa: N801  used like a function
    """Context manager that times a block and turns its error into a finding; ``Unsupported`` skips the step."""

    def __init__(self, name: str) -> None:
        self._finding, self._began = Finding(name), time.monotonic()

    def __enter__(self) -> Finding:
        return self._finding

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """Complete the finding; suppress only errors of Penstock."""
        finding = self._finding
        if isinstance(error, Unsupported):
            finding.skip(str(error))
        elif isinstance(error, PenstockError):
            finding.fail(str(error))
            finding.error = error
        finding.elapsed_s = time.monotonic() - self._began
        finding.detail = printable(finding.detail)
        return isinstance(error, PenstockError)
