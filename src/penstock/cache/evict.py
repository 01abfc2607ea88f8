"""What a full cache takes in, and what it gives up for that. Pure.

A training reads its dataset in a new order each epoch. Where that is larger than the cache, a cache that takes in all
that it misses gives up what the next epoch will need, for what it will not need sooner; the best that is possible is to
keep a part and leave it alone. So a full cache that is of use takes in only a few of its misses, and one that is of no
use, because all in it is of an earlier dataset, takes in all of them (design/0050, which has the simulation).
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Candidate", "admits", "share_after", "victims"]

_STEEP = 40.0  # at a share of hits of 10 % it takes in 2 % of its misses, at 1 % two thirds
_LEAST = 1 / 64
_LEAST_WINDOW, _MOST_WINDOW = 32, 4096  # reads


class Candidate(NamedTuple):
    """An entry that may be given up.

    Attributes:
        used_s: When it was used last, in seconds of any clock.
        size_bytes: What it takes of the disk.
        name: Its name.

    """

    used_s: float
    size_bytes: int
    name: str


def admits(share: float, draw: float) -> bool:
    """Say whether a full cache takes a miss in: ``share`` of its reads were hits, ``draw`` is uniform in [0, 1)."""
    return draw < max(_LEAST, exp(-_STEEP * share))


def share_after(share: float, hits: int, reads: int, entries: int) -> float:
    """Return the share of hits after ``reads`` more, ``hits`` of them: a mean that forgets over an eighth of a fill."""
    if not reads:
        return share
    window = min(max(entries // 8, _LEAST_WINDOW), _MOST_WINDOW)
    kept = exp(-reads / window)
    return share * kept + hits / reads * (1 - kept)


def victims(candidates: Iterable[Candidate], need_bytes: int) -> list[Candidate]:
    """Return those that were not used for longest, as many as ``need_bytes`` takes; all where that is not enough."""
    chosen = []
    for each in sorted(candidates):
        if need_bytes <= 0:
            break
        chosen.append(each)
        need_bytes -= each.size_bytes
    return chosen
