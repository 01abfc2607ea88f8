"""From positions to samples: the batches of one worker of one rank in one epoch, as indices into the catalog."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.order.shuffle import Permutation

__all__ = ["walk"]

_AT_ONCE = 1024  # batches looked up together: the permutation is vectorised


def walk(batches: Iterable[tuple[int, int]], order: Permutation | None) -> Iterator[list[int]]:
    """Yield each batch's sample indices; ``order`` None is the catalog's own. O(1) memory, lazily, some ahead."""
    source = iter(batches)
    while chunk := list(islice(source, _AT_ONCE)):
        starts, stops = np.array(chunk, dtype=np.int64).T
        sizes = stops - starts
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        samples = (positions if order is None else order.of(positions)).tolist()
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            yield samples[end - size : end]
