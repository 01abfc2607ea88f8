"""Schedule of chunks: which chunk is read next, and which sample needs it last, computed from an order of samples."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

_AT_ONCE = 1 << 12  # samples whose chunks are computed together
_FIRST = 1 << 9  # the same of the first, which the first request waits for
_END: list[int] = []
# Limit of the chunks of these samples, counted once per sample.
_MOST_CELLS = 1 << 16
# Samples that are looked at together: those that do not fit are looked at again.
_LEAST, _MOST = 16, 256
# Look ahead once an eighth of the bytes is free, not after each released chunk.
_SPARE = 8


class Turn(NamedTuple):
    """Next samples: one, or several of the same batch."""

    batch: int  # number of their batch, from 0
    slot: int  # place of the first in the batch
    size: int  # samples of the batch
    samples: list[int]  # numbers of the samples


class Need(NamedTuple):
    """Chunk to be read."""

    chunk: int  # number of the chunk
    position: int  # the first sample that needs it, counted over all samples of the epoch from 0


class Schedule:
    """Order of the next chunks and their last uses; looks at most ``most_bytes`` of chunks ahead.

    ``extend`` looks ahead, and counts the samples that need each chunk. ``done`` counts down, and reports when a chunk
    may be released. A chunk is read again if a sample beyond the look-ahead needs it after that. Not thread-safe.

    Attributes:
        position: Number of samples whose turn has passed.
        frontier: Number of samples that have been looked at.
        held_bytes: Decoded bytes of the chunks that samples between the two need.
        first: Samples of the first batch; 0 before it is drawn.
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

        ``uses`` returns the chunks of an array of samples, one row per sample; -1 pads rows. ``size_of`` returns the
        decoded bytes of a chunk; ``most_bytes`` limits those of the chunks in use and ahead (a single sample may exceed
        it), and ``most_samples`` the look-ahead.
        """
        self._batches = iter(batches)
        self._uses, self._size_of = uses, size_of
        self._most_bytes, self._most_samples = most_bytes, most_samples
        self._drawn: deque[list[int]] = deque()  # batches that were drawn and are not finished
        self._number, self._slot = 0, 0
        self._ended = False  # all batches were drawn
        self._samples = np.empty(0, dtype=np.int64)  # drawn, and not yet looked at
        self._rows = np.empty((0, 0), dtype=np.int64)  # their chunks
        self._look = _LEAST
        # By chunk: the number of samples that were looked at and need it.
        self._left: dict[int, int] = {}
        # Chunks in order of first use, for the caller to read.
        self.queue: deque[Need] = deque()
        self.position = self.frontier = self.held_bytes = self.first = 0

    def extend(self, *, must: bool = False) -> bool:
        """Look at more samples; return False if the limits do not allow more now, or the samples have ended.

        With ``must``, look at one more sample at least, whatever the size of its chunks.
        """
        ahead = self.frontier - self.position
        if not must and (
            self.held_bytes > self._most_bytes - self._most_bytes // _SPARE or ahead >= self._most_samples
        ):
            return False
        if not len(self._samples) and (self._ended or not self._draw()):
            return False
        rows = self._rows[: min(self._look, max(1, self._most_samples - ahead))]
        count = self._admit(rows, must=must)
        for chunk, uses in zip(*(each.tolist() for each in np.unique(rows[:count], return_counts=True)), strict=True):
            if chunk >= 0:
                self._left[chunk] = self._left.get(chunk, 0) + uses
        self._samples, self._rows = self._samples[count:], self._rows[count:]
        self._look = min(_MOST, 2 * self._look) if count == len(rows) else max(_LEAST, self._look // 2)
        self.frontier += count
        return count > 0

    def _admit(self, rows: NDArray[np.int64], *, must: bool) -> int:
        """Queue the new chunks of these samples, as far as they fit; return the number of leading samples that fit."""
        fresh, first = np.unique(rows, return_index=True)
        needs = first // max(rows.shape[1], 1)
        by_need = np.argsort(needs, kind="stable")
        new: list[Need] = []
        added = before = 0  # bytes; `before`: without the current sample
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
        """Draw batches until there are 4,096 or more samples to look at; fewer at first, or if each has many chunks."""
        drawn: list[int] = []
        most = _FIRST if not self._rows.shape[1] else max(1, min(_AT_ONCE, _MOST_CELLS // self._rows.shape[1]))
        # An empty batch: the next one is not known yet.
        while len(drawn) < most and (batch := next(self._batches, _END)):
            self._drawn.append(batch)
            self.first = self.first or len(batch)
            drawn += batch
        self._ended = batch is _END
        self._samples = np.array(drawn, dtype=np.int64)
        if drawn:
            self._rows = self._uses(self._samples)
        return bool(drawn)

    def turn(self, most: int = 1) -> Turn:
        """Return the next samples, at most ``most``, all of one batch; the caller ensures that they were looked at."""
        batch = self._drawn[0]
        turn = Turn(self._number, self._slot, len(batch), batch[self._slot : self._slot + most])
        self._slot += len(turn.samples)
        if self._slot == len(batch):
            self._drawn.popleft()
            self._number, self._slot = self._number + 1, 0
        self.position += len(turn.samples)
        return turn

    def done(self, chunk: int, samples: int = 1) -> bool:
        """Count down the samples that need a chunk; return True after the last known one."""
        return bool(self.finished({chunk: samples}))

    def finished(self, uses: Mapping[int, int]) -> list[int]:
        """Count down the samples that need each chunk; return the chunks after their last known one."""
        left, found = self._left, []
        for chunk, samples in uses.items():
            rest = left[chunk] - samples
            if rest:
                left[chunk] = rest
            else:
                found.append(chunk)
        for chunk in found:
            del left[chunk]
            self.held_bytes -= self._size_of(chunk)
        return found
