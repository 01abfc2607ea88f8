"""Yielded values of a sample or a batch: arrays by name, as tensors or NumPy arrays, in a floating-point type."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.data.reading.pool import MemoryPool
    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.arrangement import Arrangement

_FLOATS = {
    str(each).removeprefix("torch."): each for each in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
}


def float_type(given: object) -> torch.dtype | None:
    """Return the type that ``dtype=`` names; None stays None."""
    if given is None or (isinstance(given, torch.dtype) and given in _FLOATS.values()):
        return given
    try:
        return _FLOATS[given if isinstance(given, str) else np.dtype(given).name]  # type: ignore[call-overload]
    except (KeyError, TypeError):
        raise Unusable(
            f"dtype must be torch.{', torch.'.join(_FLOATS)}, or one of these names, got {given!r}"
        ) from None


@dataclass(frozen=True, slots=True)
class Values:
    """Form of the values of a dataset: names of the arrays of a sample, and of its targets (None without any).

    An empty name stands for an array without a name. Floating-point values become ``dtype``; None: their own.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...] | None
    numpy: bool
    dtype: torch.dtype | None

    def check(self, layouts: Sequence[Layout]) -> None:
        """Raise ``Unusable`` for a type that these arrays, or NumPy, cannot have."""
        if self.dtype is None:
            return
        if not any(each.dtype.kind == "f" for each in layouts):
            found = ", ".join(sorted({str(each.dtype) for each in layouts}))
            raise Unusable(f"dtype={self.dtype} is for floating-point values, but the arrays have {found}")
        if self.numpy and self.dtype == torch.bfloat16:
            raise Unusable('NumPy has no bfloat16: pass output="torch", or another dtype')

    def sample_bytes(self, arrangement: Arrangement, layouts: Sequence[Layout]) -> int:
        shapes = (each.shape for each in arrangement.extractions)
        return sum(prod(shape) * self._itemsize(each.dtype) for shape, each in zip(shapes, layouts, strict=True))

    def _itemsize(self, dtype: np.dtype[Any]) -> int:
        return dtype.itemsize if self.dtype is None or dtype.kind != "f" else self.dtype.itemsize

    def sample(self, arrays: Sequence[NDArray[Any]], *, views: bool) -> Any:  # noqa: ANN401  arrays, tensors, or dicts
        """Return a sample of these arrays; with ``views``, they stay unchanged, for ``Stacking``."""
        made: Sequence[Any] = arrays if views else [self._converted(each) for each in arrays]
        split = len(self.inputs)
        sample = _key_by_name(self.inputs, made[:split])
        return sample if self.targets is None else (sample, _key_by_name(self.targets, made[split:]))

    def _converted(self, array: NDArray[Any]) -> NDArray[Any] | torch.Tensor:
        if self.dtype is not None and array.dtype.kind == "f":
            tensor = torch.empty(array.shape, dtype=self.dtype)
            _copy_to_tensor(array, tensor)
            return tensor.numpy() if self.numpy else tensor
        return array if self.numpy else torch.from_numpy(array)

    def rows(self, columns: Sequence[list[NDArray[Any]]]) -> list[Any]:
        """Return samples for ``Stacking``, from their columns: one list per array."""
        split = len(self.inputs)
        samples = _named_rows(self.inputs, columns[:split])
        if self.targets is None:
            return samples
        return [*zip(samples, _named_rows(self.targets, columns[split:]), strict=True)]


def _key_by_name(names: Sequence[str], arrays: Sequence[Any]) -> Any:  # noqa: ANN401  one array, or a dict of them
    return arrays[0] if [*names] == [""] else dict(zip(names, arrays, strict=True))


def _named_rows(names: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
    return columns[0] if [*names] == [""] else [_key_by_name(names, row) for row in zip(*columns, strict=True)]


class Stacking:
    """Collate function that stacks samples: an array, a dict of arrays, or a tuple of these.

    Values are converted on their way into the memory of the batch, which is reused once nothing refers to the batch or
    to a view of it.
    """

    def __init__(self, pool: MemoryPool, values: Values) -> None:
        self._pool, self._numpy, self._dtype = pool, values.numpy, values.dtype

    def __call__(self, samples: Sequence[Any]) -> Any:  # noqa: ANN401  as a sample is made
        first = samples[0]
        if isinstance(first, dict):
            return {name: self([each[name] for each in samples]) for name in first}
        if isinstance(first, tuple):
            return tuple(self([each[number] for each in samples]) for number in range(len(first)))
        return self._stacked(samples)

    def _stacked(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | torch.Tensor:
        first, shape = arrays[0], (len(arrays), *arrays[0].shape)
        if self._dtype is None or first.dtype.kind != "f":
            batch = np.stack(arrays, out=self._pool.empty(shape, first.dtype))
            return batch if self._numpy else torch.from_numpy(batch)
        if any(each.shape != first.shape for each in arrays):
            raise ValueError("samples of a batch must have the same shape")
        # NumPy has no bfloat16, and takes ten times as long as torch for float16.
        memory = self._pool.empty((*shape, self._dtype.itemsize), np.dtype(np.uint8))
        tensor = torch.from_numpy(memory).view(self._dtype)[..., 0]
        for array, row in zip(arrays, tensor, strict=True):
            _copy_to_tensor(array, row)
        return tensor.numpy() if self._numpy else tensor


def _copy_to_tensor(array: NDArray[Any], out: torch.Tensor) -> None:
    """Copy values into a tensor of another floating-point type; raise where float16 would become infinite."""
    # Torch warns of memory that is read-only, and has no negative strides.
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    values = torch.from_numpy(array if usable else array.copy())
    out.copy_(values)
    if out.dtype != torch.float16 or values.dtype == torch.float16 or not out.numel():
        return
    if not out.abs().amax().isfinite() and bool((out.isinf() & ~values.isinf()).any()):
        most = values[values.isfinite()].abs().amax().item()
        raise Unusable(f"a value of {most:g} exceeds float16 (65504): pass dtype=torch.bfloat16, or normalize=")
