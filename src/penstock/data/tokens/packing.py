"""Packing of documents into rows of equal length: pure functions of the documents' lengths, with integers only.

A run is some neighbouring documents of a file, which one request reads. A block is some runs from all over the files,
whose documents share rows. A document longer than a row fills whole rows, and leaves a rest. Rests and shorter
documents are placed by best-fit, longest first: each in the row with the least room that holds it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from penstock.data.order.shuffle import Permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pack = Literal["best-fit", "cut"]

# Of this arithmetic: digests of datasets hold it, so that no state goes on over other rows.
VERSION = 1
# A run has about 8 rows, at least 1 and at most 8 MiB: neighbours that one request reads.
_ROWS, _LEAST_BYTES, _MOST_BYTES = 8, 1 << 20, 8 << 20
# Runs of a block: doubled while more than one token in a hundred is padding.
_RUNS, _MOST_RUNS, _PADDED = 16, 64, 100
# Part of a run's tokens that is left free where its border is fitted: with less, best-fit often opens one more row.
_SLACK = 500
_BITS = 32  # of the number of a row, below its room in one integer
_ROW = (1 << _BITS) - 1


class PackingPlan(NamedTuple):
    """Runs and blocks of documents; int64."""

    firsts: NDArray[np.int64]  # first document of each run, and at the end the number of documents
    runs: NDArray[np.int64]  # runs of all blocks, one block after the other; in a block, they ascend
    bounds: NDArray[np.int64]  # the place in ``runs`` of the first run of each block, and at the end their number
    starts: NDArray[np.int64]  # first row of each block, and at the end the number of rows

    def documents(self, block: int) -> NDArray[np.int64]:
        """Return the documents of a block, which ascend."""
        runs = self.runs[self.bounds[block] : self.bounds[block + 1]]
        first, counts = self.firsts[runs], self.firsts[runs + 1] - self.firsts[runs]
        shifts = first - (np.cumsum(counts) - counts)
        found: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(shifts, counts)
        return found


class BlockLayout(NamedTuple):
    """Pieces of the documents of a block, by row, then by document; int64, one value a piece."""

    documents: NDArray[np.int64]  # place of the piece's document in the block
    firsts: NDArray[np.int64]  # first token of the piece in its document
    sizes: NDArray[np.int64]  # tokens
    rows: NDArray[np.int64]  # row in the block
    places: NDArray[np.int64]  # first token of the piece in its row

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self)


def plan_packing(
    lengths: NDArray[np.int64], borders: NDArray[np.int64], length: int, item: int, pack: Pack
) -> PackingPlan:
    """Return runs and blocks of documents, each of one token or more, for rows of ``length`` tokens of ``item`` bytes.

    ``borders`` are the first documents of the files, and the number of documents.
    """
    run_tokens = min(max(_ROWS * length * item, _LEAST_BYTES), _MOST_BYTES) // item
    files = ((first, stop) for first, stop in pairwise(borders.tolist()) if first < stop)
    found = [cut_runs(lengths[first:stop], length, run_tokens) + first for first, stop in files]
    firsts = np.append(np.concatenate([np.zeros(0, np.int64), *found]), len(lengths))
    total, count = int(lengths.sum()), len(firsts) - 1
    order, size = Permutation(count, 0, 0, "packing").block(0, count), _RUNS
    while True:
        block_tokens = size * run_tokens
        blocks = min(max((total + block_tokens // 2) // block_tokens, 1), count)
        plan = _plan_blocks(lengths, firsts, order, (length, blocks), pack)
        if blocks <= 1 or size >= _MOST_RUNS or (int(plan.starts[-1]) * length - total) * _PADDED <= total:
            return plan
        size *= 2


def _plan_blocks(
    lengths: NDArray[np.int64], firsts: NDArray[np.int64], order: NDArray[np.int64], shape: tuple[int, int], pack: Pack
) -> PackingPlan:
    length, blocks = shape
    bounds = np.arange(blocks + 1) * len(order) // max(blocks, 1)
    owners = np.repeat(np.arange(blocks), np.diff(bounds))
    plan = PackingPlan(firsts, order[np.lexsort((order, owners))], bounds, bounds)
    rows = [count_rows(lengths[plan.documents(block)], length, pack) for block in range(blocks)]
    return plan._replace(starts=np.cumsum([0, *rows], dtype=np.int64))


def cut_runs(lengths: NDArray[np.int64], length: int, tokens: int) -> NDArray[np.int64]:
    """Return the first document of each run of about ``tokens``.

    A border lies where the tokens since the last one fill whole rows but for a small slack, within a quarter of
    ``tokens`` (at least half a row) of the wanted size.
    """
    ends, firsts, base = np.cumsum(lengths), [0], 0
    reach = max(tokens // 4, length // 2 + 1)
    while True:
        low = max(int(np.searchsorted(ends, base + tokens - reach)), firsts[-1])
        if int(ends[-1]) - base <= tokens + reach or low + 1 >= len(lengths):
            return np.array(firsts, np.int64)
        high = int(np.searchsorted(ends, base + tokens + reach, side="right"))
        window = ends[low : max(high, low + 1)] - base
        free = -window % length - window // _SLACK
        free[free < 0] += length
        low += int(np.argmin((free << 20) // window))
        base = int(ends[low])
        firsts.append(low + 1)


def count_rows(lengths: NDArray[np.int64], length: int, pack: Pack) -> int:
    """Return the number of rows that a block of such documents takes."""
    if pack == "cut":
        return -(-int(lengths.sum()) // length)
    full, rests = np.divmod(lengths, length)
    sizes, counts = np.unique(rests[rests > 0], return_counts=True)
    return int(full.sum()) + best_fit(sizes[::-1].tolist(), counts[::-1].tolist(), length)[2]


def best_fit(sizes: list[int], counts: list[int], length: int) -> tuple[list[int], list[int], int]:
    """Place ``counts`` pieces of each of ``sizes``, which descend, and are below ``length``, in rows by best-fit.

    Of rows with equal room, the one with the lowest number is taken. Pieces of a size fill a row before the next one
    is looked for: the room that one of them leaves is the least that holds another.

    Returns:
        The rows that are filled, in order, and how many of the next pieces each takes; and the number of rows.
    """
    free: list[int] = []  # rows with room: the room, then the row; ascending
    found, taken, rows = list[int](), list[int](), 0
    for size, count in zip(sizes, counts, strict=True):
        left = count
        while left:
            at = bisect_left(free, size << _BITS)
            if at == len(free):
                row, room, rows = rows, length, rows + 1
            else:
                key = free.pop(at)
                row, room = key & _ROW, key >> _BITS
            number = min(left, room // size)
            found.append(row)
            taken.append(number)
            left -= number
            if room := room - number * size:
                insort(free, room << _BITS | row)
    return found, taken, rows


def lay_out(lengths: NDArray[np.int64], length: int, pack: Pack, block: int) -> BlockLayout:
    """Return the pieces of the documents of block number ``block``."""
    if pack == "cut":
        ends = np.cumsum(lengths)
        starts = np.unique(np.concatenate((ends - lengths, np.arange(0, int(ends[-1]), length))))
        documents = np.searchsorted(ends, starts, side="right")
        firsts, sizes = starts - (ends - lengths)[documents], np.diff(starts, append=ends[-1])
        rows, places = np.divmod(starts, length)
        return BlockLayout(documents, firsts, sizes, rows, places)
    full, rests = np.divmod(lengths, length)
    whole = int(full.sum())
    part = np.arange(whole) - np.repeat(np.cumsum(full) - full, full)
    short = np.flatnonzero(rests)
    short = short[np.argsort(-rests[short], kind="stable")]
    sizes, counts = np.unique(rests[short], return_counts=True)
    found, taken, count = best_fit(sizes[::-1].tolist(), counts[::-1].tolist(), length)
    documents = np.concatenate((np.repeat(np.arange(len(lengths)), full), short))
    firsts = np.concatenate((part * length, full[short] * length))
    sizes = np.concatenate((np.full(whole, length), rests[short]))
    rows = np.concatenate((np.arange(whole), np.repeat(np.array(found, np.int64), taken) + whole))
    # In the order of their making, rows of long documents would come first.
    rows = Permutation(whole + count, 0, block, "packed rows").block(0, whole + count)[rows]
    # A document has at most one piece in a row.
    by_row = np.argsort(rows * len(lengths) + documents)
    documents, firsts, sizes, rows = (each[by_row] for each in (documents, firsts, sizes, rows))
    before = np.cumsum(sizes) - sizes
    places = before - before[np.searchsorted(rows, rows)]
    return BlockLayout(documents, firsts, sizes, rows, places)
