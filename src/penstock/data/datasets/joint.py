"""Readings of several datasets as one: each batch has its samples at their places, whichever dataset each is of.

Each dataset has a reading of its own, with its store, format and transform. A ``_Feed`` hands out the samples of each
batch to the readings, so far ahead as they look.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from penstock.data.datasets.reading import Item, Reading
from penstock.engine.contracts.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Split: TypeAlias = "Callable[[list[int]], tuple[list[int], list[int]]]"

__all__ = ["MOST_SHARES", "JointReading", "Member", "shares"]

# Samples that are known ahead of the one that is taken: enough for the windows of shards. A dataset whose next sample
# lies farther ahead waits, so that looking for it does not draw a whole epoch.
_AHEAD = 1 << 16
MOST_SHARES = 16
_COUNTS = tuple(each.name for each in fields(ReadCounts))


class Noted(Protocol):
    """What a joint reading calls after each batch."""

    def __call__(self, samples: Sequence[int], waited_s: Sequence[float], *, last: bool) -> None:
        """Take the counts of a batch."""


class Member(NamedTuple):
    """A dataset of a joint reading.

    Attributes:
        reading: Returns the reading of the dataset's batches, for a number of processes that share the budget.
        share: The dataset gets 1 / ``share`` of the read-ahead of its store.

    """

    reading: Callable[[Iterable[list[int]], int], Reading]
    share: int


def shares(lengths: Sequence[int]) -> list[int]:
    """Return the ``Member.share`` of datasets whose samples are mixed in proportion to ``lengths``."""
    total = sum(lengths)
    return [max(1, min(MOST_SHARES, total // max(each, 1))) for each in lengths]


class _Feed:
    """The samples of batches by dataset, as far as they are known.

    Attributes:
        turns: For each batch that was drawn and not taken, the number of each sample's dataset, and the places of each
            dataset's samples in the batch.
        taken: Number of samples that were taken.

    """

    def __init__(self, batches: Iterable[list[int]], split: Split, count: int) -> None:
        self._batches, self._split = iter(batches), split
        self._waiting: list[deque[list[int]]] = [deque() for _ in range(count)]
        self._drawn = 0
        self._ended = False
        self.turns: deque[tuple[list[int], dict[int, list[int]]]] = deque()
        self.taken = 0

    def draw(self) -> bool:
        """Draw a batch; return False if none is known now, or none is left."""
        batch = None if self._ended else next(self._batches, None)
        if not batch:
            self._ended = batch is None
            return False
        numbers, indices = self._split(batch)
        places: dict[int, list[int]] = {}
        for slot, number in enumerate(numbers):
            places.setdefault(number, []).append(slot)
        for number, slots in places.items():
            self._waiting[number].append([indices[slot] for slot in slots])
        self.turns.append((numbers, places))
        self._drawn += len(batch)
        return True

    def of(self, number: int) -> Iterator[list[int]]:
        """Yield the samples of one dataset, batch by batch; an empty list where the next are not known yet."""
        waiting = self._waiting[number]
        while True:
            if waiting:
                yield waiting.popleft()
            elif self._drawn - self.taken >= _AHEAD:
                yield []
            elif not self.draw():
                if self._ended:
                    return
                yield []


class JointReading(Reading):
    """The samples of batches that several datasets share."""

    def __init__(
        self,
        members: Sequence[Member],
        batches: Iterable[list[int]],
        split: Split,
        workers: int,
        noted: Noted | None = None,
    ) -> None:
        """Prepare to read; nothing begins before the first ``next``.

        Args:
            members: The datasets.
            batches: Batches of samples.
            split: Returns, for the samples of a batch, the number of each one's dataset, and its number in that.
            workers: Number of processes that read in parallel.
            noted: Called after each batch with the samples of each dataset, the seconds that it was waited for, and
                whether the batch is the last.

        """
        self._noted = noted
        self._waited_s = [0.0] * len(members)
        self._feed = _Feed(batches, split, len(members))
        self._readings = [
            each.reading(self._feed.of(number), workers * each.share) for number, each in enumerate(members)
        ]
        self._begun: set[int] = set()
        # Of the current batch: the dataset of each sample, -1 once that is taken; the places of each dataset's samples,
        # and how many of these are taken.
        self._numbers: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._done: list[int] = [0] * len(members)
        self._batch, self._slot = -1, 0
        self._counts = ReadCounts()

    @property
    def counts(self) -> ReadCounts:
        """The counts of the reads so far, of the batches that were taken."""
        self._count()
        return self._counts

    def __next__(self) -> Item:
        """Return the next item of the dataset that has the first sample that is still to come."""
        numbers = self._numbers
        while self._slot < len(numbers) and numbers[self._slot] < 0:
            self._slot += 1
        if self._slot == len(numbers):
            self._advance()
            numbers = self._numbers
        number = numbers[self._slot]
        item = next(self._readings[number])
        if not item.size:
            return item
        _, _, _, url, make, samples, _ = item
        done = self._done[number]
        self._done[number] = after = done + item.length
        slots = tuple(self._places[number][done:after])
        for slot in slots:
            numbers[slot] = -1
        self._feed.taken += len(slots)
        return Item(self._batch, slots[0], len(numbers), url, make, samples, slots if samples else ())

    def _advance(self) -> None:
        """Go on to the next batch.

        Raises:
            StopIteration: There is none.

        """
        self._count()
        feed = self._feed
        ended = not feed.turns and not feed.draw()
        if self._noted is not None and self._places:
            self._note(self._noted, last=ended)
        if ended:
            self._places = {}
            for number in self._begun:
                # Ends the operation as done; closing would end it as cancelled.
                next(self._readings[number], None)
            raise StopIteration
        (self._numbers, self._places), self._slot = feed.turns.popleft(), 0
        self._done = [0] * len(self._readings)
        self._batch += 1
        for number in self._places.keys() - self._begun:
            # All datasets of a batch read at the same time.
            self._begun.add(number)
            self._readings[number].begin()

    def ahead(self) -> Item | None:
        """Return a preparing item of any of the datasets that read already; None without such an item."""
        found = (self._readings[number].ahead() for number in self._begun)
        return next((item for item in found if item is not None), None)

    def _count(self) -> None:
        found = [reading.counts for reading in self._readings]
        for name in _COUNTS:
            setattr(self._counts, name, sum([getattr(counts, name) for counts in found]))

    def _note(self, noted: Noted, *, last: bool) -> None:
        samples = [len(self._places.get(number, ())) for number in range(len(self._readings))]
        waited_s = [reading.counts.waiting_s for reading in self._readings]
        noted(samples, [now - before for now, before in zip(waited_s, self._waited_s, strict=True)], last=last)
        self._waited_s = waited_s

    def close(self) -> None:
        """Cancel reads in flight."""
        for reading in self._readings:
            reading.close()
