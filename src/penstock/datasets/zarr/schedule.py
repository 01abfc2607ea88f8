"""From an order of samples to an order of chunks: when each is needed first, and when last. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["Need", "Schedule", "Turn"]

_AT_ONCE = 1 << 12  # samples whose chunks are computed together
_MOST_CELLS = 1 << 16  # chunks of them, counted for each sample
_LEAST, _MOST = 16, 256  # samples that are looked at together: what does not fit is looked at again
_SPARE = 8  # look ahead once an eighth of the bytes is free, and not for each chunk that goes


class Turn(NamedTuple):
    """Samples whose turn it is: one, or several of a batch.

    Attributes:
        batch: Their batch, counted from 0.
        slot: Place of the first in the batch.
        size: Samples of the batch.
        samples: Their numbers.

    """

    batch: int
    slot: int
    size: int
    samples: list[int]


class Need(NamedTuple):
    """A chunk that has to be read.

    Attributes:
        chunk: Which.
        position: The sample that needs it first, counted over all samples of the epoch from 0.

    """

    chunk: int
    position: int


class Schedule:
    """Which chunks come next, and until when each is needed, as far as ``most_bytes`` of chunks allow to look ahead.

    ``extend`` looks ahead. It counts, of each chunk, the samples that need it; ``done`` counts down, and says when the
    chunk may go. A chunk that a sample needs beyond what was looked at is read again then. Nothing is locked.

    Attributes:
        position: Samples whose turn has been.
        frontier: Samples that have been looked at.
        held_bytes: Decoded bytes of the chunks that samples between the two need.

    """

    def __init__(
        self,
        batches: Iterable[list[int]],
        uses: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        size_of: Callable[[int], int],
        *,
        most_bytes: int,
        most_samples: int,
    ) -> None:
        """Follow ``batches`` of sample numbers; nothing is drawn yet.

        Args:
            batches: Of sample numbers.
            uses: Returns the chunks of each sample of an array, one row for each; -1 fills rows up.
            size_of: Returns the decoded bytes of a chunk.
            most_bytes: Chunks that are looked ahead for, and those in use, have at most so many bytes together; one
                sample's have more, if they must.
            most_samples: Look so many samples ahead at most.

        """
        self._batches = iter(batches)
        self._uses, self._size_of = uses, size_of
        self._most_bytes, self._most_samples = most_bytes, most_samples
        self._drawn: deque[list[int]] = deque()  # batches that have been drawn and whose turn is not over
        self._number, self._slot = 0, 0
        self._samples = np.empty(0, dtype=np.int64)  # drawn, and not looked at
        self._rows = np.empty((0, 0), dtype=np.int64)  # their chunks
        self._look = _LEAST
        self._left: dict[int, int] = {}  # samples that were looked at and need a chunk, by chunk
        self.queue: deque[Need] = deque()  # chunks in order of first need, for the caller to read
        self.position = self.frontier = self.held_bytes = 0

    def extend(self, *, must: bool = False) -> bool:
        """Look at more samples; False where no more may be looked at now, or there are no more.

        With ``must`` at least one more sample is looked at, whatever its chunks need.
        """
        ahead = self.frontier - self.position
        if not must and (
            self.held_bytes > self._most_bytes - self._most_bytes // _SPARE or ahead >= self._most_samples
        ):
            return False
        if not len(self._samples) and not self._draw():
            return False
        rows = self._rows[: self._look]
        count = self._admit(rows, must=must)
        for chunk, uses in zip(*(each.tolist() for each in np.unique(rows[:count], return_counts=True)), strict=True):
            if chunk >= 0:
                self._left[chunk] = self._left.get(chunk, 0) + uses
        self._samples, self._rows = self._samples[count:], self._rows[count:]
        self._look = min(_MOST, 2 * self._look) if count == len(rows) else max(_LEAST, self._look // 2)
        self.frontier += count
        return count > 0

    def _admit(self, rows: NDArray[np.int64], *, must: bool) -> int:
        """Queue the chunks that these samples need anew; return for how many samples, from the first on, that goes."""
        fresh, first = np.unique(rows, return_index=True)
        needs = first // max(rows.shape[1], 1)
        by_need = np.argsort(needs, kind="stable")
        new: list[Need] = []
        added = before = 0  # bytes; those of samples before the one that is looked at
        for chunk, need in zip(fresh[by_need].tolist(), needs[by_need].tolist(), strict=True):
            if chunk < 0 or chunk in self._left:
                continue
            if not new or self.frontier + need > new[-1].position:
                before = added
            added += self._size_of(chunk)
            new.append(Need(chunk, self.frontier + need))
            if self.held_bytes + added > self._most_bytes and not (must and not need):
                self.held_bytes += before
                self.queue.extend(each for each in new if each.position < self.frontier + need)
                return int(need)
        self.held_bytes += added
        self.queue.extend(new)
        return len(rows)

    def _draw(self) -> bool:
        """Draw batches until there are some thousand samples to look at."""
        drawn: list[int] = []
        most = _AT_ONCE if not self._rows.shape[1] else max(1, min(_AT_ONCE, _MOST_CELLS // self._rows.shape[1]))
        while len(drawn) < most and (batch := next(self._batches, None)) is not None:
            self._drawn.append(batch)
            drawn += batch
        self._samples = np.array(drawn, dtype=np.int64)
        if drawn:
            self._rows = self._uses(self._samples)
        return bool(drawn)

    def turn(self, most: int = 1) -> Turn:
        """Return the next samples, ``most`` at most that have been looked at, all of one batch."""
        batch = self._drawn[0]
        turn = Turn(self._number, self._slot, len(batch), batch[self._slot : self._slot + most])
        self._slot += len(turn.samples)
        if self._slot == len(batch):
            self._drawn.popleft()
            self._number, self._slot = self._number + 1, 0
        self.position += len(turn.samples)
        return turn

    def done(self, chunk: int, samples: int = 1) -> bool:
        """Count down the samples that need a chunk; True where that was the last one as far as is known."""
        left = self._left[chunk] - samples
        if left:
            self._left[chunk] = left
            return False
        del self._left[chunk]
        self.held_bytes -= self._size_of(chunk)
        return True
