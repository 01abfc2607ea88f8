"""Orders in lanes: each rank has separate runs of blocks, so that a block is read by one rank."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.order.block_permutation import check_sizes, checked_blocks, permute_blocks, sizes_text
from penstock.data.order.shuffle import EpochOrder
from penstock.errors import Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.block_permutation import WindowedBlocks
    from penstock.data.order.protocol import Lookup

MOST_LANES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Blocks of neighbouring samples, each read by one rank only; for ``shuffle=``.

    Like ``BlockShuffle``, each epoch permutes the blocks and mixes samples within a window of ``window_blocks`` blocks.
    But first the permuted samples are cut into ``lanes`` equal runs, the lanes, and a window slides over each. A
    global batch takes the same number of samples from each lane, and rank r of R gets those of the lanes
    [lanes · r / R, lanes · (r + 1) / R). So a shard or a chunk that holds a block is read once per epoch, by one rank;
    with ``BlockShuffle``, every rank reads all of them. Only a block across the border of two ranks is read by both: at
    most ranks - 1 blocks. At any position, at most ``window_blocks`` · ``lanes`` / R blocks have been begun and not
    finished on a rank, except in an incomplete last batch.

    By default there are as many lanes as ranks. A resume state keeps the number of lanes: any R that divides it
    continues with the same global batches and reads each block once; memory grows with lanes / R. If a run may continue
    on more ranks, choose more lanes than ranks: a common multiple that divides the global batch. ``load_state_dict``
    refuses other numbers of ranks in the middle of an epoch, unless you pass ``allow_rereads=True``. Worker processes
    take whole batches in turn, so each needs the blocks of all lanes of its rank: those of a ``ps.DataLoader`` request
    each block once and share it.

    With ``shuffle=False``, each lane is a run of the samples in catalog order, read from its beginning to its end.

    Attributes:
        block_samples: Samples of each block, at least 1: one number for all blocks (the last may have fewer), or a
            sequence or array with the number of each block, whose sum is the number of samples. Default: by
            ``block_bytes``.
        window_blocks: Blocks of a lane that are mixed with one another, at least 1; default: 16, or 160 by
            ``block_bytes``.
        lanes: Number of lanes, at most 2^20; None: one for each rank, or the number in the state that is resumed.
        shuffle: Whether to permute; False: blocks and samples in order, in every epoch.
        block_bytes: Bytes of each block, as in ``BlockShuffle``; default: 1 MiB.

    Raises:
        Unusable: An argument is out of range; or, when a dataset is given the order, the sizes do not add up to its
            samples, or the dataset does not know their bytes; or, when an iteration begins, the ranks cannot share the
            lanes evenly.

    Example:
        >>> order = ps.order.Lanes(block_samples=2, window_blocks=1, lanes=2, shuffle=False)
        >>> order.epoch(8, seed=0, epoch=0)(np.arange(8))
        array([0, 4, 1, 5, 2, 6, 3, 7])
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/", shuffle=ps.order.Lanes(60))
    """

    block_samples: int | Sequence[int] | NDArray[np.int64] | None = None
    window_blocks: int | None = None
    lanes: int | None = None
    shuffle: bool = True
    block_bytes: int | None = None
    # Covers all arguments except ``lanes``, which a state holds separately.
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        blocks = checked_blocks(self.block_samples, self.window_blocks, self.block_bytes)
        switch(self.shuffle, "shuffle of Lanes")
        object.__setattr__(self, "block_samples", blocks.samples)
        object.__setattr__(self, "window_blocks", blocks.window)
        object.__setattr__(self, "block_bytes", blocks.size_bytes or None)
        if self.lanes is not None:
            # Python's integer: ranks compare it as JSON.
            object.__setattr__(self, "lanes", whole(self.lanes, "lanes", 1))
            if self.lanes > MOST_LANES:
                raise Unusable(f"lanes must be at most {MOST_LANES}, got {self.lanes}")
        text = f"{sizes_text(blocks)}, window {blocks.window}" if self.shuffle else "in order"
        object.__setattr__(self, "identity", f"lanes 3: {text}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lanes):
            return NotImplemented
        return (self.identity, self.lanes) == (other.identity, other.lanes)

    def __hash__(self) -> int:
        return hash((self.identity, self.lanes))

    def fitted(self, cut: Callable[[int], int | NDArray[np.int64]]) -> Lanes:
        """Return the same order with blocks of known numbers of samples, if blocks are cut by bytes.

        Args:
            cut: Function from the bytes of a block to the number of samples of every block, or of each: int64, shape
                (blocks,).
        """
        return replace(self, block_samples=cut(self.block_bytes), block_bytes=None) if self.block_bytes else self

    def positions(self, samples: int) -> int:
        """Return ``samples``, after a check of the sizes of blocks."""
        check_sizes(self.block_samples, samples)
        return samples

    def with_lanes(self, lanes: int) -> Lanes:
        """Return the same order with ``lanes`` lanes."""
        return replace(self, lanes=lanes)

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the epoch's order of int64 samples: position p is sample p // lanes of lane p % lanes."""
        lanes = self.lanes or 1
        if not self.shuffle:
            return partial(_in_order, self.positions(samples), lanes)
        blocks = permute_blocks(self.block_samples, samples, (seed, epoch), self.window_blocks or 1)
        return LanePermutation(blocks, lanes).of


class LanePermutation(EpochOrder):
    """The order of an epoch in lanes; with one lane, it is the order of ``blocks``.

    Lane l is the l-th of equal runs of the permuted blocks; the first n % lanes runs have one more sample. Position p
    is sample p // lanes of lane p % lanes. A window slides over each lane: see ``SlidingWindow``.

    Odd lanes run from their end to their beginning. So a block at the border of two lanes is the first of both or the
    last of both, and a rank that has both lanes reads it once, without holding it in between: at any position, at most
    the blocks of one window per lane have been begun and not finished.

    Memory does not grow with the lanes. Access takes 0.4 to 0.6 µs per sample in blocks of some thousand, up to 3 µs
    where neighbours are of different lanes or steps; only the lanes asked for are looked at.
    """

    def __init__(self, blocks: WindowedBlocks, lanes: int) -> None:
        self.n, self._blocks, self._lanes = blocks.n, blocks, lanes
        self._sliding = blocks.sliding(self._borders)

    def _borders(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        return _borders(self.n, self._lanes, lanes)

    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        index, lane = np.divmod(positions, self._lanes)
        at = np.where(lane % 2 == 0, self._borders(lane) + index, self._borders(lane + 1) - 1 - index)
        places = self._sliding.of(lane, at)
        return places + self._blocks.shifts(self._blocks.ranks(places))


def open_blocks(blocks: int, lanes: int, world: int) -> int:
    """Return how many blocks a rank has open at once, with ``blocks`` in each of ``lanes`` lanes of all ranks."""
    # The range of a rank may begin and end within a lane.
    own = lanes // world if lanes % world == 0 else lanes // world + 2
    return blocks * max(1, min(own, lanes))


def by_lane(
    firsts: NDArray[np.int64], sizes: NDArray[np.int64], lanes: int, at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions at places ``at`` of global batches that are read lane by lane.

    A global batch is the positions [first, first + size). Position p is in lane p % lanes, and the positions of a lane
    come in order. A place is in [0, size).
    """
    turns, rest = np.divmod(np.stack([firsts, firsts + sizes]), lanes)
    rounds = turns[1] - turns[0]

    def before(lane: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many positions of the batch are in earlier lanes."""
        count: NDArray[np.int64] = lane * rounds + np.minimum(rest[1], lane) - np.minimum(rest[0], lane)
        return count

    lane = np.zeros_like(at)  # the last lane that begins at or before the place
    for bit in reversed(range((lanes - 1).bit_length())):
        tried = lane + (1 << bit)
        lane = np.where((tried < lanes) & (before(tried) <= at), tried, lane)
    found: NDArray[np.int64] = firsts + (lane - rest[0]) % lanes + lanes * (at - before(lane))
    return found


def _in_order(samples: int, lanes: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    index, lane = np.divmod(positions, lanes)
    found: NDArray[np.int64] = _borders(samples, lanes, lane) + index
    return found


def _borders(samples: int, lanes: int, lane: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each lane begins; the first samples % lanes lanes have one more sample."""
    short, more = divmod(samples, lanes)
    borders: NDArray[np.int64] = lane * short + np.minimum(lane, more)
    return borders
