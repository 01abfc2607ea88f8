"""Samples of arrays become a batch: each array is stacked, with one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets.zarr.pool import MemoryPool

__all__ = ["Stacking"]


class Stacking:
    """Stacks the arrays of some samples: an array, a dict of arrays, or a tuple of these; or tensors.

    A batch's memory is used for another one once nothing refers to the batch, nor to what shares its memory.
    """

    def __init__(self, pool: MemoryPool, *, numpy: bool) -> None:
        """Stack into memory of ``pool``; with ``numpy`` to arrays, else to tensors."""
        self._pool, self._numpy = pool, numpy

    def __call__(self, samples: Sequence[Any]) -> Any:  # noqa: ANN401  as a sample is made
        """Return the batch."""
        first = samples[0]
        if isinstance(first, dict):
            return {name: self([each[name] for each in samples]) for name in first}
        if isinstance(first, tuple):
            return tuple(self([each[number] for each in samples]) for number in range(len(first)))
        return self._stacked(samples)

    def _stacked(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | torch.Tensor:
        first = arrays[0]
        batch = np.stack(arrays, out=self._pool.empty((len(arrays), *first.shape), first.dtype))
        return batch if self._numpy else torch.from_numpy(batch)
