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
        positions = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in chunk])
        samples = (positions if order is None else order.of(positions)).tolist()
        at = 0
        for start, stop in chunk:
            yield samples[at : at + stop - start]
            at += stop - start
