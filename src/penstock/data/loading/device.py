"""Transfer of batches to a device: page-locked memory, and copies one batch ahead of the training loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from penstock.data.datasets.policy import Delivery
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["pinned", "to_device"]


def pinned(batch: Any) -> Any:  # noqa: ANN401  any tree of tensors
    """Copy a batch's tensors into page-locked memory, from which copies to the device are asynchronous."""
    return tree_map(torch.Tensor.pin_memory, batch, torch.Tensor)


def mover(device: torch.device | None) -> Callable[[Any], Any]:
    """Return a function that moves a batch's tensors to ``device``; for None, they stay where they are.

    Copies from pinned memory are asynchronous. Copies from other memory are not: that memory may be reused as soon as
    the batch is dropped, since torch keeps only pinned memory until it is copied.
    """
    if device is None:
        return lambda batch: batch
    return partial(tree_map, lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()), kind=torch.Tensor)


def to_device(
    deliveries: Iterable[Delivery], device: torch.device, move: Callable[[Any], Any] | None = None
) -> Iterator[Delivery]:
    """Yield deliveries with their tensors on ``device``; ``move`` moves a batch, by default as ``mover`` does.

    For a CUDA device, each batch is copied while the training loop still works on the one before: on a separate stream,
    asynchronously from pinned memory. An error is raised in place of its batch.
    """
    move = move or mover(device)
    if device.type != "cuda":
        for delivery in deliveries:
            yield delivery._replace(batch=move(delivery.batch))
        return
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    under_way: tuple[Delivery, torch.cuda.Event] | None = None
    for outcome in _late(deliveries):
        before, under_way = under_way, None
        if isinstance(outcome, Delivery):
            with torch.cuda.stream(stream):
                under_way = outcome._replace(batch=move(outcome.batch)), stream.record_event()
        if before is not None:
            yield _arrived(*before, device)
        if isinstance(outcome, Exception):
            raise outcome


def _late(deliveries: Iterable[Delivery]) -> Iterator[Delivery | Exception | None]:
    """Yield deliveries, then the error that ended them, or None if none did."""
    try:
        yield from deliveries
    except Exception as error:  # noqa: BLE001  raised by the caller, after the batch before it
        yield error
    else:
        yield None


def _arrived(delivery: Delivery, copied: torch.cuda.Event, device: torch.device) -> Delivery:
    """Make the training loop's stream wait for the copy, and keep the copy's memory until that stream has used it."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        tensor.record_stream(current)
        return tensor

    tree_map(keep, delivery.batch, torch.Tensor)
    return delivery
