"""Conversion between torch tensors and safetensors dtypes and shapes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.safetensors.header import DTYPES
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import CheckpointError, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, device

    from penstock.checkpoint.safetensors.header import TensorEntry

__all__ = ["described", "empty", "shape_of"]

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4_e2m1fn_x2",
}
# torch packs two F4 values into one element; the file counts each value.
_TWO_IN_ONE = "F4"


def described(tensors: Mapping[str, Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the name, file dtype and file shape of each tensor.

    Raises:
        Unusable: A tensor cannot be stored in a file, or two share memory; the message names them.

    """
    torch = torch_module()
    dtypes = {getattr(torch, name, None): dtype for dtype, name in _NAMES.items()}
    found = []
    for name, tensor in tensors.items():
        if reason := _refusal(name, tensor, dtypes):
            raise Unusable(f"tensor {name!r} cannot be saved: {reason}")
        dtype, shape = dtypes[tensor.dtype], tuple(tensor.shape)
        found.append((name, dtype, (*shape[:-1], shape[-1] * 2) if dtype == _TWO_IN_ONE else shape))
    _refuse_shared(tensors)
    return found


def _refusal(name: object, tensor: object, dtypes: Mapping[Any, str]) -> str:
    """Return the reason why a file cannot hold a tensor; empty if it can."""
    torch = torch_module()
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        return f"names are text and values are tensors, not {type(name).__name__} and {type(tensor).__name__}"
    if hasattr(tensor, "full_tensor"):
        return "it is spread over several processes; save what its full_tensor() returns"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
        return f"it is no plain array of elements ({tensor.layout}, {tensor.dtype}, on {tensor.device})"
    if tensor.dtype not in dtypes or (dtypes[tensor.dtype] == _TWO_IN_ONE and not tensor.dim()):
        return f"the format has no dtype for {tensor.dtype}"
    return ""


def _refuse_shared(tensors: Mapping[str, Tensor]) -> None:
    """Raise ``Unusable`` if tensors overlap in memory: once loaded, they would be independent copies."""
    places = sorted((str(tensor.device), *_bounds(tensor), name) for name, tensor in tensors.items() if tensor.numel())
    for (place, _, stop, one), (other_place, start, _, other) in pairwise(places):
        if place == other_place and start < stop:
            raise Unusable(
                f"tensors {one!r} and {other!r} share memory, and would no longer do once they are loaded again: "
                f"leave one out, or save {other!r} as a clone()"
            )


def _bounds(tensor: Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.data_ptr())
    return start, start + (reach + 1) * tensor.element_size()


def shape_of(entry: TensorEntry) -> tuple[int, ...]:
    """Return the shape that a file's tensor has in torch."""
    return (*entry.shape[:-1], entry.shape[-1] // 2) if entry.dtype == _TWO_IN_ONE and entry.shape else entry.shape


def empty(entry: TensorEntry, shape: tuple[int, ...], on: device) -> Tensor:
    """Return a new tensor of an entry's dtype with undefined elements.

    Raise ``CheckpointError`` if this version of torch lacks the dtype.
    """
    torch = torch_module()
    dtype = getattr(torch, _NAMES.get(entry.dtype, ""), None)
    if dtype is None or (entry.dtype == _TWO_IN_ONE and (not entry.shape or entry.shape[-1] % 2)):
        bits = DTYPES[entry.dtype]
        raise CheckpointError(
            f"tensor {entry.name!r} is {entry.dtype} ({bits} bits), for which this torch has no dtype"
        )
    made: Tensor = torch.empty(shape, dtype=dtype, device=on)
    return made
