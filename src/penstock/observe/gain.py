"""What a training loop would gain if its data cost nothing: the same loop, on batches that are kept in memory."""

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

_KEPT = 4  # batches: as many as a step can tell apart, and few enough for a device's memory


def headroom(loader: Iterable[T], *, batches: int = 50, warm_up: int = 5) -> Headroom[T]:
    """Return what yields ``loader``'s batches, then the last few of them again and again, and measures both.

    Write the training loop over it, and read the result afterwards::

        measured = penstock.observe.headroom(loader)
        for batch in measured:
            step(batch)
        print(measured)

    Reading has ended before the kept batches are yielded, so the second half is what the loop can do at most with this
    model, batch and device. A step that changes a batch in place sees its changes again, and a model that is trained
    meanwhile sees samples repeatedly: measure before the training, or on a copy of the model. Under DDP measure on all
    ranks alike. Four batches stay in memory.

    A loader that has ``state_dict`` and ``load_state_dict`` is returned to where it was, also after ``break``.

    Args:
        loader: A ``penstock.DataLoader``, or anything else that can be iterated over.
        batches: How many are measured of each kind; fewer where the loader has fewer.
        warm_up: How many before these are not, of each kind; at most half of all.

    Raises:
        Unusable: A number that cannot be meant.

    """
    return Headroom(loader, whole(batches, "batches", 2), whole(warm_up, "warm_up", 0))


class Headroom(Generic[T]):
    """A measurement: see ``headroom``. Each iteration measures anew; an iteration that is left early measures nothing.

    Attributes:
        batches: How many batches of each kind were measured; 0 before an iteration has ended.
        batch_s: Seconds per batch of the loop on ``loader``.
        kept_s: Seconds per batch of the same loop on batches in memory.

    """

    def __init__(self, loader: Iterable[T], batches: int, warm_up: int) -> None:
        """Measure nothing yet."""
        self._loader, self._wanted, self._warm_up = loader, batches, warm_up
        self.batches = 0
        self.batch_s = self.kept_s = 0.0

    @property
    def gain(self) -> float:
        """How many times as fast the loop can be at most: 1.0 where it does not wait for data.

        Raises:
            Unusable: Nothing was measured yet.

        """
        self._check()
        if not self.kept_s:
            return float("inf") if self.batch_s else 1.0
        return max(1.0, self.batch_s / self.kept_s)

    @property
    def waiting(self) -> float:
        """The share of the loop's time that better loading can save at most, 0 to 1. Raises as ``gain`` does."""
        return 1.0 - 1.0 / self.gain

    def __iter__(self) -> Iterator[T]:
        """Yield the loader's batches, and as many that were kept."""
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
                iterator = iter(())  # torch's own ends its workers when nothing refers to it
            if read.count < 2:  # noqa: PLR2004  a warm-up of one, and one that is measured
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
                self._loader.load_state_dict(before)  # type: ignore[attr-defined]  # _state has looked

    def __str__(self) -> str:
        """Say what was measured, in one line."""
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
        """Take note that the loop has come round; ``settle``: once the device has, too."""
        if settle:
            _settle()
        self.count += 1
        self._moments.append(monotonic())

    def end(self) -> None:
        """Wait for the device, whose work the last moment includes."""
        _settle()
        self._moments[-1] = monotonic() if self.count else self._moments[-1]

    def per_batch_s(self, warm_up: int) -> float:
        """Return seconds per batch after the first ``warm_up``."""
        return (self._moments[-1] - self._moments[warm_up]) / (self.count - warm_up)


def _settle() -> None:
    """Wait until the GPU has done what it was asked: a step returns before. Loads no torch."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _state(loader: object) -> object:
    """Return where a loader is, if it can be returned there; else None."""
    taken = getattr(loader, "state_dict", None)
    return taken() if callable(taken) and callable(getattr(loader, "load_state_dict", None)) else None


def _close(iterator: object) -> None:
    """End a loader's reading: its threads would take part in what is measured next."""
    close = getattr(iterator, "close", None)
    if callable(close):
        close()
