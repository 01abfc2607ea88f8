"""Shares: how many units of a block, and of all blocks before it, each source gives, in closed form.

All blocks have equal sizes. ``Shares`` divides blocks to which every source contributes, ``EndingShares`` those in
which sources come to their ends. Both compute in integers and in float64 operation by operation, so that all machines
agree.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Targets are kept in units of 2^-36 draws, in 64-bit integers.
_BITS = 36
_ONE = 1 << _BITS
MOST_DRAWS = 1 << 22  # of a block
# Near the fractional part of the square root of 2, which in these units has quotients in its continued fraction that
# make sums long or multiples uneven. This number has none above 4. Odd, so that 2^36 blocks have different multiples.
_STEP = 28464456369
_FIRST = _ONE // 2
# Sums over fewer blocks are exact in 64 bits.
_SMALL = 1 << 26
# Blocks by which rounding moves the one in which the first source ends.
_NEAR = 16
_APART = 4096  # blocks between two whose draws before them are kept
# Slopes of a side of a tree are kept in units of 2^-62.
_SLOPE, _HALF = 62, 31
# Weights below the average by this factor count as such where a tree is split, which bounds its height.
_LEAST = 4


class Shares:
    """Shares of sources in blocks whose weights are constant, or change linearly from the first block to the last.

    A block is divided by systematic sampling: each source has a target, its weight times the draws of the block, and
    the running totals of the targets are rounded down after the same number in [0, 1) was added to all of them. So
    every source gets its target rounded up or down, and the sum is exact. For block k the number is the fractional part
    of k times a constant. Its values fill [0, 1) as evenly as those of any sequence, so what rounding gives or takes
    does not add up: over millions of blocks a source is within a few draws of its weight.
    """

    def __init__(
        self, first: NDArray[np.float64], size: int, last: NDArray[np.float64] | None = None, blocks: range = range(1)
    ) -> None:
        """Divide ``blocks`` of ``size`` draws by weights, at least one above 0: of the ``first`` and the ``last``.

        Without ``last``, weights are those of ``first`` in all blocks, also after the end of ``blocks``.
        """
        self._start = blocks.start
        # Draws before the latest two blocks of those whose numbers are multiples.
        self._anchors: dict[int, NDArray[np.int64]] = {}
        after = first if last is None else last
        self._targets, self._slopes = _divide(
            np.array([first]), np.array([after]), size, np.array([1 if last is None else len(blocks)])
        )

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the draws of each source begin in each block, and the size: int64, shape (n, sources + 1)."""
        # The product may wrap around 2^64, of which 2^36 is a divisor.
        added = (blocks.astype(np.uint64) * np.uint64(_STEP) + np.uint64(_FIRST)) & np.uint64(_ONE - 1)
        raised = self._targets + added.astype(np.int64)[:, np.newaxis]
        if self._slopes.any():
            raised += self._slopes * (blocks - self._start)[:, np.newaxis]
        return raised >> _BITS

    def before(self, block: int) -> NDArray[np.int64]:
        """Return the number of draws of each source in all blocks from the first to the one before ``block``."""
        # States of neighbouring batches sum up few blocks each.
        anchor = max(self._start, block - block % _APART)
        known = self._anchors.get(anchor)
        if known is None:
            known = self._count(self._start, anchor)
            self._anchors = dict([*self._anchors.items()][-1:]) | {anchor: known}
        return known + self._count(anchor, block)

    def _count(self, start: int, stop: int) -> NDArray[np.int64]:
        targets = self._targets + self._slopes * (start - self._start)
        found: NDArray[np.int64] = _count(targets, self._slopes, [start], [stop])[0]
        return found

    def fitting(self, left: NDArray[np.int64], most: int) -> int:
        """Return the largest number of blocks, up to ``most``, for which sources need no more draws than ``left``."""
        low, high, targets = 0, most, np.diff(self._targets[0])
        # Near the estimate by targets: rounding moves it by few draws.
        guess = int((left[targets > 0] / targets[targets > 0]).min() * _ONE)
        tried = [max(low, guess - _NEAR), min(high, guess + _NEAR)]
        while low < high:
            middle = tried.pop() if tried else (low + high + 1) // 2
            if (self._count(self._start, self._start + middle) <= left).all():
                low = max(low, middle)
            else:
                high = min(high, middle - 1)
        return low


def count_draws(
    first: NDArray[np.float64], last: NDArray[np.float64], size: int, blocks: Sequence[range]
) -> NDArray[np.int64]:
    """Return the draws of each source in all of ``blocks`` of as many ``Shares``, with a row each: in one pass."""
    targets, slopes = _divide(first, last, size, np.array([max(1, len(each)) for each in blocks]))
    return _count(targets, slopes, [each.start for each in blocks], [each.stop for each in blocks])


def _divide(
    first: NDArray[np.float64], last: NDArray[np.float64], size: int, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the running targets of the first block, and what is added to them from block to block, with rows alike."""
    if size > MOST_DRAWS:
        raise Unusable(f"a batch of a mixture must have at most {MOST_DRAWS} samples over all ranks, got {size}")
    targets = _running_targets(first, size)
    slopes = np.zeros_like(targets)
    if (counts > 1).any():
        change = np.diff(_running_targets(last, size) - targets, axis=1)
        # Rounded towards 0, so that no target falls below 0; gains are cut to the losses, or these to the gains.
        every = np.maximum(counts - 1, 1)[:, np.newaxis]
        gains, losses = (np.cumsum(np.maximum(each, 0) // every, axis=1) for each in (change, -change))
        most = np.minimum(gains[:, -1:], losses[:, -1:])
        slopes[:, 1:] = np.where(counts[:, np.newaxis] > 1, np.minimum(gains, most) - np.minimum(losses, most), 0)
    return targets, slopes


def _running_targets(weights: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    running = np.cumsum(weights, axis=1)
    found = np.zeros((len(running), running.shape[1] + 1), dtype=np.int64)
    # The last quotient is 1, and those of trailing sources of weight 0.
    found[:, 1:] = running / running[:, -1:] * (size * _ONE)
    return found


def _count(
    targets: NDArray[np.int64], slopes: NDArray[np.int64], starts: Sequence[int], stops: Sequence[int]
) -> NDArray[np.int64]:
    counts = [stop - start for start, stop in zip(starts, stops, strict=True)]
    if not any(counts):
        return np.zeros((len(counts), targets.shape[1] - 1), dtype=np.int64)
    kind: type = np.int64 if max(counts) < _SMALL else object
    numbers = np.array([(_FIRST + _STEP * start) % _ONE for start in starts])
    steps = slopes + _STEP if slopes.any() else np.full((len(counts), 1), _STEP)
    firsts = targets + numbers[:, np.newaxis]
    # The numbers that are added have the same sum in all columns.
    sums = _floor_sums(np.array(counts, dtype=kind)[:, np.newaxis], steps.astype(kind), firsts.astype(kind))
    return np.diff(sums, axis=1).astype(np.int64)


def _floor_sums(counts: NDArray[np.int64], steps: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of floor((step * k + first) / 2^36) over k in [0, count), as Euclid finds a common divisor."""
    divisors, total = np.full_like(steps, _ONE), np.zeros_like(firsts)
    while counts.any():
        whole = steps // divisors
        steps = steps - whole * divisors
        total += counts * (counts - 1) // 2 * whole
        whole = firsts // divisors
        total += counts * whole
        last = steps * counts + (firsts - whole * divisors)
        counts = last // divisors
        # A divisor of 0 comes with a count of 0, for which any other does.
        firsts, divisors, steps = last - counts * divisors, np.maximum(steps, 1), divisors
    return total


class _TreeLevel(NamedTuple):
    """The nodes of a tree at one height, from the left; each has a range of slots, a slot for each of its sources.

    The draws of the node's left side are a function of the draws of the node, linear between slots.
    """

    first: NDArray[np.int64]  # first slot of each node
    last: NDArray[np.int64]  # last slot of each node
    bits: int  # of the number of slots of the largest node
    draws: NDArray[np.int64]  # draws of the node where each slot begins
    left: NDArray[np.int64]  # draws of its left side where each slot begins
    most: NDArray[np.int64]  # draws of its left side where each slot ends
    slopes: NDArray[np.int64]
    parents: NDArray[np.int64]  # the node to which each node of the level below belongs
    right: NDArray[np.bool_]  # whether that is its right side


class EndingShares:
    """Shares of sources that have so many units left: as one ends, the others go on with their weights.

    A binary tree has the sources as leaves. The draws of a node are divided between its sides by a function of their
    number that rises by 0 or 1 from one draw to the next: the rounded share of the left side, whose slope changes where
    a source ends. So the draws before a block are found from the root to the leaves, whatever the number of the block;
    they add up exactly, none falls from block to block, and no source gives more than it has. The sides of a node have
    about equal weights, so a source is off its share by one draw, and by half, a quarter and so on of one.
    """

    def __init__(self, weights: NDArray[np.float64], units: NDArray[np.int64], size: int, start: int) -> None:
        """Divide blocks of ``size`` units, numbered from ``start``; sources without units take no part."""
        self.start, self._size, self._weights, self._units = start, size, weights, units

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        given = self._given(np.concatenate((blocks, blocks + 1)))
        counts = given[len(blocks) :] - given[: len(blocks)]
        return np.concatenate((np.zeros((len(blocks), 1), dtype=np.int64), np.cumsum(counts, axis=1)), axis=1)

    def before(self, block: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._given(np.array([block]))[0]
        return found

    def _given(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the draws of each source before each block: int64, shape (n, sources)."""
        draws = ((blocks - self.start) * self._size)[:, np.newaxis]
        for level in self._levels:
            at = np.broadcast_to(level.first, draws.shape)
            for bit in reversed(range(level.bits)):
                tried = np.minimum(at + (1 << bit), level.last)
                at = np.where(level.draws[tried] <= draws, tried, at)
            grown = _scaled(draws - level.draws[at], level.slopes[at])
            left = np.minimum(level.left[at] + grown, level.most[at])
            draws = np.where(level.right, (draws - left)[:, level.parents], left[:, level.parents])
        found = np.zeros((len(blocks), len(self._units)), dtype=np.int64)
        found[:, self._leaves] = draws
        return found

    @cached_property
    def _leaves(self) -> NDArray[np.int64]:
        """The sources that have units, from the left of the tree."""
        there = np.flatnonzero(self._units)
        return there[np.argsort(-self._weights[there], kind="stable")]

    @cached_property
    def _levels(self) -> list[_TreeLevel]:
        weights, units = self._weights[self._leaves], self._units[self._leaves]
        running = np.concatenate(([0], np.cumsum(np.maximum(weights, weights.mean() / _LEAST))))
        starts, found = np.array([0, len(units)]), list[_TreeLevel]()
        while len(starts) <= len(units):
            middles = np.searchsorted(running, (running[starts[:-1]] + running[starts[1:]]) / 2)
            # A node of one source has no right side.
            middles = np.maximum(np.minimum(middles, starts[1:] - 1), starts[:-1] + 1)
            found.append(_level(weights, units, starts, middles))
            starts = np.unique(np.concatenate((starts, middles)))
        return found


def _level(
    weights: NDArray[np.float64], units: NDArray[np.int64], starts: NDArray[np.int64], middles: NDArray[np.int64]
) -> _TreeLevel:
    """Return the level whose nodes are the sources from each of ``starts`` to the next, split at ``middles``."""
    sizes, first = np.diff(starts), starts[:-1]
    node, last = np.repeat(np.arange(len(sizes)), sizes), starts[1:] - 1
    # A slot ends where a source does: at its units divided by its weight, in order.
    ends = units / weights
    order = np.lexsort((ends, node))
    passed = np.diff(ends[order], prepend=0)
    passed[first] = ends[order][first]
    sides = []
    for side in (order < middles[node], order >= middles[node]):
        own = np.where(side, weights[order], 0)
        before = np.cumsum(own) - own
        active = np.add.reduceat(own, first)[node] - (before - before[first][node])
        given = np.cumsum(np.maximum(active, 0) * passed)
        given -= (given[first] - (np.maximum(active, 0) * passed)[first])[node]
        # Sums of what is 0 or more do not fall, however they are rounded.
        total = np.add.reduceat(np.where(side, units[order], 0), first)
        ended = np.minimum((np.minimum(given, 1 << _SLOPE) + 0.5).astype(np.int64), total[node])
        ended[last] = total
        sides.append(ended)
    most, draws = sides[0], sides[0] + sides[1]
    begun, left = (np.concatenate(([0], each[:-1])) for each in (draws, most))
    begun[first] = left[first] = 0
    pairs = zip((most - left).tolist(), (draws - begun).tolist(), strict=True)
    slopes = np.array([-(-(own << _SLOPE) // each) if each else 0 for own, each in pairs], dtype=np.int64)
    below = np.unique(np.concatenate((starts, middles)))[:-1]
    parents = np.searchsorted(starts, below, side="right") - 1
    bits = int(sizes.max()).bit_length()
    return _TreeLevel(first, last, bits, begun, left, most, slopes, parents, below >= middles[parents])


def _scaled(numbers: NDArray[np.int64], slopes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``numbers`` times ``slopes``, rounded to the nearest integer, without the product of 124 bits."""
    low = (1 << _HALF) - 1
    high, rest = numbers >> _HALF, numbers & low
    steep, flat = slopes >> _HALF, slopes & low
    middle = (high * flat).astype(np.uint64) + (rest * steep).astype(np.uint64)
    middle += ((rest * flat) >> _HALF).astype(np.uint64) + np.uint64(1 << (_HALF - 1))
    return high * steep + (middle >> np.uint64(_HALF)).astype(np.int64)


def choose_step(size: int) -> int:
    """Return a step that visits all of ``size`` places, neighbours far apart: about 0.41 of it, and prime to it."""
    step = max(1, size * _STEP >> _BITS)
    while gcd(step, size) > 1:
        step += 1
    return step
