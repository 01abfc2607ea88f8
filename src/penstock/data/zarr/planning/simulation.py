"""Simulation of the chunk reads of a training process, in order, without reading any. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.zarr.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["Simulated", "simulated"]


class Simulated(NamedTuple):
    """Simulated reads of one process.

    Attributes:
        samples: Samples that were simulated.
        chunks: Chunks in the order of their reads; a chunk that is read twice is listed twice.
        first: Number of these reads before the first batch is complete.
        touched: Chunks that the samples of the first batch need.
        held_bytes: Peak of the decoded bytes that are held.

    """

    samples: int
    chunks: list[int]
    first: int
    touched: tuple[int, ...]
    held_bytes: int


def simulated(
    batches: Iterable[list[int]],
    uses: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    size_of: Callable[[int], int],
    bounds: tuple[int, int],
    most_samples: int,
) -> Simulated:
    """Return the reads of ``batches`` by a process that finishes each sample at its turn.

    ``bounds`` limit the look-ahead: decoded bytes, and samples. The simulation ends after ``most_samples`` samples.
    """
    rows: deque[NDArray[np.int64]] = deque()

    def used(samples: NDArray[np.int64]) -> NDArray[np.int64]:
        found = uses(samples)
        rows.extend(found)
        return found

    schedule = Schedule(batches, used, size_of, most_bytes=bounds[0], most_samples=bounds[1])
    chunks: list[int] = []
    positions: list[int] = []
    touched: dict[int, None] = {}
    held_bytes = first = 0
    while schedule.position < most_samples:
        while schedule.extend():
            pass
        if schedule.position == schedule.frontier and not schedule.extend(must=True):
            break
        held_bytes = max(held_bytes, schedule.held_bytes)
        chunks += [need.chunk for need in schedule.queue]
        positions += [need.position for need in schedule.queue]
        schedule.queue.clear()
        turn = schedule.turn()
        row = rows.popleft()
        for chunk in np.unique(row[row >= 0]).tolist():
            schedule.done(chunk)
            if turn.batch == 0:
                touched[chunk] = None
        if turn.batch == 0:
            first = turn.size
    within = sum(position < schedule.position for position in positions)
    return Simulated(
        schedule.position, chunks[:within], sum(position < first for position in positions), (*touched,), held_bytes
    )
