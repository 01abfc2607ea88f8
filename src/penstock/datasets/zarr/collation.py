"""Samples of arrays become a batch: each array is stacked, with one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["stacked", "stacked_tensors"]


def stacked(samples: Sequence[Any]) -> Any:  # noqa: ANN401  as a sample is made
    """Return the arrays of some samples stacked: an array, a dict of arrays, or a tuple of these."""
    return _mapped(np.stack, samples)


def stacked_tensors(samples: Sequence[Any]) -> Any:  # noqa: ANN401  as a sample is made
    """Return what ``stacked`` does as tensors."""
    return _mapped(_tensor, samples)


def _tensor(arrays: Sequence[NDArray[Any]]) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays))


def _mapped(stack: Callable[[Sequence[NDArray[Any]]], Any], samples: Sequence[Any]) -> Any:  # noqa: ANN401
    first = samples[0]
    if isinstance(first, dict):
        return {name: _mapped(stack, [each[name] for each in samples]) for name in first}
    if isinstance(first, tuple):
        return tuple(_mapped(stack, [each[number] for each in samples]) for number in range(len(first)))
    return stack(samples)
