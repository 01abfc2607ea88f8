"""Tensors as bytes: their memory, or copies of it in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from torch import Tensor

__all__ = ["flat", "memory", "pieces", "torch_module"]

_PIECE_BYTES = 8 << 20  # of a tensor that is not in CPU memory, or not contiguous, that are copied at once


def torch_module() -> ModuleType:
    """Return torch, or raise ``MissingExtra``."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("checkpoints of tensors need torch: pip install 'penstock[torch]'") from None
    return torch


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
