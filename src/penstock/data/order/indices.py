"""Sample indices: the samples that one worker of one rank reads in one epoch, as indices into the catalog."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.lanes import by_lane
from penstock.data.order.partition import Repeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.data.order.partition import Partition
    from penstock.data.order.sampling import Cursor, SamplingPlan
    from penstock.values import Place

_AT_ONCE = 4096  # positions looked up together: the permutation is vectorised
_FIRST = 512  # the same of the first look-up, which the first request waits for


def batch_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[list[int]]:
    """Yield each batch's sample indices, with repeats as ``Repeat``; lazily, some batches ahead, in O(1) memory."""
    partition, lanes = plan.batches(cursor, place), plan.lanes(cursor, place.world)
    source, indices = iter(partition), plan.indices(cursor, place.world)
    first = plan.first(cursor.epoch)
    at_once = _FIRST
    while chunk := list(islice(source, max(1, at_once // plan.batch))):
        at_once = _AT_ONCE
        starts, stops = np.array(chunk, dtype=np.int64).T
        sizes = stops - starts
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        positions = _dealt(partition, lanes, positions) if lanes > 1 else positions
        past = np.flatnonzero(positions >= plan.total)
        positions[past] = first + (positions[past] - plan.total) % (plan.total - first)
        samples: list[int] = indices(positions).tolist()
        for at in past.tolist():
            samples[at] = Repeat(samples[at])
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            yield samples[end - size : end]


def sample_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[int]:
    """Yield sample indices one by one, without repeats.

    The p-th position after the cursor belongs to rank p % world, and to its worker p // world % workers. So if the
    number of ranks divides the lanes of an order, each lane is read by one rank here, too.
    """
    indices = plan.indices(cursor, place.world)
    every = place.world * place.workers
    mine = range(cursor.position + place.worker * place.world + place.rank, plan.total, every)
    for at in range(0, len(mine), _AT_ONCE):
        some = mine[at : at + _AT_ONCE]
        yield from indices(np.arange(some.start, some.stop, some.step)).tolist()


def _dealt(partition: Partition, lanes: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions to read in place of these, lane by lane in each global batch, so that slices are lanes."""
    every = partition.batch * partition.place.world
    at = (positions - partition.start) % every
    firsts = positions - at
    sizes = np.full_like(firsts, every)
    incomplete = firsts + every > partition.total  # one batch: the last
    if incomplete.any():
        sizes[incomplete] = partition.size(int(firsts[incomplete][0]))
    return by_lane(firsts, sizes, lanes, at)
