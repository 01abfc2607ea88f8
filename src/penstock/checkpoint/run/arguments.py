"""Checks what callers pass for a step and a metric. Pure."""

from __future__ import annotations

import operator
from typing import Any

from penstock.errors import Unusable

__all__ = ["checked_metric", "checked_step"]

_STEPS = 10**18  # more digits no folder of a step has


def checked_step(step: int) -> int:
    """Return a step as Python's int, of whatever kind it is."""
    try:
        number = operator.index(step)
    except TypeError:
        raise Unusable(f"a step is an integer, not a {type(step).__name__}") from None
    if not 0 <= number < _STEPS:
        raise Unusable(f"a step is 0 to {_STEPS - 1:,}, not {number:,}")
    return number


def checked_metric(metric: Any) -> float | None:  # noqa: ANN401  a tensor of one element, a number of NumPy's
    """Return a metric as Python's float."""
    try:
        return None if metric is None else float(metric)
    except (TypeError, ValueError, RuntimeError):
        raise Unusable(f"a metric is one number, not a {type(metric).__name__}") from None
