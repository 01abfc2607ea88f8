"""Tensors as bytes: their memory, or copies of it in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import needing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from torch import Tensor

__all__ = ["flat", "memory", "pieces", "torch_module"]

# Bytes copied at once, of a tensor that is not in CPU memory or not contiguous.
_PIECE_BYTES = 8 << 20


def torch_module() -> ModuleType:
    """Return torch, or raise ``MissingExtra``."""
    with needing("checkpoints of tensors need torch", torch="torch"):
        import torch
    return torch


def pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield a tensor's bytes in order; each piece is valid until the next one.

    A contiguous tensor on the CPU yields its own memory. Any other yields copies of up to 8 MiB in one reused buffer,
    which is page-locked for a tensor on a GPU.
    """
    torch, tensor = torch_module(), tensor.detach()
    lazy = tensor.is_conj() or tensor.is_neg()
    if tensor.is_cpu and tensor.is_contiguous() and not lazy:
        yield memory(tensor)
        return
    # torch cannot copy every dtype, but it can copy these integer dtypes and complex128.
    if not lazy:
        same = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        tensor = tensor.view(same.get(tensor.element_size(), tensor.dtype))
    aside = torch.empty(min(_PIECE_BYTES, tensor.nbytes), dtype=torch.uint8, pin_memory=tensor.is_cuda)
    for part in _parts(tensor):
        piece = aside[: part.nbytes]
        piece.view(part.dtype).view(part.shape).copy_(part)
        yield memory(piece)


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yield parts of at most 8 MiB that contain the tensor's elements in order."""
    if tensor.nbytes <= _PIECE_BYTES:
        yield tensor
    elif len(tensor) == 1:
        yield from _parts(tensor[0])
    else:
        for part in torch_module().split(tensor, max(1, len(tensor) * _PIECE_BYTES // tensor.nbytes)):
            yield from _parts(part)


def flat(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor's memory as a one-dimensional byte tensor."""
    return tensor.reshape(-1).view(torch_module().uint8)


def memory(tensor: Tensor) -> memoryview:
    """Return a writable view of the memory of a contiguous tensor on the CPU."""
    line: Any = flat(tensor).numpy()
    return memoryview(line)
