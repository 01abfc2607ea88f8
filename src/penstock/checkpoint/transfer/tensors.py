"""Tensors as bytes: what of them a safetensors file can hold, in pieces of little memory, and the way back."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.safetensors.header import DTYPES
from penstock.checkpoint.torchfile.verbs import torch_module
from penstock.errors import CheckpointError, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, device

    from penstock.checkpoint.safetensors.header import Entry

__all__ = ["described", "empty", "flat", "memory", "pieces", "shape_of"]

_PIECE_BYTES = 8 << 20  # of a tensor that is not in CPU memory, or not contiguous, that are copied at once
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
_TWO_IN_ONE = "F4"  # torch has two of them in an element, the file counts them one by one


def described(tensors: Mapping[str, Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return name, dtype and shape of each, as a file says them.

    Raises:
        Unusable: One is nothing that a file can hold, or two share memory; they are named.

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
    """Say why a file cannot hold a tensor; empty: it can."""
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
    """Refuse tensors that lie over each other: loaded again they would be two, and no longer change together."""
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


def pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield a tensor's bytes in turn, each good until the next: its own memory where it is contiguous, on the CPU.

    Else copies of up to 8 MiB, page-locked where it lies on a GPU, all in one buffer.
    """
    torch, tensor = torch_module(), tensor.detach()
    lazy = tensor.is_conj() or tensor.is_neg()
    if tensor.is_cpu and tensor.is_contiguous() and not lazy:
        yield memory(tensor)
        return
    if not lazy:  # torch cannot copy every dtype, but any of these, and complex128
        same = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        tensor = tensor.view(same.get(tensor.element_size(), tensor.dtype))
    aside = torch.empty(min(_PIECE_BYTES, tensor.nbytes), dtype=torch.uint8, pin_memory=tensor.is_cuda)
    for part in _parts(tensor):
        piece = aside[: part.nbytes]
        piece.view(part.dtype).view(part.shape).copy_(part)
        yield memory(piece)


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yield parts of at most 8 MiB that are a tensor's elements in order."""
    if tensor.nbytes <= _PIECE_BYTES:
        yield tensor
    elif len(tensor) == 1:
        yield from _parts(tensor[0])
    else:
        for part in torch_module().split(tensor, max(1, len(tensor) * _PIECE_BYTES // tensor.nbytes)):
            yield from _parts(part)


def flat(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor's memory as a line of bytes."""
    return tensor.reshape(-1).view(torch_module().uint8)


def memory(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU; writing there writes into it."""
    line: Any = flat(tensor).numpy()
    return memoryview(line)


def shape_of(entry: Entry) -> tuple[int, ...]:
    """Return a tensor's shape as torch has it."""
    return (*entry.shape[:-1], entry.shape[-1] // 2) if entry.dtype == _TWO_IN_ONE and entry.shape else entry.shape


def empty(entry: Entry, shape: tuple[int, ...], on: device) -> Tensor:
    """Return a new tensor of an entry's dtype with undefined elements. ``CheckpointError``: this torch has no such."""
    torch = torch_module()
    dtype = getattr(torch, _NAMES.get(entry.dtype, ""), None)
    if dtype is None or (entry.dtype == _TWO_IN_ONE and (not entry.shape or entry.shape[-1] % 2)):
        bits = DTYPES[entry.dtype]
        raise CheckpointError(
            f"tensor {entry.name!r} is {entry.dtype} ({bits} bits), for which this torch has no dtype"
        )
    made: Tensor = torch.empty(shape, dtype=dtype, device=on)
    return made
