"""How a total is divided among processes: pure arithmetic."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["share"]


def share(total: float, demands: Sequence[float], mine: int) -> float:
    """Return how much of ``total`` the process number ``mine`` may use, by max-min fairness.

    No process gets less than an equal part, unless its demand is smaller. What demands leave of the total is added to
    all of them equally, so that a demand may grow. The shares add up to ``total`` at most. A demand may be ``inf``:
    as much as there is.
    """
    left, count = total, len(demands)
    level = inf  # no demand above it is met in full
    for place, demand in enumerate(sorted(demands)):
        equal = left / (count - place)
        if demand > equal:
            level = equal
            break
        left -= demand
    granted = min(demands[mine], level)
    return granted if level < inf else granted + left / count
