"""What the training reports, over all its lives: where it stands, and what it has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

__all__ = ["Pace", "Tally"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Reading in whole epochs: how much in how long, and how much of that time the training stood waiting."""

    objects: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: Pace) -> Pace:
        """Return both, one after the other."""
        return Pace(
            self.objects + other.objects,
            self.size_bytes + other.size_bytes,
            self.elapsed_s + other.elapsed_s,
            self.waited_s + other.waited_s,
        )

    def __str__(self) -> str:
        """Say it in a line; at least one object must have been read."""
        objects_per_s, bytes_per_s = self.objects / self.elapsed_s, self.size_bytes / self.elapsed_s
        waited = self.waited_s / self.elapsed_s
        return (
            f"{objects_per_s:,.0f} objects/s, {bytes_per_s / 1e6:.3f} MB/s, {waited:.0%} of the time waiting for data"
        )


@dataclass(slots=True)
class Tally:
    """Listens to ``train``.

    Attributes:
        epoch: How many whole epochs lie behind the training.
        batch: How many batches of the epoch that follows do.
        batches: How many an epoch has.
        began: How many epochs were done when the present life began.
        checkpoint: The newest; empty before the first.
        pace: All whole epochs.
        again: Batches trained a second time.
        alike: How many of these had the very same loss.
        accuracy: Share of the test objects read right.

    """

    epoch: int = 0
    batch: int = 0
    batches: int = 1
    began: int = 0
    checkpoint: str = ""
    pace: Pace = field(default_factory=Pace)
    again: int = 0
    alike: int = 0
    accuracy: float = 0.0
    _losses: dict[tuple[int, int], float] = field(default_factory=dict)

    def hear(self, event: dict[str, Any]) -> None:
        """Take one report in."""
        match event:
            case {"ready": epochs, "batches": batches, "checkpoint": checkpoint}:
                self.epoch = self.began = epochs
                self.batch, self.batches, self.checkpoint = 0, batches, checkpoint
            case {"loss": loss}:
                self._learnt((self.epoch, self.batch), loss)
                self.batch += 1
            case {"saved": checkpoint, "pace": pace}:
                self.epoch, self.batch, self.checkpoint = self.epoch + 1, 0, checkpoint
                self.pace += Pace(*pace)
            case {"accuracy": accuracy}:
                self.accuracy = accuracy

    def loss(self, epoch: int) -> float:
        """Return the mean loss of an epoch, counted from 0."""
        return fmean(self._losses[epoch, batch] for batch in range(self.batches))

    def _learnt(self, batch: tuple[int, int], loss: float) -> None:
        if batch in self._losses:
            self.again += 1
            self.alike += self._losses[batch] == loss  # JSON keeps every bit of a float
        self._losses[batch] = loss
