"""From positions to samples: what one worker of one rank reads in one epoch, as indices into the catalog."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from penstock.order.partition import Repeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.order.sampling import Cursor, SamplingPlan
    from penstock.values import Place

__all__ = ["batch_indices", "sample_indices"]

_AT_ONCE = 4096  # positions looked up together: the permutation is vectorised


def batch_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[list[int]]:
    """Yield each batch's sample indices, those of repeats as ``Repeat``. O(1) memory, lazily, some batches ahead."""
    source, indices = iter(plan.batches(cursor, place)), plan.indices(cursor.epoch)
    while chunk := list(islice(source, max(1, _AT_ONCE // plan.batch))):
        starts, stops = np.array(chunk, dtype=np.int64).T
        sizes = stops - starts
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        samples: list[int] = indices(positions % plan.total).tolist()
        for at in np.flatnonzero(positions >= plan.total).tolist():
            samples[at] = Repeat(samples[at])
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            yield samples[end - size : end]


def sample_indices(plan: SamplingPlan, cursor: Cursor, place: Place) -> Iterator[int]:
    """Yield sample indices one by one, no repeats: position p goes to rank p, then worker p // world, in turn."""
    indices, every = plan.indices(cursor.epoch), place.world * place.workers
    mine = range(cursor.position + place.worker * place.world + place.rank, plan.total, every)
    for at in range(0, len(mine), _AT_ONCE):
        some = mine[at : at + _AT_ONCE]
        yield from indices(np.arange(some.start, some.stop, some.step)).tolist()
