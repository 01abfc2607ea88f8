"""Which trace an iteration over a loader belongs to, told to its workers; and ranges for torch's profiler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import torch

from penstock.catalog.storage.region import Slot
from penstock.events import CONTEXT_BYTES, context, enter

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

__all__ = ["WAIT_RANGE", "TraceSlot", "ranged"]

T = TypeVar("T")

WAIT_RANGE = "penstock.DataLoader.__next__"


class TraceSlot:
    """The context of the latest iteration, in memory that workers share: persistent ones see each iteration's."""

    def __init__(self) -> None:
        """Hold none."""
        self._slot = Slot(CONTEXT_BYTES)
        self._pid = os.getpid()

    def write(self) -> None:
        """Take the context of this thread, as an iteration begins."""
        if self._pid != os.getpid():  # a rank that was forked: the memory is its parent's, too
            self._slot, self._pid = Slot(CONTEXT_BYTES), os.getpid()
        self._slot.view[:] = context().ljust(CONTEXT_BYTES, b"\0")

    def enter(self) -> None:
        """Belong to that context, in a worker, as its part of the iteration begins."""
        enter(bytes(self._slot.view).rstrip(b"\0"))


def ranged(items: Iterable[T]) -> Generator[T]:
    """Yield items; while torch's profiler runs, the wait for each is a range, as of torch's own loader."""
    iterator = iter(items)
    missing = object()
    while True:
        # What torch's own modules ask; a range costs microseconds without a profiler, too.
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001
            with torch.profiler.record_function(WAIT_RANGE):
                item = next(iterator, missing)
        else:
            item = next(iterator, missing)
        if item is missing:
            return
        yield item  # type: ignore[misc]  # not the one that is missing
