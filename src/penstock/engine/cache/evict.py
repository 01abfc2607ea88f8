"""Admission and eviction policy of a full cache. Pure.

Training reads its dataset in a new order each epoch. If the dataset is larger than the cache, evicting the least
recently used entries evicts those that are read next; the best possible policy keeps one part and leaves it alone. So
each entry has a rank, which its name determines, and among equally useful entries the lower ranks stay: all processes
keep the same part without communication. Entries that were hit yield to new ones only while new ones are few. Entries
that were unused for longer than 1.25 times the longest known wait for a next use belong to an earlier dataset, and are
evicted first (design/0050, which has the simulation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANK_DIGITS, _RANKS = 8, 1 << 32
# Share of entries without a hit below which entries with a hit yield too, as in S3-FIFO (Yang et al., SOSP 2023).
_NEW = 0.1
# Multiple of the longest wait, which is two epochs if each has a new order (design/0066).
_STALE = 1.25
# Half-life of the longest known wait while no wait is as long, in multiples of that wait.
_HALF = 8.0
_LEAST_REUSE_S = 30.0  # resolution of times of use (files.py)
# With a new order each epoch, 3 % of the entries wait for less than 1/8 of the longest wait.
_SOON = 8.0
_READS = 1000.0


class Candidate(NamedTuple):
    """An entry that may be evicted; ``proven`` if it was hit. ``used_s`` is in seconds since the epoch."""

    used_s: float
    proven: bool
    rank: float
    size_bytes: int
    path: str


def rank(digits: str) -> float:
    return int(digits[-_RANK_DIGITS:], 16) / _RANKS


def rank_candidates(candidates: Sequence[Candidate], now_s: float, stale_s: float) -> list[tuple[float, Candidate]]:
    """Return candidates, first to be evicted first, each with the rank below which a newcomer may replace it.

    Unused (stale) candidates have 2.0, so they yield to any newcomer. Candidates that yield to no newcomer are left
    out.
    """
    stale = [each for each in candidates if now_s - each.used_s > stale_s]
    others = [each for each in candidates if now_s - each.used_s <= stale_s]
    new = [each for each in others if not each.proven]
    if len(new) < _NEW * len(candidates):
        new = others
    found = [(2.0, each) for each in sorted(stale)]
    return found + [(each.rank, each) for each in sorted(new, key=lambda each: -each.rank)]


def choose_victims(ranking: Sequence[tuple[float, Candidate]], newcomer: float, need_bytes: int) -> list[Candidate]:
    """Return the first candidates that free ``need_bytes`` for a newcomer of that rank; empty if they cannot."""
    found = []
    for bar, each in ranking:
        if need_bytes <= 0 or newcomer >= bar:
            break
        found.append(each)
        need_bytes -= each.size_bytes
    return found if need_bytes <= 0 else []


def reuse_now(reuse_s: float, noted_s: float, now_s: float) -> float:
    """Return the longest known wait for an entry's next use, decayed to ``now_s``; 0 before any wait is known."""
    return reuse_s * 0.5 ** (max(0.0, now_s - noted_s) / (_HALF * reuse_s)) if reuse_s > 0 else 0.0


def soon(waited_s: float, reuse_s: float) -> bool:
    """Return whether an object missed again after ``waited_s`` is so frequently used that it may evict any entry."""
    return waited_s < reuse_s / _SOON


def stale_after(reuse_s: float) -> float:
    """Return after how many seconds without use an entry is evicted first; infinity before any wait is known."""
    return _STALE * max(reuse_s, _LEAST_REUSE_S) if reuse_s > 0 else float("inf")


def share_after(share: float, hits: int, reads: int) -> float:
    """Return the share of hits after ``reads`` more reads: an exponential mean that halves their weight every 1,000."""
    kept = 0.5 ** (reads / _READS)
    return share * kept + hits / reads * (1 - kept) if reads else share
