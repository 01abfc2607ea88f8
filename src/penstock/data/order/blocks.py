"""Orders with locality: blocks are permuted, and samples are mixed within windows of a few blocks."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.order.shuffle import MOST, EpochOrder, Permutation
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup

__all__ = [
    "BlockPermutation",
    "BlockShuffle",
    "Blocks",
    "EqualBlockPermutation",
    "WindowedBlocks",
    "check_sizes",
    "checked_blocks",
    "lengths",
    "sizes_text",
]

_WINDOW = 16
# Blocks cut by bytes are smaller than blocks that users choose: more of them mix as well as a full permutation nearly
# does (a batch of 256 over sorted classes: total variation 0.38, a full permutation 0.25).
_WINDOW_OF_BYTES = 160
_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 1 << 31  # so that arithmetic with them fits 64 bits
# Windows, of at most 512 KiB: a sequential reader needs one, and two at a border.
_KEPT = 4


class Blocks(NamedTuple):
    """The arguments of an order of blocks, checked.

    Attributes:
        samples: Samples of each block: one number, or a read-only array of int64; None: blocks are cut by bytes.
        window: Blocks mixed with one another.
        size_bytes: Bytes of each block if ``samples`` is None; else 0.

    """

    samples: int | NDArray[np.int64] | None
    window: int
    size_bytes: int


def checked_blocks(samples: object, window: object, size_bytes: object) -> Blocks:
    """Return the arguments of an order of blocks, with defaults.

    Raises:
        Unusable: An argument is out of range, or both ``samples`` and ``size_bytes`` are given.

    """
    default = _WINDOW_OF_BYTES if samples is None else _WINDOW
    number = default if window is None else whole(window, "window_blocks", 1)
    if samples is None:
        return Blocks(None, number, _BLOCK_BYTES if size_bytes is None else whole(size_bytes, "block_bytes", 1))
    if size_bytes is not None:
        raise Unusable("block_samples and block_bytes both set the size of blocks: pass one of them")
    if not hasattr(samples, "__len__"):
        return Blocks(whole(samples, "block_samples", 1), number, 0)
    sizes = lengths(samples)  # type: ignore[arg-type]
    sizes.flags.writeable = False
    return Blocks(sizes, number, 0)


@dataclass(frozen=True, slots=True, eq=False)
class BlockShuffle:
    """Shuffle blocks of neighbouring samples, and the samples within windows of a few blocks; for ``shuffle=``.

    The samples are cut into blocks of ``block_samples`` consecutive samples, or of about ``block_bytes``; a dataset of
    shards reads each block in one request. Each epoch permutes the blocks, groups the permuted blocks into windows of
    at most ``window_blocks``, and permutes the samples of each window. At any position, at most ``window_blocks``
    blocks have been begun and not finished. So if each object, shard or chunk holds a block, only a few of them are
    read at the same time. Every sample occurs once per epoch. The order depends only on the samples (their number; with
    ``block_bytes`` also their sizes), ``seed``, the epoch and these arguments: it is the same for any number of ranks
    and workers, and resumable.

    The samples of a block stay close to one another, so choose blocks whose samples are not all alike.
    ``window_blocks=1`` keeps blocks whole. ``shuffle=True`` permutes all samples; it is the better order if reads need
    no locality.

    Memory does not grow with the number of samples; if the size of each block is given, it is 24 bytes per block. A
    sample takes about 100 ns.

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
        >>> order = ps.BlockShuffle(block_samples=2, window_blocks=1)
        >>> order.epoch(8, seed=0, epoch=0)(np.arange(8))
        array([2, 3, 0, 1, 5, 4, 7, 6])
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/", shuffle=ps.BlockShuffle(60))

    """

    block_samples: int | Sequence[int] | NDArray[np.int64] | None = None
    window_blocks: int | None = None
    block_bytes: int | None = None
    identity: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments, and make them immutable."""
        blocks = checked_blocks(self.block_samples, self.window_blocks, self.block_bytes)
        object.__setattr__(self, "block_samples", blocks.samples)
        object.__setattr__(self, "window_blocks", blocks.window)
        object.__setattr__(self, "block_bytes", blocks.size_bytes or None)
        object.__setattr__(self, "identity", f"blocks 1: {sizes_text(blocks)}, window {blocks.window}")

    def __eq__(self, other: object) -> bool:
        """Compare the arguments."""
        return self.identity == other.identity if isinstance(other, BlockShuffle) else NotImplemented

    def __hash__(self) -> int:
        """Return the hash of the arguments."""
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
        size, window = check_sizes(self.block_samples, samples), self.window_blocks or 1
        if isinstance(size, int):
            return EqualBlockPermutation(samples, size, seed, epoch, window).of
        return BlockPermutation(size, seed, epoch, window).of


class WindowedBlocks(EpochOrder):
    """Order of permuted blocks, with the samples of each window permuted; subclasses locate the blocks."""

    _blocks: int  # number of blocks
    _key: tuple[int, int]  # seed and epoch
    _count: int  # number of windows

    @abstractmethod
    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number, among the permuted blocks, of the block that holds each position."""

    @abstractmethod
    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first position of each permuted block; for the number past the last block, the end."""

    @abstractmethod
    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the difference between the samples and the positions of each permuted block."""

    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        windows = ((self.ranks(positions) + 1) * self._count - 1) // max(self._blocks, 1)
        by_window = np.argsort(windows, kind="stable")
        mixed = np.empty(positions.size, dtype=np.int64)
        for part in np.split(by_window, np.flatnonzero(np.diff(windows[by_window])) + 1) if positions.size else ():
            number = int(windows[part[0]])
            bounds = np.array([number, number + 1]) * self._blocks // self._count
            start, stop = self.starts(bounds).tolist()
            order = _mixing(stop - start, *self._key, number)
            mixed[part] = start + order.of(positions[part] - start)
        return mixed + self.shifts(self.ranks(mixed))


class BlockPermutation(WindowedBlocks):
    """The order of epoch ``epoch`` over consecutive blocks of samples, such as shards or Zarr chunks.

    Block b holds the ``sizes[b]`` samples after those of the blocks before it. The blocks are permuted. The permuted
    blocks are cut as evenly as possible into ceil(blocks / window) windows. The samples of each window are permuted.
    All of this uses ``Permutation``, so the order depends only on (sizes, seed, epoch, window), on every platform.

    Guarantees for readers: positions come window by window, and the positions of a window are exactly the samples of
    its blocks, at most ``window`` of them. So at any position, at most ``window`` blocks have been begun and not
    finished: a sequential reader that keeps the blocks of the current window reads each block once. If d is at most the
    number of samples in the smallest window, d consecutive positions touch at most 2 * ``window`` blocks: a reader that
    is d positions ahead keeps the blocks of two windows.

    A window of 1 keeps blocks whole, with their samples mixed; a window of all blocks or more is a full shuffle. In
    between, the samples of a block stay close to one another, so they should not be alike.

    Memory is O(blocks), at most 24 bytes each (70 while they are permuted, which takes 60 ms for 400,000), and nothing
    per sample. The process keeps the tables of the four windows used last: 8 bytes per sample of a window below 65,536
    samples, nothing for a larger window. Access takes the same time at any position: 20 ns to find the block, 50 to
    80 ns for each sample of a window the first time (for all its samples, whichever of them this process reads), and
    30 µs for each window, so a window should hold at least dozens of samples. For blocks of single samples, use a
    ``Permutation``.

    Args:
        sizes: Samples of each block: integers of at least 0, whose sum is at most 2^62; copied.
        seed: Any integer.
        epoch: Any integer; another epoch is another order.
        window: Blocks mixed with one another, at least 1.

    Raises:
        Unusable: A size or the window is out of range.

    """

    def __init__(
        self, sizes: Sequence[int] | NDArray[np.integer], seed: int, epoch: int, window: int = _WINDOW
    ) -> None:
        """Permute the blocks; nothing is computed for samples yet."""
        if window < 1:
            raise Unusable(f"a window must have at least one block, got {window}")
        each = lengths(sizes)
        blocks = Permutation(each.size, seed, epoch, "blocks ").block(0, each.size)
        self._bounds = _bounds(each[blocks])  # of the permuted blocks, in positions
        self._offsets = _bounds(each)[blocks] - self._bounds[:-1]
        self.n, self._key = int(self._bounds[-1]), (seed, epoch)
        self._blocks, self._count = blocks.size, -(-blocks.size // window)

    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the numbers among the blocks' bounds."""
        return np.searchsorted(self._bounds[1:], positions, side="right")

    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the bounds of the blocks."""
        return self._bounds[ranks]

    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the offsets of the blocks."""
        return self._offsets[ranks]


class EqualBlockPermutation(WindowedBlocks):
    """A ``BlockPermutation`` of blocks of equal size, except the last, in O(1) memory for any number of samples.

    The order is the one that ``BlockPermutation`` computes for the same sizes. Below 65,536 blocks their permutation is
    a table; from there on it takes 50 to 80 ns more per sample.

    Args:
        n: Number of samples, in [0, 2^62].
        size: Samples of each block, at least 1; the last block may have fewer.
        seed: Any integer.
        epoch: Any integer; another epoch is another order.
        window: Blocks mixed with one another, at least 1.

    Raises:
        Unusable: A number is out of range, or there are more than 2^31 blocks.

    """

    def __init__(self, n: int, size: int, seed: int, epoch: int, window: int = _WINDOW) -> None:
        """Derive keys; nothing is computed for samples yet."""
        if size < 1 or window < 1:
            raise Unusable(f"a block must have at least one sample, and a window one block, got {size} and {window}")
        if not 0 <= n <= MOST:
            raise Unusable(f"an order of {n} samples cannot be computed: 0 to 2^62 can")
        # Arithmetic with the size must fit 64 bits.
        size = min(size, max(n, 1))
        blocks = -(-n // size)
        if blocks > _MOST_BLOCKS:
            raise Unusable(f"{n} samples in blocks of {size} are {blocks} blocks: at most 2^31 can be permuted")
        self.n, self._size, self._key = n, size, (seed, epoch)
        self._blocks, self._count = blocks, -(-blocks // window)
        self._permutation = Permutation(blocks, seed, epoch, "blocks ")
        self._missing = blocks * size - n  # samples that the last block lacks
        self._short = self._permutation.position(blocks - 1) if self._missing else blocks  # place of that block

    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Divide by the size of blocks, corrected for the short block."""
        beyond = positions >= (self._short + 1) * self._size - self._missing
        return (positions + beyond * self._missing) // self._size

    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Multiply by the size of blocks, corrected for the short block."""
        return ranks * self._size - (ranks > self._short) * self._missing

    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute the shifts from the permutation of the blocks."""
        return self._permutation.of(ranks) * self._size - self.starts(ranks)


# Typed, because equal numbers may be written differently (1 and True), and the keys are derived from the text.
@lru_cache(maxsize=_KEPT, typed=True)
def _mixing(n: int, seed: int, epoch: int, number: int) -> Permutation:
    return Permutation(n, seed, epoch, f"window {number} ")


def sizes_text(blocks: Blocks) -> str:
    """Return a text that identifies the sizes of blocks, for an order's identity."""
    if blocks.samples is None:
        return f"{blocks.size_bytes} bytes"
    if isinstance(blocks.samples, int):
        return f"{blocks.samples} samples"
    digest = hashlib.sha256(np.asarray(blocks.samples, dtype="<i8").tobytes()).hexdigest()[:32]
    return f"{len(blocks.samples)} of sizes {digest}"


def check_sizes(
    sizes: int | Sequence[int] | NDArray[np.int64] | None, samples: int
) -> int | Sequence[int] | NDArray[np.int64]:
    """Return the sizes of blocks.

    Raises:
        Unusable: They do not hold exactly ``samples`` samples; or blocks are cut by bytes, and no dataset has cut them.

    """
    if sizes is None:
        raise Unusable("blocks are cut by bytes, but the sizes of the samples are not known: pass block_samples=")
    if not isinstance(sizes, int) and (held := int(np.sum(sizes, dtype=np.int64))) != samples:
        raise Unusable(f"the blocks of block_samples hold {held} samples, and the dataset has {samples}")
    return sizes


def lengths(sizes: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return sizes of blocks as int64, a copy; raises ``Unusable`` if they are invalid."""
    given = np.asarray(sizes)
    whole = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
    if not whole or (given < 0).any() or given.sum(dtype=np.float64) > MOST:
        raise Unusable("sizes of blocks are integers of at least 0, and of 2^62 at most together")
    return given.astype(np.int64)


def _bounds(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the starts of intervals of these lengths, laid end to end, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(lengths)))
