"""Readings of several datasets as one: each batch has the samples of all datasets at their places.

Each dataset has a separate reading, with its store, format and transform. A ``_Feed`` hands out the samples of each
batch to the readings, so far ahead as they look.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from penstock.data.reading.objects import MergedReading
from penstock.data.reading.reading import Item, Reading, attempt
from penstock.engine.contracts.fetching import ReadCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    # Returns the reading of batches, for a number of processes that share the budget.
    Read: TypeAlias = "Callable[[Iterable[list[Any]], int], Reading]"
    Split: TypeAlias = "Callable[[list[int]], tuple[list[int], list[int]]]"

# Samples that are known ahead of the one that is taken: enough for the windows of shards. A dataset whose next sample
# lies farther ahead waits, so that looking for it does not draw a whole epoch.
_AHEAD = 1 << 16
MOST_SHARES = 16
_COUNTS = tuple(each.name for each in fields(ReadCounts))


class Noted(Protocol):
    """A function that a joint reading calls after each batch."""

    def __call__(self, samples: Sequence[int], waited_s: Sequence[float], *, last: bool) -> None:
        """Take the counts of a batch."""


class JointMember(NamedTuple):
    """A dataset of a joint reading, or several that are read together."""

    # Returns the reading of its batches, for a number of processes that share the budget. Samples of several datasets
    # are pairs of the number of a dataset and its sample: a ``MergedReading``.
    reading: Read
    share: int  # gets 1 / ``share`` of the read-ahead of its store
    numbers: tuple[int, ...]  # of the datasets
    lenient: bool = False  # whether samples that fail are left out


def shares(lengths: Sequence[int]) -> list[int]:
    """Return the ``JointMember.share`` of datasets mixed in proportion to ``lengths``."""
    total = sum(lengths)
    return [max(1, min(MOST_SHARES, total // max(each, 1))) for each in lengths]


class _Feed:
    """The known samples of batches, by member."""

    def __init__(self, batches: Iterable[list[int]], split: Split, members: Sequence[JointMember]) -> None:
        self._batches, self._split = iter(batches), split
        self._waiting: list[deque[list[Any]]] = [deque() for _ in members]
        self._member = {number: at for at, member in enumerate(members) for number in member.numbers}
        self._merged = [len(member.numbers) > 1 for member in members]
        self._drawn = 0
        self._ended = False
        # For each batch that was drawn and not taken: the member of each sample, the places of each member's samples in
        # the batch, both empty if there is one member; and the number of each sample's dataset.
        self.turns: deque[tuple[list[int], dict[int, list[int]], list[int]]] = deque()
        self.taken = 0  # samples

    def draw(self) -> bool:
        """Draw a batch; return False if none is known now, or none is left."""
        batch = None if self._ended else next(self._batches, None)
        if not batch:
            self._ended = batch is None
            return False
        numbers, indices = self._split(batch)
        self._drawn += len(batch)
        if len(self._waiting) == 1:
            self._waiting[0].append([*zip(numbers, indices, strict=True)] if self._merged[0] else indices)
            self.turns.append(([], {}, numbers))
            return True
        members = [self._member[number] for number in numbers]
        places: dict[int, list[int]] = {}
        for slot, member in enumerate(members):
            places.setdefault(member, []).append(slot)
        for member, slots in places.items():
            mine: list[Any] = [indices[slot] for slot in slots]
            if self._merged[member]:
                mine = [*zip((numbers[slot] for slot in slots), mine, strict=True)]
            self._waiting[member].append(mine)
        self.turns.append((members, places, numbers))
        return True

    def of(self, member: int) -> Iterator[list[Any]]:
        """Yield the samples of one member, batch by batch; an empty list until the next are known."""
        waiting = self._waiting[member]
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
        members: Sequence[JointMember],
        batches: Iterable[list[int]],
        split: Split,
        workers: int,
        noted: Noted | None = None,
    ) -> None:
        """Prepare to read; nothing begins before the first ``next``.

        ``split`` returns, for the samples of a batch, the number of each one's dataset, and its number in that.
        ``noted`` is called after each batch with the samples of each dataset, the seconds that it was waited for, and
        whether the batch is the last.
        """
        self._noted, self._members = noted, members
        self._waited_s = [0.0] * sum(len(each.numbers) for each in members)
        self._feed = _Feed(batches, split, members)
        self._readings = [
            each.reading(self._feed.of(number), workers * each.share) for number, each in enumerate(members)
        ]
        self._begun: set[int] = set()
        # Of the current batch: the member of each sample, -1 once that is taken; the places of each member's samples;
        # the number of each sample's dataset.
        self._turn: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._numbers: list[int] = []
        self._batch, self._slot = -1, 0
        self._counts = ReadCounts()

    @property
    def counts(self) -> ReadCounts:
        self._count()
        return self._counts

    def __next__(self) -> Item:
        """Return the next item of the member with the next missing sample."""
        if len(self._readings) == 1:
            return self._passed()
        turn = self._turn
        while self._slot < len(turn) and turn[self._slot] < 0:
            self._slot += 1
        if self._slot == len(turn):
            self._advance()
            turn = self._turn
        member = turn[self._slot]
        item = self._taken(member)
        if not item.size:
            return item
        _, first, _, url, make, samples, inner = item
        places = self._places[member]
        # Samples of an item are not always next to each other: a member may be a joint reading itself.
        slots = tuple(map(places.__getitem__, inner)) if inner else tuple(places[first : first + item.length])
        for slot in slots:
            turn[slot] = -1
        self._feed.taken += len(slots)
        return Item(self._batch, slots[0], len(turn), url, make, samples, slots if samples else ())

    def _taken(self, member: int) -> Item:
        item = next(self._readings[member])
        lenient = self._members[member].lenient and item.size
        return item._replace(make=partial(attempt, item, "skip")) if lenient else item

    def _passed(self) -> Item:
        """Return the next item of the only member: its batches are the dataset's, so each item has its place."""
        try:
            item: Item | None = self._taken(0)
        except StopIteration:
            item = None
        if item is None or (item.size and item.batch != self._batch):
            self._count()
            if self._noted is not None and self._numbers:
                self._note(self._noted, last=item is None)
            self._numbers = []
        if item is None:
            raise StopIteration
        if item.size:
            if item.batch != self._batch:
                self._batch, self._numbers = item.batch, self._feed.turns.popleft()[2]
            self._feed.taken += item.length
        return item

    def _advance(self) -> None:
        """Start the next batch; raise StopIteration if there is none."""
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
        (self._turn, self._places, self._numbers), self._slot = feed.turns.popleft(), 0
        self._batch += 1
        for member in self._places.keys() - self._begun:
            # All datasets of a batch read at the same time.
            self._begun.add(member)
            self._readings[member].begin()

    def ahead(self) -> Item | None:
        """Return a preparing item of a dataset that reads already; None without such an item."""
        found = (self._readings[number].ahead() for number in self._begun)
        return next((item for item in found if item is not None), None)

    def _count(self) -> None:
        found = [reading.counts for reading in self._readings]
        for name in _COUNTS:
            setattr(self._counts, name, sum([getattr(counts, name) for counts in found]))

    def _note(self, noted: Noted, *, last: bool) -> None:
        samples, waited_s = [0] * len(self._waited_s), [0.0] * len(self._waited_s)
        for number in self._numbers:
            samples[number] += 1
        for member, reading in zip(self._members, self._readings, strict=True):
            if isinstance(reading, MergedReading):
                for number, seconds in reading.waited_s.items():
                    waited_s[number] = seconds
            else:
                waited_s[member.numbers[0]] = reading.counts.waiting_s
        noted(samples, [now - before for now, before in zip(waited_s, self._waited_s, strict=True)], last=last)
        self._waited_s = waited_s

    def close(self) -> None:
        for reading in self._readings:
            reading.close()
