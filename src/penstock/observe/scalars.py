"""A loader's counts as scalars for curves: TensorBoard, Weights & Biases, or anything that takes numbers by name."""

from __future__ import annotations

from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.errors import Unusable, discreet, printable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scalars"]

_LOG = getLogger("penstock")
_WARN_EVERY_S: Final = 30.0
_TOTALS: Final = ("requests", "retries", "errors", "skipped", "cached", "size_bytes")


class Counted(Protocol):
    """A loader that counts: ``penstock.DataLoader``."""

    def stats(self) -> Any:  # noqa: ANN401  this room must not import its class
        """Return the counts since the loader was made."""


class Board(Protocol):
    """The part of a ``SummaryWriter`` that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None, /) -> object:
        """Record a number."""


class Run(Protocol):
    """The part of a run of Weights & Biases that is used."""

    def log(self, data: dict[str, Any], /) -> object:
        """Record numbers by name."""


class Scalars:
    """Numbers of a loader since the previous call, for use in the training loop every few steps.

    Makes no request, and does not wait for workers. An exception of TensorBoard's writer or of the run is logged, and
    the loop goes on.

    | name | what |
    |---|---|
    | ``utilisation`` | share of time that the loop computed, 0 to 1 |
    | ``waiting_s`` | seconds that the loop waited for batches |
    | ``batches_per_s``, ``samples_per_s`` | batches and samples that the loop received |
    | ``bytes_per_s`` | bytes of objects, including objects read ahead |
    | ``requests``, ``retries``, ``errors``, ``skipped`` | counts |
    | ``cached`` | reads that needed no request |

    """

    def __init__(self, loader: Counted, prefix: str = "penstock/") -> None:
        """Begin to count; names begin with ``prefix``. Raise ``Unusable`` for a loader without counts (torch's)."""
        if not callable(getattr(loader, "stats", None)):
            raise Unusable(f"Scalars takes a penstock.DataLoader, which counts, not a {type(loader).__name__}")
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

    def to_tensorboard(self, writer: Board, step: int) -> None:
        """Add the numbers to a ``torch.utils.tensorboard.SummaryWriter``, or Lightning's ``logger.experiment``."""

        def add() -> None:
            for name, value in self.take().items():
                writer.add_scalar(name, value, step)

        self._guarded(add)

    def to_wandb(self, run: Run, **values: Any) -> None:  # noqa: ANN401  any value that a program logs
        """Log the numbers to a run of Weights & Biases, in one step with ``values`` (the loss, say)."""
        self._guarded(lambda: run.log({**self.take(), **values}))

    def _guarded(self, tell: Callable[[], object]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  a broken sink must not break a training
            now = monotonic()
            if self._warned_s is None or now > self._warned_s + _WARN_EVERY_S:
                self._warned_s = now
                text = printable(discreet(f"{type(error).__name__}: {error}"))
                _LOG.warning("scalars could not be told: %s", text)

    def _counts(self) -> dict[str, float]:
        stats = self._loader.stats()
        total = stats.total
        own = {name: getattr(stats, name) for name in ("batches", "samples", "waiting_s", "computing_s")}
        return own | {name: getattr(total, name) for name in _TOTALS}
