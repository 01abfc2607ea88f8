"""The default collate function: torch's, without its warnings and detours; and the sample that it cannot collate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from penstock.data.reading.reading import Skipped
from penstock.data.reading.sample import Sample
from penstock.errors import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_LEAST_VALUES = 1 << 15  # torch copies fewer on one thread
_NUMPY_TYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
}


def _arrays(samples: Sequence[NDArray[Any]], *, collate_fn_map: Any = None) -> Any:  # noqa: ANN401  torch's signature
    """Collate arrays as torch does, without its warning about read-only arrays (from Parquet or Pillow)."""
    writable = [each if each.flags.writeable else each.copy() for each in samples]
    return default_collate_fn_map[np.ndarray](writable, collate_fn_map=collate_fn_map)


def _tensors(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:  # noqa: ANN401  torch's own
    """Stack tensors to the values and strides of torch's own function, on this thread alone.

    The threads that torch starts for it wait for one another at full load, next to those that decode: on two busy
    processors 64 pictures of 224x224 took 280 ms of CPU, not 3. Pictures in memory by pixel, such as clips, are copied
    by torch value by value.
    """
    # In a worker process torch stacks into memory that processes share; it takes no threads for few values.
    first, alone = batch[0], get_worker_info() is None
    plain = alone and all(each.layout is torch.strided and not each.is_nested for each in batch)
    by_pixel = plain and first.dim() == 4 and not first.is_contiguous()  # noqa: PLR2004  (T, C, H, W)
    memory_format = torch.channels_last if by_pixel else torch.contiguous_format
    plain = plain and first.numel() * len(batch) >= _LEAST_VALUES
    if not plain or not all(_is_alike(each, first, memory_format) for each in batch):
        found: torch.Tensor = default_collate_fn_map[torch.Tensor](batch, collate_fn_map=collate_fn_map)
        return found
    rows = [each.permute(0, 2, 3, 1) for each in batch] if by_pixel else batch
    found = torch.from_numpy(np.stack([each.numpy() for each in rows]))
    return found.permute(0, 1, 4, 2, 3) if by_pixel else found


def _is_alike(tensor: torch.Tensor, first: torch.Tensor, memory_format: torch.memory_format) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype == first.dtype
        and tensor.dtype in _NUMPY_TYPES
        and tensor.shape == first.shape
        and tensor.device.type == "cpu"
        and tensor.is_contiguous(memory_format=memory_format)
        and not (tensor.requires_grad or tensor.is_neg())
    )


def collate_samples(samples: list[Any]) -> Any:  # noqa: ANN401  torch decides the type
    if isinstance(samples[0], Sample):
        return samples
    own: dict[Any, Any] = {np.ndarray: _arrays, torch.Tensor: _tensors}
    return collate(samples, collate_fn_map={**default_collate_fn_map, **own})


def find_misfit(made: list[Any]) -> tuple[int, str] | None:
    """Return the row of the first sample with a None, else of the first that differs; and the difference."""
    rows = {row: dict(_places(each)) for row, each in enumerate(made) if not isinstance(each, Skipped)}
    for row, places in rows.items():
        for place, kind in places.items():
            if kind == "None":
                return row, f"{place} is None (as sample.label is without labels=)"
    for (before, others), (row, places) in pairwise(rows.items()):
        for place, kind in (others | places).items():
            if places.get(place) != others.get(place):
                return row, f"{place} is {places.get(place, 'missing')}, and in row {before} {others.get(place, kind)}"
    return None


def _places(value: Any, place: str = "the sample") -> Iterator[tuple[str, str]]:  # noqa: ANN401  a sample
    """Yield each part of a sample, by its place, and the kind that all samples of a batch must share."""
    parts: Iterable[tuple[object, Any]] = ()
    if isinstance(value, Mapping):
        kind, parts = "a mapping", value.items()
    elif isinstance(value, list | tuple):
        kind, parts = f"{kind_of(value)} of {len(value)}", enumerate(value)
    elif shape := getattr(value, "shape", ()):
        kind = f"{kind_of(value)} of shape {tuple(shape)}"
    else:
        kind = "a number" if isinstance(value, int | float | np.number | torch.Tensor) else kind_of(value)
    yield place, kind
    for name, part in parts:
        yield from _places(part, f"{'' if place == 'the sample' else place}[{name!r}]")
