"""Who takes which positions: global batches cut into equal slices over ranks, and dealt in turn to workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.values import Place

__all__ = ["Partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The batches of one worker of one rank: iterate for their positions ``(start, stop)``, half-open, never empty.

    With G = ``batch`` * world, global batch k is the positions [start + kG, start + (k + 1)G) below ``total``. Rank r
    takes the r-th of its equal slices, worker w the batches with k = w (mod workers). So, merged in turn over workers,
    a rank's batches do not depend on how many workers there are, nor the global batches on the number of ranks as long
    as G stays. After m global batches the state is one integer, ``start + m * G``; any place may go on from there.

    The last global batch may have fewer than G positions. ``tail="drop"`` leaves it out; ``"short"`` cuts it as evenly
    as it goes: slices differ by one at most. A slice that is empty is not yielded, so then some ranks have a batch
    less than others: padding it, so that all have the same number, is still to come.

    A stream of samples whose batches are formed elsewhere is ``batch=1``. O(1) memory; iterates as often as wanted.

    Attributes:
        total: Positions of the epoch.
        batch: Samples per batch and rank.
        place: Which rank and worker.
        start: First position not yet taken, in [0, total].
        tail: What becomes of an incomplete last global batch.

    Raises:
        Unusable: A value out of range.

    """

    total: int
    batch: int
    place: Place
    start: int = 0
    tail: Literal["drop", "short"] = "short"

    def __post_init__(self) -> None:
        """Refuse what would lose samples silently."""
        if not 0 <= self.start <= self.total:
            raise Unusable(f"position {self.start} of an epoch of {self.total} samples")
        if self.batch < 1:
            raise Unusable(f"a batch has at least one sample, not {self.batch}")
        if self.tail not in ("drop", "short"):
            raise Unusable(f"tail must be 'drop' or 'short', not {self.tail!r}")

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield this worker's batches in order."""
        for number in self._numbers():
            start, stop = self._slice(number)
            if start < stop:
                yield start, stop

    def __len__(self) -> int:
        """Return how many batches iterating yields, without iterating."""
        numbers = self._numbers()
        if not numbers:
            return 0
        start, stop = self._slice(numbers[-1])
        return len(numbers) - (start == stop)  # only the last one can be empty

    def _numbers(self) -> range:
        every = self.batch * self.place.world
        complete, rest = divmod(self.total - self.start, every)
        return range(self.place.worker, complete + (rest > 0 and self.tail == "short"), self.place.workers)

    def _slice(self, number: int) -> tuple[int, int]:
        rank, world = self.place.rank, self.place.world
        first = self.start + number * self.batch * world
        size = min(self.batch * world, self.total - first)
        return first + size * rank // world, first + size * (rank + 1) // world
