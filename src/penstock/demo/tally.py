"""Counts what the training reports over all its processes: where it stands, and which images it has learnt from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

__all__ = ["Pace", "Tally"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How many objects were read in how many seconds, and how many of these the training waited for data."""

    objects: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0

    def __add__(self, other: Pace) -> Pace:
        """Return the sum of both."""
        return Pace(self.objects + other.objects, self.elapsed_s + other.elapsed_s, self.waited_s + other.waited_s)

    def __str__(self) -> str:
        """Say it in a line; at least one object must have been read."""
        waited = self.waited_s / self.elapsed_s
        return f"{self.objects / self.elapsed_s:,.0f} objects/s, {waited:.0%} of the time waiting for data"


class _Batch(NamedTuple):
    epoch: int
    numbers: tuple[int, ...]
    loss: float


@dataclass(slots=True)
class Tally:
    """Hears every report of ``train``; a step counts only if a checkpoint or the running process has it.

    Attributes:
        step: How many steps the training has done.
        began: How many steps the present process found in its checkpoint.
        batches: How many an epoch has.
        images: How many an epoch has.
        pace: All of it so far.
        again: Steps that were done a second time.
        alike: How many of these had the very same loss.
        accuracy: Share of the test images classified correctly.

    """

    step: int = 0
    began: int = 0
    batches: int = 1
    images: int = 0
    pace: Pace = field(default_factory=Pace)
    again: int = 0
    alike: int = 0
    accuracy: float = 0.0
    _steps: dict[int, _Batch] = field(default_factory=dict)
    _lost: dict[int, _Batch] = field(default_factory=dict)

    def hear(self, event: dict[str, Any]) -> None:
        """Take one report in."""
        match event:
            case {"ready": step, "batches": batches, "images": images}:
                self.step = self.began = step
                self.batches, self.images = batches, images
                self._lost = {each: batch for each, batch in self._steps.items() if each > step}
                self._steps = {each: batch for each, batch in self._steps.items() if each <= step}
            case {"step": step, "epoch": epoch, "numbers": numbers, "loss": loss}:
                self.step = step
                self._steps[step] = _Batch(epoch, tuple(numbers), loss)
                if step in self._lost:
                    self.again += 1
                    self.alike += self._lost[step] == self._steps[step]  # JSON keeps every bit of a float
            case {"pace": pace}:
                self.pace += Pace(*pace)
            case {"accuracy": accuracy}:
                self.accuracy = accuracy

    def place(self, step: int) -> str:
        """Say where in an epoch a step lies."""
        epoch, batch = divmod(step, self.batches)
        return f"in epoch {epoch + 1}, after {batch} of {self.batches} batches"

    def loss(self, epoch: int) -> float:
        """Return the mean loss of an epoch, counted from 0."""
        return fmean(batch.loss for batch in self._steps.values() if batch.epoch == epoch)

    def delivered(self, epochs: int) -> tuple[int, int]:
        """Return how many images were missed and how many came again, summed over the epochs."""
        times = Counter((batch.epoch, number) for batch in self._steps.values() for number in batch.numbers)
        return epochs * self.images - len(times), sum(times.values()) - len(times)
