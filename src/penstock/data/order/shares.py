"""Shares of a mixture: how many draws of a block belong to each source, and how many of all blocks before it.

Draws come in blocks. A block is divided by systematic sampling: each source has a target, its weight times the draws
of the block, and the running totals of the targets are rounded down after the same number in [0, 1) was added to all of
them. So every source gets its target rounded up or down, and the sum is exact. For block k the number is the
fractional part of k times the golden ratio, whose values fill [0, 1) as evenly as any sequence's, so what rounding
gives or takes does not add up: over millions of blocks a source is within a few draws of its weight.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Targets are kept in units of 2^-40 draws, in 64-bit integers.
_BITS = 40
_ONE = 1 << _BITS
MOST_DRAWS = 1 << 22  # of a block
# The golden ratio's fractional part in these units; odd, so that 2^40 blocks have different numbers.
_STEP = 679535556991
_FIRST = _ONE // 2


class Shares:
    """The division of blocks of equal size among sources, in closed form."""

    def __init__(self, weights: Sequence[float | Fraction], size: int) -> None:
        """Divide blocks of ``size`` draws by ``weights``, at least one of which is above 0."""
        if size > MOST_DRAWS:
            raise Unusable(f"a batch of a mixture must have at most {MOST_DRAWS} samples over all ranks, got {size}")
        self.size = size
        exact = [Fraction(weight) for weight in weights]
        total, running, targets = sum(exact), Fraction(0), [0]
        for weight in exact:
            running += weight
            targets.append(int(running * size * _ONE / total))
        self._running = targets
        self._vector = np.array(targets, dtype=np.int64)

    @property
    def targets(self) -> NDArray[np.float64]:
        """The draws of each source in a block before rounding; float64, shape (sources,)."""
        return np.diff(self._vector) / _ONE

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the draws of each source begin in each block, and the size: int64, shape (n, sources + 1)."""
        # The product may wrap around 2^64, of which 2^40 is a divisor.
        added = (blocks.astype(np.uint64) * np.uint64(_STEP) + np.uint64(_FIRST)) & np.uint64(_ONE - 1)
        found: NDArray[np.int64] = (self._vector + added.astype(np.int64)[:, np.newaxis]) >> _BITS
        return found

    def before(self, block: int) -> NDArray[np.int64]:
        """Return the number of draws of each source in all blocks before ``block``, at some 20 µs a source."""
        empty = _floor_sum(block, _ONE, _STEP, _FIRST)
        sums = [_floor_sum(block, _ONE, _STEP, _FIRST + each) - empty for each in self._running]
        return np.array([stop - start for start, stop in pairwise(sums)], dtype=np.int64)


def _floor_sum(count: int, divisor: int, step: int, first: int) -> int:
    """Return the sum of floor((step * k + first) / divisor) over k in [0, count), as Euclid finds a common divisor."""
    total = 0
    while count:
        whole, step = divmod(step, divisor)
        total += count * (count - 1) // 2 * whole
        whole, first = divmod(first, divisor)
        total += count * whole
        count, first = divmod(step * count + first, divisor)
        divisor, step = step, divisor
    return total


def choose_step(size: int) -> int:
    """Return a step that visits all of ``size`` places, neighbours far apart: about 0.62 of it, and prime to it."""
    step = max(1, size * _STEP >> _BITS)
    while gcd(step, size) > 1:
        step += 1
    return step
