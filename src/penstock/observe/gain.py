"""Measurement of the maximum gain from faster data loading: the same training loop, on batches kept in memory."""

from __future__ import annotations

import sys
from collections import deque
from itertools import cycle, islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Headroom", "headroom"]

T = TypeVar("T")

# Number of kept batches: enough that a step can tell them apart, and few enough for a device's memory.
_KEPT = 4


def headroom(loader: Iterable[T], *, batches: int = 50, warm_up: int = 5) -> Headroom[T]:
    """Return an iterable that yields ``loader``'s batches, then repeats the last few, and measures both halves.

    Run the training loop over it, and read the result afterwards::

        measured = penstock.observe.headroom(loader)
        for batch in measured:
            step(batch)
        print(measured)

    Reading ends before the kept batches are yielded, so the second half shows the maximum speed of the loop with this
    model, batch and device. A step that changes a batch in place sees its changes again, and a model that is trained in
    this loop sees samples repeatedly: measure before the training, or on a copy of the model. Under DDP, measure in the
    same way on all ranks. Four batches stay in memory.

    A loader with ``state_dict`` and ``load_state_dict`` is reset to its earlier position, also after ``break``.

    Args:
        loader: A ``penstock.DataLoader``, or any other iterable.
        batches: Number of measured batches in each half; fewer if the loader has fewer.
        warm_up: Number of batches before these that are not measured, in each half; at most half of all.

    Raises:
        Unusable: A number is invalid.

    """
    return Headroom(loader, whole(batches, "batches", 2), whole(warm_up, "warm_up", 0))


class Headroom(Generic[T]):
    """A measurement: see ``headroom``. Each iteration measures again; an iteration that ends early measures nothing.

    Attributes:
        batches: Number of measured batches in each half; 0 before an iteration has ended.
        batch_s: Seconds per batch of the loop on ``loader``.
        kept_s: Seconds per batch of the same loop on batches in memory.

    """

    def __init__(self, loader: Iterable[T], batches: int, warm_up: int) -> None:
        """Prepare the measurement, which each iteration makes."""
        self._loader, self._wanted, self._warm_up = loader, batches, warm_up
        self.batches = 0
        self.batch_s = self.kept_s = 0.0

    @property
    def gain(self) -> float:
        """The maximum speed-up of the loop: 1.0 if it does not wait for data.

        Raises:
            Unusable: Nothing has been measured yet.

        """
        self._check()
        if not self.kept_s:
            return float("inf") if self.batch_s else 1.0
        return max(1.0, self.batch_s / self.kept_s)

    @property
    def waiting(self) -> float:
        """The maximum share of the loop's time that better loading can save, 0 to 1. Raises like ``gain``."""
        return 1.0 - 1.0 / self.gain

    def __iter__(self) -> Iterator[T]:
        """Yield the loader's batches, then the same number of kept batches."""
        self.batches, self.batch_s, self.kept_s = 0, 0.0, 0.0
        before = _state(self._loader)
        try:
            kept: deque[T] = deque(maxlen=_KEPT)
            total = self._wanted + self._warm_up
            iterator = iter(self._loader)
            try:
                read = _Stopwatch()
                for batch in islice(iterator, total):
                    kept.append(batch)
                    yield batch
                    read.note(settle=read.count == self._warm_up - 1)
                read.end()
            finally:
                _close(iterator)
                # torch's iterator ends its workers when nothing refers to it.
                iterator = iter(())
            if read.count < 2:  # noqa: PLR2004  one for the warm-up, one measured
                raise Unusable(f"nothing to measure: the loader has {read.count} batches, and two are the least")
            again = _Stopwatch()
            for batch in islice(cycle(kept), read.count):
                yield batch
                again.note(settle=again.count == self._warm_up - 1)
            again.end()
            warm_up = min(self._warm_up, read.count // 2)
            self.batch_s, self.kept_s = read.per_batch_s(warm_up), again.per_batch_s(warm_up)
            self.batches = read.count - warm_up
        finally:
            if before is not None:
                self._loader.load_state_dict(before)  # type: ignore[attr-defined]  # checked by _state

    def __str__(self) -> str:
        """Return the result in one line."""
        if not self.batches:
            return "headroom: nothing was measured yet; iterate over it"
        now, most = 1 / max(self.batch_s, 1e-9), 1 / max(self.kept_s, 1e-9)
        return (
            f"headroom: {now:,.3g} batches/s now, {most:,.3g} at most with the same batches in memory: better loading "
            f"gains {self.gain:.3g} times at most, {self.waiting:.0%} of the time (over {self.batches} batches)"
        )

    def _check(self) -> None:
        if not self.batches:
            raise Unusable("nothing was measured yet: iterate over it to the end")


class _Stopwatch:
    """The moments at which a loop asks for its next batch."""

    def __init__(self) -> None:
        self.count = 0
        _settle()
        self._moments = [monotonic()]

    def note(self, *, settle: bool) -> None:
        """Record that the loop asks for its next batch; with ``settle``, wait for the device first."""
        if settle:
            _settle()
        self.count += 1
        self._moments.append(monotonic())

    def end(self) -> None:
        """Wait for the device, so that the last moment includes its work."""
        _settle()
        self._moments[-1] = monotonic() if self.count else self._moments[-1]

    def per_batch_s(self, warm_up: int) -> float:
        """Return seconds per batch after the first ``warm_up``."""
        return (self._moments[-1] - self._moments[warm_up]) / (self.count - warm_up)


def _settle() -> None:
    """Wait until the GPU has finished its queued work, because a step returns earlier. Does not import torch."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _state(loader: object) -> object:
    """Return the state of a loader if the loader can also load one; else None."""
    taken = getattr(loader, "state_dict", None)
    return taken() if callable(taken) and callable(getattr(loader, "load_state_dict", None)) else None


def _close(iterator: object) -> None:
    """Close a loader's iterator, because its threads would influence the next measurement."""
    close = getattr(iterator, "close", None)
    if callable(close):
        close()
