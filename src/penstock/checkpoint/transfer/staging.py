"""Memory that tensors pass through: page-locked where that is faster, and kept where it is used again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.transfer.tensors import torch_module
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["STAGE_BYTES", "Stage", "cuts", "staged", "staged_bytes"]

STAGE_BYTES = 16 << 20  # of one buffer: whole blocks of checksums; gather holds up to twelve of them


def staged(size_bytes: int, *, page_locked: bool) -> Tensor:
    """Return new CPU memory to read into, as a line of bytes; ``page_locked`` on the way to a GPU.

    torch keeps page-locked memory for the next, and knows which copies out of it are still under way.
    """
    torch = torch_module()
    buffer: Tensor = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=page_locked)
    return buffer


def cuts(start: int, stop: int, origin: int = 0) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` where each ``STAGE_BYTES`` from ``origin`` end: no checksummed block is read twice."""
    while start < stop:
        end = min(stop, start + STAGE_BYTES - (start - origin) % STAGE_BYTES)
        yield start, end
        start = end


class Stage:
    """CPU memory that one state after another is copied to; page-locked for what comes from a GPU.

    What one copy leaves, the next of the same shapes takes: fresh memory costs more than the copy.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: list[Any] = []

    def copy(self, state: Any) -> Any:  # noqa: ANN401  any nest of tensors
        """Return nested dicts, lists and tuples with each tensor copied; the rest stays itself.

        The copy before this one is gone then.
        """
        torch = torch_module()
        spare: dict[object, list[Any]] = {}
        for tensor in self._held:
            spare.setdefault(_kind(tensor), []).append(tensor)
        copies: dict[int, Any] = {}

        def aside(tensor: Any) -> Any:  # noqa: ANN401  torch is not imported where this is read
            if id(tensor) not in copies:  # tied weights stay tied
                fitting = spare.get(_kind(tensor)) if type(tensor.detach()) is torch.Tensor else None
                empty = fitting.pop() if fitting else torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
                copies[id(tensor)] = empty.copy_(tensor.detach(), non_blocking=True)
            return copies[id(tensor)]

        result = tree_map(aside, state, torch.Tensor)
        self._held = [each.detach() for each in copies.values() if type(each.detach()) is torch.Tensor]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result


def _kind(tensor: Any) -> object:  # noqa: ANN401  see Stage
    """Say what memory a tensor's copy takes."""
    strides = tensor.stride() if tensor.layout is torch_module().strided else None
    return tensor.dtype, tensor.shape, strides, tensor.layout, tensor.is_cuda or tensor.is_pinned()


def staged_bytes(state: Any) -> int:  # noqa: ANN401  see Stage
    """Return how many bytes the tensors of a state have."""
    sizes: dict[int, int] = {}

    def measure(tensor: Any) -> Any:  # noqa: ANN401  see Stage
        sizes[id(tensor)] = tensor.numel() * tensor.element_size()
        return tensor

    tree_map(measure, state, torch_module().Tensor)
    return sum(sizes.values())
