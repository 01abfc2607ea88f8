"""Measurements of a loader: how much faster data loading can make the loop, and the loader's counts as scalars."""

from __future__ import annotations

import sys
from collections import deque
from itertools import cycle, islice
from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.errors import Unusable, discreet, kind_of, printable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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

    Example:
        >>> from penstock.observe import headroom
        >>> found = headroom(range(20), batches=8, warm_up=2)
        >>> for batch in found:
        ...     trained = batch + 1  # the training step
        >>> found.batches
        8
    """
    return Headroom(loader, whole(batches, "batches", 2), whole(warm_up, "warm_up", 0))


class Headroom(Generic[T]):
    """A measurement: see ``headroom``. Each iteration measures again; an iteration that ends early measures nothing.

    Args:
        loader: As for ``headroom``, like the other arguments.
        batches: Number of measured batches in each half.
        warm_up: Number of batches before these that are not measured.

    Attributes:
        batches: Number of measured batches in each half; 0 before an iteration has ended.
        batch_s: Seconds per batch of the loop on ``loader``.
        kept_s: Seconds per batch of the same loop on batches in memory.

    Example:
        >>> from penstock.observe import headroom
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=5)
        >>> found = headroom(loader, batches=5, warm_up=1)
        >>> seen = sum(1 for batch in found)
        >>> found.batches, found.gain >= 1.0
        (5, True)
    """

    def __init__(self, loader: Iterable[T], batches: int, warm_up: int) -> None:
        self._loader, self._wanted, self._warm_up = loader, batches, warm_up
        self.batches = 0
        self.batch_s = self.kept_s = 0.0

    @property
    def gain(self) -> float:
        """The maximum speed-up of the loop, 1.0 if it does not wait; ``Unusable`` if nothing has been measured yet."""
        if not self.batches:
            raise Unusable("nothing has been measured yet: iterate to the end")
        if not self.kept_s:
            return float("inf") if self.batch_s else 1.0
        return max(1.0, self.batch_s / self.kept_s)

    @property
    def waiting(self) -> float:
        """The maximum share of the loop's time that better loading can save, 0 to 1. Raises like ``gain``."""
        return 1.0 - 1.0 / self.gain

    def __iter__(self) -> Iterator[T]:
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
                raise Unusable(f"too few batches to measure: the loader has {read.count}, and 2 are needed")
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
        if not self.batches:
            return "headroom: nothing was measured yet; iterate over it"
        now, most = 1 / max(self.batch_s, 1e-9), 1 / max(self.kept_s, 1e-9)
        return (
            f"headroom: {now:,.3g} batches/s now, {most:,.3g} at most with the same batches in memory: better loading "
            f"gains {self.gain:.3g} times at most, {self.waiting:.0%} of the time (over {self.batches} batches)"
        )


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


_LOG = getLogger("penstock")
_WARN_EVERY_S: Final = 30.0
_TOTALS: Final = ("requests", "retries", "errors", "skipped", "cached", "size_bytes")


class Scalars:
    """Numbers of a loader since the previous call, for use in the training loop every few steps.

    Makes no request, and does not wait for workers. An exception of TensorBoard's writer or of the run is logged, and
    the loop continues.

    - ``utilisation``: share of time that the loop computed, 0 to 1
    - ``waiting_s``: seconds that the loop waited for batches
    - ``batches_per_s``, ``samples_per_s``: batches and samples that the loop received
    - ``bytes_per_s``: bytes of objects, including objects read ahead
    - ``requests``, ``retries``, ``errors``, ``skipped``: counts
    - ``cached``: reads that needed no request

    Args:
        loader: A ``penstock.DataLoader``.
        prefix: Beginning of all names.

    Raises:
        Unusable: The loader has no counts (torch's).

    Example:
        >>> from penstock.observe import Scalars
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=5)
        >>> scalars = Scalars(loader)
        >>> batches = list(loader)
        >>> scalars.take()["penstock/errors"]
        0.0
    """

    def __init__(self, loader: Any, prefix: str = "penstock/") -> None:  # noqa: ANN401  this room does not import it
        if not callable(getattr(loader, "stats", None)):
            raise Unusable(f"Scalars needs a penstock.DataLoader, got {kind_of(loader)}")
        self._loader = loader
        self._prefix = prefix
        self._warned_s: float | None = None
        self._at_s = monotonic()
        self._before = self._counts()

    def take(self) -> dict[str, float]:
        """Return the numbers by name."""
        now, counts = monotonic(), self._counts()
        since = {name: max(0.0, counts[name] - self._before[name]) for name in counts}
        seconds, self._at_s, self._before = now - self._at_s, now, counts
        looped_s = since["waiting_s"] + since["computing_s"]
        rates = {"batches_per_s": "batches", "samples_per_s": "samples", "bytes_per_s": "size_bytes"}
        return {
            f"{self._prefix}{name}": value
            for name, value in {
                "utilisation": since["computing_s"] / looped_s if looped_s else 0.0,
                "waiting_s": since["waiting_s"],
                **{name: since[of] / seconds if seconds else 0.0 for name, of in rates.items()},
                **{name: since[name] for name in ("requests", "retries", "errors", "skipped", "cached")},
            }.items()
        }

    def to_tensorboard(self, writer: Any, step: int) -> None:  # noqa: ANN401  of an optional library
        """Add the numbers to TensorBoard.

        Args:
            writer: A ``torch.utils.tensorboard.SummaryWriter``, or Lightning's ``logger.experiment``.
            step: Number of the training step.
        """

        def add() -> None:
            for name, value in self.take().items():
                writer.add_scalar(name, value, step)

        self._guarded(add)

    def to_wandb(self, run: Any, **values: Any) -> None:  # noqa: ANN401  the same, and any value
        """Log the numbers to a run of Weights & Biases, in one step with ``values``.

        Args:
            run: The run.
            **values: More numbers by name, such as the loss.
        """
        self._guarded(lambda: run.log({**self.take(), **values}))

    def _guarded(self, tell: Callable[[], object]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  a broken sink must not break a training
            now = monotonic()
            if self._warned_s is None or now > self._warned_s + _WARN_EVERY_S:
                self._warned_s = now
                text = printable(discreet(f"{type(error).__name__}: {error}"))
                _LOG.warning("cannot log scalars: %s", text)

    def _counts(self) -> dict[str, float]:
        stats = self._loader.stats()
        total = stats.total
        own = {name: getattr(stats, name) for name in ("batches", "samples", "waiting_s", "computing_s")}
        return own | {name: getattr(total, name) for name in _TOTALS}
