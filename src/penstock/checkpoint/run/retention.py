"""Retention rules: which steps of a run are kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Retention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A step stays if any of these says so; where none is set, all stay. The newest always stays.

    Attributes:
        last: The newest so many.
        every: Those whose number is a multiple of this.
        best: So many with the best metric; steps without one, or with NaN, are never among them.
        mode: Whether a smaller metric is better, ``"min"``, or a larger one, ``"max"``.

    """

    last: int | None = None
    every: int | None = None
    best: int | None = None
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        """Refuse what would delete everything."""
        if any(number is not None and number < 1 for number in (self.last, self.every, self.best)):
            raise Unusable("keep_last, keep_every and keep_best are 1 or more; None keeps all")
        if self.mode not in ("min", "max"):
            raise Unusable(f"the best metric is the 'min' or the 'max', not {self.mode!r}")

    def superseded(self, steps: Mapping[int, float | None], saved: int | None = None) -> list[int]:
        """Return which of the committed ``steps`` (with their metrics) may go, oldest first; never ``saved``.

        ``saved`` is the step of the save that asks: a save does not delete its own step, also where newer steps stand.
        """
        if (self.last, self.every, self.best) == (None, None, None):
            return []
        newest_first = sorted(steps, reverse=True)
        kept = {*newest_first[: self.last or 1], saved}
        kept.update(step for step in steps if self.every and step % self.every == 0)
        kept.update(self._best(steps))
        return sorted(steps.keys() - kept)

    def _best(self, steps: Mapping[int, float | None]) -> list[int]:
        sign = 1 if self.mode == "min" else -1
        ranked = [(sign * metric, -step) for step, metric in steps.items() if metric is not None and metric == metric]  # noqa: PLR0124  not NaN
        return [-step for _, step in sorted(ranked)[: self.best or 0]]
