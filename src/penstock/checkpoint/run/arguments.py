"""Arguments of a run's checkpoints: step, metric, loader. Pure."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Loader", "checked_metric", "checked_step"]

_STEPS = 10**18  # folder names have at most 18 digits


class Loader(Protocol):
    """An object with a position in the data, such as a ``penstock.DataLoader``."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the position after the batches that the training loop has received."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Resume at the position in ``state``."""


def checked_step(step: int) -> int:
    """Return a step of any integer type as an int; raise ``Unusable`` if it is not an integer of 0 to 10**18 - 1."""
    try:
        number = operator.index(step)
    except TypeError:
        raise Unusable(f"a step is an integer, not a {type(step).__name__}") from None
    if not 0 <= number < _STEPS:
        raise Unusable(f"a step is 0 to {_STEPS - 1:,}, not {number:,}")
    return number


def checked_metric(metric: Any) -> float | None:  # noqa: ANN401  a tensor of one element, a number of NumPy's
    """Return a metric as a float, or None for None; raise ``Unusable`` if it is not one number."""
    try:
        return None if metric is None else float(metric)
    except (TypeError, ValueError, RuntimeError):
        raise Unusable(f"a metric is one number, not a {type(metric).__name__}") from None
