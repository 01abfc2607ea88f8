"""Tensors as bytes: their memory, copies in pieces, and staging memory that is page-locked if that is faster."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from penstock.errors import require_extras
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from torch import Tensor

# Bytes of one buffer: a multiple of the checksum block. gather holds up to twelve buffers.
STAGE_BYTES = 16 << 20


def allocate_stage(size_bytes: int, *, page_locked: bool) -> Tensor:
    """Return new CPU memory as a line of bytes; use ``page_locked`` for data on its way to a GPU.

    torch caches page-locked memory for reuse, and tracks copies out of it that are still in progress.
    """
    torch = torch_module()
    buffer: Tensor = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=page_locked)
    return buffer


def cuts(start: int, stop: int, origin: int = 0) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` at each ``STAGE_BYTES`` from ``origin``, so that no checksummed block is read twice."""
    while start < stop:
        end = min(stop, start + STAGE_BYTES - (start - origin) % STAGE_BYTES)
        yield start, end
        start = end


class Stage:
    """Reusable CPU memory (page-locked for a GPU) for copies of states: new memory costs more than a copy."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def copy(self, state: Any) -> Any:  # noqa: ANN401  any nest of tensors
        """Return a deep copy of a state, which shares nothing with it that can change; tensors are copied to the CPU.

        A tensor within an object of another class is copied on its own device. This overwrites the previous copy.
        """
        torch = torch_module()
        spare: dict[object, list[Any]] = {}
        for tensor in self._held:
            spare.setdefault(_make_memory_key(tensor), []).append(tensor)
        copies: dict[object, Any] = {}
        known: dict[int, Any] = {}

        def aside(tensor: Any) -> Any:  # noqa: ANN401  torch is not imported where this is read
            # Tied weights stay tied.
            place = _place(tensor)
            if place not in copies:
                if _is_odd(tensor):
                    # torch makes no empty tensor like these, and cannot copy into it.
                    of = tensor.detach()
                    copies[place] = known[id(tensor)] = of.clone() if of.is_nested else deepcopy(of)
                    return tensor
                fitting = spare.get(_make_memory_key(tensor)) if _is_plain(tensor) else None
                empty = fitting.pop() if fitting else torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
                # Asynchronous for CUDA only: nothing here waits for other devices.
                copies[place] = empty.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            known[id(tensor)] = copies[place]
            return tensor

        tree_map(aside, state, torch.Tensor)
        self._held = [each.detach() for each in copies.values() if _is_plain(each)]
        result = deepcopy(state, known)
        for number in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
            torch.cuda.synchronize(number)
        return result


def _is_plain(tensor: Any) -> bool:  # noqa: ANN401  see Stage
    """Return whether a tensor is of torch's own class, or a parameter, and has elements in memory."""
    return type(tensor.detach()) is torch_module().Tensor and not _is_odd(tensor)


def _is_odd(tensor: Any) -> bool:  # noqa: ANN401  see Stage
    nested = tensor.is_nested and tensor.layout is torch_module().strided
    return bool(tensor.is_meta or tensor.is_quantized or nested)


def _place(tensor: Any) -> object:  # noqa: ANN401  see Stage
    """Return a key for a tensor's place in memory; a ``state_dict`` makes an object for each name of a tied weight."""
    if not _is_plain(tensor) or tensor.layout is not torch_module().strided or not tensor.numel():
        return id(tensor)
    lazy = tensor.is_conj(), tensor.is_neg()
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), lazy


def _make_memory_key(tensor: Any) -> object:  # noqa: ANN401  see Stage
    strides = tensor.stride() if tensor.layout is torch_module().strided else None
    return tensor.dtype, tensor.shape, strides, tensor.layout, tensor.is_cuda or tensor.is_pinned()


def staged_bytes(state: Any) -> int:  # noqa: ANN401  see Stage
    """Return the total bytes of a state's tensors; tied weights count once."""
    sizes: dict[object, int] = {}

    def measure(tensor: Any) -> Any:  # noqa: ANN401  see Stage
        sizes[_place(tensor)] = tensor.numel() * tensor.element_size()
        return tensor

    tree_map(measure, state, torch_module().Tensor)
    return sum(sizes.values())


# Bytes copied at once, of a tensor that is not in CPU memory or not contiguous.
_PIECE_BYTES = 8 << 20


def torch_module() -> ModuleType:
    with require_extras("checkpoints of tensors need torch", torch="torch"):
        import torch
    return torch


def iterate_bytes(tensor: Tensor) -> Iterator[memoryview]:
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
    for part in _split_tensor(tensor):
        piece = aside[: part.nbytes]
        piece.view(part.dtype).view(part.shape).copy_(part)
        yield memory(piece)


def _split_tensor(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.nbytes <= _PIECE_BYTES:
        yield tensor
    elif len(tensor) == 1:
        yield from _split_tensor(tensor[0])
    else:
        for part in torch_module().split(tensor, max(1, len(tensor) * _PIECE_BYTES // tensor.nbytes)):
            yield from _split_tensor(part)


def memory_bounds(tensor: Tensor) -> tuple[int, int]:
    """Return the address of a tensor's first element, and the one after its last; for tensors with elements."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.data_ptr())
    return start, start + (reach + 1) * tensor.element_size()


def flat(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch_module().uint8)


def memory(tensor: Tensor) -> memoryview:
    """Return a writable view of the memory of a contiguous tensor on the CPU."""
    line: Any = flat(tensor).numpy()
    return memoryview(line)
