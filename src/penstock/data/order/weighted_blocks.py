"""Samples drawn by their weights, and still read block by block: an order for data whose chunks hold many samples."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.shuffle import Permutation
from penstock.data.order.weighted import by_sample, fractions, independent, key_of
from penstock.errors import Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.order.lanes import Lanes
    from penstock.data.order.protocol import Lookup

# Standard deviations above the expected number of draws of a block.
_SPREAD = 6


@dataclass(frozen=True, slots=True, eq=False)
class WeightedBlocks:
    """Order of ``Lanes`` over samples that come as often as their weights demand.

    Each epoch draws its samples first, and permutes the blocks that have some. All draws of a sample lie in the window
    of its block, so a block is still read once. Memory is 8 bytes for each sample of an epoch.
    """

    blocks: Lanes  # the order of blocks, shuffled, with known sizes
    weights: NDArray[np.float64]  # weight of each sample, of which only the proportion counts
    # Whether each draw is independent of the others. If not, each sample comes as often as expected, rounded down or
    # up.
    replacement: bool = False
    epoch_samples: int | None = None  # samples of an epoch, over all ranks; None: as many as there are samples
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        switch(self.replacement, "replacement")
        if self.epoch_samples is not None:
            whole(self.epoch_samples, "epoch_samples", 1)
        object.__setattr__(self, "weights", by_sample(self.weights))
        rest = f"{self.blocks.identity} {self.replacement} {self.epoch_samples}".encode()
        digest = hashlib.sha256(b"\n".join((self.weights.tobytes(), rest))).hexdigest()[:16]
        object.__setattr__(self, "identity", f"weighted blocks 1: {digest}")

    @property
    def lanes(self) -> int | None:
        return self.blocks.lanes

    @property
    def most(self) -> int:
        """Upper limit of the draws of one block in practice."""
        ends = self._ends(len(self.weights))
        sums = np.diff(np.concatenate(([0.0], np.cumsum(self.weights)))[ends])
        expected = float(sums.max()) / float(self.weights.sum()) * self.positions(len(self.weights))
        return int(expected + _SPREAD * np.sqrt(expected)) + 1

    def with_lanes(self, lanes: int) -> WeightedBlocks:
        return replace(self, blocks=self.blocks.with_lanes(lanes))

    def positions(self, samples: int) -> int:
        if len(self.weights) != samples:
            raise Unusable(f"there are weights of {len(self.weights)} samples, and the dataset has {samples}")
        return self.epoch_samples or samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        total, key = self.positions(samples), key_of(seed, f"epoch {epoch}")
        if self.replacement:
            drawn = np.sort(independent(np.cumsum(self.weights), key, np.arange(total)))
        else:
            drawn = _systematic(self.weights, Permutation(samples, seed, epoch, "weighted "), key, total)
        sizes = np.diff(np.searchsorted(drawn, self._ends(samples)))
        order = replace(self.blocks, block_samples=sizes[sizes > 0])
        return partial(_take_drawn, drawn, order.epoch(total, seed, epoch))

    def _ends(self, samples: int) -> NDArray[np.int64]:
        """Return the first sample of each block, and the number of samples."""
        sizes = self.blocks.block_samples
        if isinstance(sizes, int):
            return np.append(np.arange(0, samples, sizes, dtype=np.int64), samples)
        return np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64))))


def _systematic(weights: NDArray[np.float64], order: Permutation, key: np.uint64, total: int) -> NDArray[np.int64]:
    """Return ``total`` draws, sorted; each sample comes as often as expected, rounded down or up.

    The running total of the weights, in a random order, is cut at equal distances from a random start.
    """
    permuted = order.of(np.arange(len(weights)))
    permuted = permuted[weights[permuted] > 0]
    ends = np.cumsum(weights[permuted])
    start = fractions(np.zeros(1, dtype=np.int64), key)[0]
    cuts = np.minimum(np.floor(ends * (total / ends[-1]) + start), total)
    cuts[-1] = total
    counts = np.zeros(len(weights), dtype=np.int64)
    counts[permuted] = np.diff(cuts, prepend=0)
    return np.repeat(np.arange(len(weights)), counts)


def _take_drawn(drawn: NDArray[np.int64], lookup: Lookup, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = drawn[lookup(positions)]
    return found
