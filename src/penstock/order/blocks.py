"""Orders for data with locality: blocks are permuted, and samples mixed within a window of few blocks."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Unusable
from penstock.order.shuffle import MOST, EpochOrder, Permutation
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.protocols.order import Lookup

__all__ = [
    "BlockPermutation",
    "BlockShuffle",
    "EqualBlockPermutation",
    "WindowedBlocks",
    "check_sizes",
    "lengths",
    "sizes_text",
]

_WINDOW = 16
_MOST_BLOCKS = 1 << 31  # so that arithmetic with them fits 64 bits
_KEPT = 4  # windows, of at most 512 KiB: a reader in order needs one, at a border two


@dataclass(frozen=True, slots=True)
class BlockShuffle:
    """Shuffle blocks of neighbouring samples, and the samples within windows of a few blocks; for ``shuffle=``.

    The catalog is cut into blocks of ``block_samples`` consecutive samples. Each epoch permutes the blocks, groups the
    permuted blocks into windows of at most ``window_blocks``, and permutes the samples of each window. At any position
    at most ``window_blocks`` blocks have been begun and not finished, so objects, shards or chunks that hold a block
    each are read while few others are. Every sample comes once per epoch, in an order that depends on the number of
    samples, ``seed``, the epoch and these arguments alone: the same for any number of ranks and workers, and resumable.

    Choose blocks whose samples are not all alike: the samples of a block stay close to one another. ``window_blocks=1``
    keeps blocks whole. ``shuffle=True`` permutes all samples and is the better order where reads need no locality.

    Memory does not grow with the number of samples; where blocks have sizes of their own, it is 24 bytes for each
    block. A sample costs some 100 ns.

    Attributes:
        block_samples: Samples of each block, at least 1: one number for all of them (the last may have fewer), or a
            sequence with the number of each, which together are all samples.
        window_blocks: Blocks mixed with one another, at least 1.

    Raises:
        Unusable: An argument out of range; or, when a dataset is given the order, sizes that do not add up to its
            samples.

    """

    block_samples: int | Sequence[int]
    window_blocks: int = _WINDOW

    def __post_init__(self) -> None:
        """Check, and make what was given immutable."""
        given = self.block_samples
        single = not hasattr(given, "__len__")
        size = whole(given, "block_samples", 1) if single else tuple(lengths(given).tolist())  # type: ignore[arg-type]
        object.__setattr__(self, "block_samples", size)
        object.__setattr__(self, "window_blocks", whole(self.window_blocks, "window_blocks", 1))

    @property
    def identity(self) -> str:
        """The arguments, and the version of the arithmetic."""
        return f"blocks 1: {sizes_text(self.block_samples)}, window {self.window_blocks}"

    def positions(self, samples: int) -> int:
        """Return ``samples``."""
        check_sizes(self.block_samples, samples)
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the epoch's permutation."""
        if isinstance(self.block_samples, int):
            return EqualBlockPermutation(samples, self.block_samples, seed, epoch, self.window_blocks).of
        return BlockPermutation(self.block_samples, seed, epoch, self.window_blocks).of


class WindowedBlocks(EpochOrder):
    """Permuted blocks, the samples of each window of them permuted; where the blocks lie is the subclass's to say."""

    _blocks: int  # how many
    _key: tuple[int, int]  # seed and epoch
    _count: int  # windows

    @abstractmethod
    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which of the permuted blocks each position lies in."""

    @abstractmethod
    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first position of each permuted block; of the one past the last, the end."""

    @abstractmethod
    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what lies between the positions of each permuted block and its samples."""

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

    Block b holds the ``sizes[b]`` samples after those of the blocks before it. The blocks are permuted, the permuted
    blocks cut as evenly as it goes into ceil(blocks / window) windows, and the samples of each window permuted. All by
    ``Permutation``, so the order depends on (sizes, seed, epoch, window) and nothing else, on every platform.

    What a reader may rely on: positions come window by window, and those of one window are exactly the samples of its
    blocks, at most ``window`` of them. So at any position at most ``window`` blocks have been begun and not finished:
    a reader in order that keeps the blocks of the current window reads each block once. d consecutive positions,
    d being at most the samples of the smallest window, touch at most 2 * ``window`` blocks: a reader so far ahead
    keeps the blocks of two windows.

    A window of 1 keeps blocks whole, their samples mixed; one of all blocks or more is a full shuffle. In between the
    samples of a block stay close to one another, so those of one block should not be alike.

    Memory is O(blocks), 24 bytes each at most (70 while they are permuted: 60 ms for 400,000), and nothing per sample.
    The tables of the four windows used last are kept, for the whole process: 8 bytes per sample of a window below
    65,536 samples, none for a larger one. Reading costs the same at any position: 20 ns for finding the block, 50 to
    80 ns for each sample of a window the first time (all of them, whichever share this process reads) and 30 µs for
    each window, so it should hold dozens of samples at least; where blocks are single samples, take a ``Permutation``.

    Args:
        sizes: Samples of each block: integers, of at least 0 and 2^62 together; copied.
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
            raise Unusable(f"a window has at least one block, not {window}")
        each = lengths(sizes)
        blocks = Permutation(each.size, seed, epoch, "blocks ").block(0, each.size)
        self._bounds = _bounds(each[blocks])  # of the permuted blocks, in positions
        self._offsets = _bounds(each)[blocks] - self._bounds[:-1]
        self.n, self._key = int(self._bounds[-1]), (seed, epoch)
        self._blocks, self._count = blocks.size, -(-blocks.size // window)

    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find them among the blocks' bounds."""
        return np.searchsorted(self._bounds[1:], positions, side="right")

    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look them up."""
        return self._bounds[ranks]

    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look them up."""
        return self._offsets[ranks]


class EqualBlockPermutation(WindowedBlocks):
    """``BlockPermutation`` where all blocks but the last have the same size, in O(1) memory at any number of samples.

    The order is the one that ``BlockPermutation`` computes of the same sizes. Below 65,536 blocks their permutation is
    a table; beyond that it costs 50 to 80 ns per sample more.

    Args:
        n: How many samples, in [0, 2^62].
        size: Samples of each block, at least 1; the last block may have fewer.
        seed: Any integer.
        epoch: Any integer; another epoch is another order.
        window: Blocks mixed with one another, at least 1.

    Raises:
        Unusable: A number out of range, or more than 2^31 blocks.

    """

    def __init__(self, n: int, size: int, seed: int, epoch: int, window: int = _WINDOW) -> None:
        """Derive keys; nothing is computed for samples yet."""
        if size < 1 or window < 1:
            raise Unusable(f"a block has at least one sample, and a window one block, not {size} and {window}")
        if not 0 <= n <= MOST:
            raise Unusable(f"an order of {n} samples cannot be computed: 0 to 2^62 can")
        size = min(size, max(n, 1))  # so that arithmetic with it fits 64 bits
        blocks = -(-n // size)
        if blocks > _MOST_BLOCKS:
            raise Unusable(f"{n} samples in blocks of {size} are {blocks} blocks: at most 2^31 can be permuted")
        self.n, self._size, self._key = n, size, (seed, epoch)
        self._blocks, self._count = blocks, -(-blocks // window)
        self._permutation = Permutation(blocks, seed, epoch, "blocks ")
        self._missing = blocks * size - n  # samples that the last block has fewer
        self._short = self._permutation.position(blocks - 1) if self._missing else blocks  # where that block comes

    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Divide, with regard to the one block that is short."""
        beyond = positions >= (self._short + 1) * self._size - self._missing
        return (positions + beyond * self._missing) // self._size

    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Multiply, with regard to the one block that is short."""
        return ranks * self._size - (ranks > self._short) * self._missing

    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ask the permutation."""
        return self._permutation.of(ranks) * self._size - self.starts(ranks)


# Typed, as numbers that are equal may be spelt differently (1 and True), and the keys come from the spelling.
@lru_cache(maxsize=_KEPT, typed=True)
def _mixing(n: int, seed: int, epoch: int, number: int) -> Permutation:
    return Permutation(n, seed, epoch, f"window {number} ")


def sizes_text(sizes: int | Sequence[int] | NDArray[np.int64]) -> str:
    """Return what tells these sizes of blocks from others, for an order's identity."""
    if isinstance(sizes, int):
        return f"{sizes} samples"
    digest = hashlib.sha256(np.asarray(sizes, dtype="<i8").tobytes()).hexdigest()[:32]
    return f"{len(sizes)} of sizes {digest}"


def check_sizes(sizes: int | Sequence[int] | NDArray[np.int64], samples: int) -> None:
    """Raise ``Unusable`` where blocks of these sizes do not hold so many samples."""
    if not isinstance(sizes, int) and (held := int(np.sum(sizes, dtype=np.int64))) != samples:
        raise Unusable(f"the blocks of block_samples hold {held} samples, and the dataset has {samples}")


def lengths(sizes: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return sizes of blocks as int64, a copy; ``Unusable`` where they are none."""
    given = np.asarray(sizes)
    whole = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
    if not whole or (given < 0).any() or given.sum(dtype=np.float64) > MOST:
        raise Unusable("sizes of blocks are integers of at least 0, and of 2^62 at most together")
    return given.astype(np.int64)


def _bounds(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each begins when laid end to end, and where the last ends."""
    return np.concatenate(([0], np.cumsum(lengths)))
