"""What a full cache takes in, and what it gives up for that. Pure.

A training reads its dataset in a new order each epoch. Where that is larger than the cache, a cache that gives up what
was not used for longest gives up what comes next; the best that is possible is to keep a part and leave it alone. So
each entry has a rank, which its name determines, and of those that are as useful the lower ranks stay: all processes
keep the same part without a word. Entries that were hit yield to new ones only while new ones are few; entries that
were not used for several times as long as entries wait for their next use belong to an earlier dataset, and go first
(design/0050, which has the simulation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Candidate", "chosen", "rank", "ranked", "reuse_now", "share_after", "soon", "stale_after"]

_RANK_DIGITS, _RANKS = 8, 1 << 32
_NEW = (
    0.1  # the share of entries without a hit below which those with one yield, as in S3-FIFO (Yang et al., SOSP 2023)
)
_STALE = 1.25  # of the longest wait, which is two epochs in a new order each: design/0066
_HALF = 8.0  # after so many times itself without a wait as long, the longest wait that is known counts half
_LEAST_REUSE_S = 30.0  # uses are known no more exactly (files.py)
_SOON = 8.0  # of entries in a new order each epoch 3 % wait for less than this part of the longest wait
_READS = 1000.0


class Candidate(NamedTuple):
    """An entry that may be given up.

    Attributes:
        used_s: When it was used last, in seconds since the epoch.
        proven: Whether it was hit.
        rank: Its rank.
        size_bytes: What it takes of the disk.
        path: Where it is.

    """

    used_s: float
    proven: bool
    rank: float
    size_bytes: int
    path: str


def rank(digits: str) -> float:
    """Return the rank of an entry, in [0, 1), by the hexadecimal digits that it is called by."""
    return int(digits[-_RANK_DIGITS:], 16) / _RANKS


def ranked(candidates: Sequence[Candidate], now_s: float, stale_s: float) -> list[tuple[float, Candidate]]:
    """Return candidates with the rank that a newcomer must be below to replace each, the first to go first.

    2.0 stands for what yields to all; those that yield to none are left out.
    """
    stale = [each for each in candidates if now_s - each.used_s > stale_s]
    others = [each for each in candidates if now_s - each.used_s <= stale_s]
    new = [each for each in others if not each.proven]
    if len(new) < _NEW * len(candidates):
        new = others
    found = [(2.0, each) for each in sorted(stale)]
    return found + [(each.rank, each) for each in sorted(new, key=lambda each: -each.rank)]


def chosen(ranking: Sequence[tuple[float, Candidate]], newcomer: float, need_bytes: int) -> list[Candidate]:
    """Return the first candidates whose bytes suffice for a newcomer of that rank; none where they do not."""
    found = []
    for bar, each in ranking:
        if need_bytes <= 0 or newcomer >= bar:
            break
        found.append(each)
        need_bytes -= each.size_bytes
    return found if need_bytes <= 0 else []


def reuse_now(reuse_s: float, noted_s: float, now_s: float) -> float:
    """Return the longest time that an entry has waited for its next use, as far as it counts by now; 0 if none has."""
    return reuse_s * 0.5 ** (max(0.0, now_s - noted_s) / (_HALF * reuse_s)) if reuse_s > 0 else 0.0


def soon(waited_s: float, reuse_s: float) -> bool:
    """Say whether an object that was missed again after so long belongs to what is used again and again: any yields."""
    return waited_s < reuse_s / _SOON


def stale_after(reuse_s: float) -> float:
    """Return after how many seconds without use an entry is given up first; never, before any entry was hit."""
    return _STALE * max(reuse_s, _LEAST_REUSE_S) if reuse_s > 0 else float("inf")


def share_after(share: float, hits: int, reads: int) -> float:
    """Return the share of hits after ``reads`` more, ``hits`` of them: a mean over the last thousands."""
    kept = 0.5 ** (reads / _READS)
    return share * kept + hits / reads * (1 - kept) if reads else share
