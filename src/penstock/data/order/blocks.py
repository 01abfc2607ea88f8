"""Orders with locality: blocks are permuted, and samples are mixed within windows of a few blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.data.order.block_permutation import check_sizes, checked_blocks, permute_blocks, sizes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup


@dataclass(frozen=True, slots=True, eq=False)
class BlockShuffle:
    """Shuffle blocks of neighbouring samples, and the samples within windows of a few blocks; for ``shuffle=``.

    The samples are cut into blocks of ``block_samples`` consecutive samples, or of about ``block_bytes``; a dataset of
    shards reads each block in one request. Each epoch permutes the blocks, and a window of ``window_blocks`` slides
    over the permuted blocks: samples come from all blocks of the window, and as the first of these are used up, the
    next ones come in. At any position, at most ``window_blocks`` blocks have been begun and not finished. So if each
    object, shard or chunk holds a block, only a few of them are read at the same time, and memory becomes free evenly.
    Every sample occurs once per epoch. The order depends only on the samples (their number; with
    ``block_bytes`` also their sizes), ``seed``, the epoch and these arguments: it is the same for any number of ranks
    and workers, and resumable.

    The samples of a block stay close to one another, so choose blocks whose samples are not all alike.
    ``window_blocks=1`` keeps blocks whole. ``shuffle=True`` permutes all samples; it is the better order if reads need
    no locality.

    Memory does not grow with the number of samples; if the size of each block is given, it is 24 bytes per block. A
    sample takes 0.2 to 0.7 µs.

    Attributes:
        block_samples: Samples of each block, at least 1: one number for all blocks (the last may have fewer), or a
            sequence with the number of each block, whose sum is the number of samples. Default: by ``block_bytes``.
        window_blocks: Blocks mixed with one another, at least 1; default: 16, or 160 by ``block_bytes``.
        block_bytes: Bytes of each block, which ends where an object or shard ends; default: 1 MiB. The dataset knows
            the sizes of its samples.

    Raises:
        Unusable: An argument is out of range; or, when a dataset is given the order, the sizes do not add up to its
            samples, or the dataset does not know their bytes.

    Example:
        >>> order = ps.order.BlockShuffle(block_samples=2, window_blocks=1)
        >>> order.epoch(8, seed=0, epoch=0)(np.arange(8))
        array([2, 3, 0, 1, 5, 4, 7, 6])
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/", shuffle=ps.order.BlockShuffle(60))

    """

    block_samples: int | Sequence[int] | NDArray[np.int64] | None = None
    window_blocks: int | None = None
    block_bytes: int | None = None
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        blocks = checked_blocks(self.block_samples, self.window_blocks, self.block_bytes)
        object.__setattr__(self, "block_samples", blocks.samples)
        object.__setattr__(self, "window_blocks", blocks.window)
        object.__setattr__(self, "block_bytes", blocks.size_bytes or None)
        object.__setattr__(self, "identity", f"blocks 2: {sizes_text(blocks)}, window {blocks.window}")

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if isinstance(other, BlockShuffle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.identity)

    def fitted(self, cut: Callable[[int], int | NDArray[np.int64]]) -> BlockShuffle:
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

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the epoch's permutation: from int64 positions to int64 samples, an array of the same shape."""
        return permute_blocks(self.block_samples, samples, (seed, epoch), self.window_blocks or 1).of
