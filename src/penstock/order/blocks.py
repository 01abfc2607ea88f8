"""An order for data with locality: blocks are permuted, and samples mixed within a window of few blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Unusable
from penstock.order.shuffle import MOST, Order, Permutation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["BlockShuffle"]

_WINDOW = 16
_KEPT = 4  # windows, of at most 512 KiB: whoever reads in order needs one, at a border two


class BlockShuffle(Order):
    """The order of epoch ``epoch`` over consecutive blocks of samples, such as shards or Zarr chunks.

    Block b holds the ``sizes[b]`` samples after those of the blocks before it. The blocks are permuted, the permuted
    blocks cut as evenly as it goes into ceil(blocks / window) windows, and the samples of each window permuted. All by
    ``Permutation``, so the order depends on (sizes, seed, epoch, window) and nothing else, on every platform.

    What a reader may rely on: positions come window by window, and those of one window are exactly the samples of its
    blocks, at most ``window`` of them. So at any position at most ``window`` blocks have been begun and not finished:
    whoever reads in order and keeps the blocks of the current window reads each block once. d consecutive positions,
    d being at most the samples of the smallest window, touch at most 2 * ``window`` blocks: whoever reads so far ahead
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
        lengths = _lengths(sizes)
        blocks = Permutation(lengths.size, seed, epoch, "blocks ").block(0, lengths.size)
        windows = -(-blocks.size // window)
        bounds = _bounds(lengths[blocks])
        self.n, self._epoch = int(bounds[-1]), (seed, epoch)
        self._ends = bounds[1:]  # of the permuted blocks, in positions
        self._shifts = _bounds(lengths)[blocks] - bounds[:-1]  # from there to the samples of the block
        self._windows = bounds[np.arange(windows + 1) * blocks.size // max(windows, 1)]

    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        windows = np.searchsorted(self._windows[1:], positions, side="right")
        by_window = np.argsort(windows, kind="stable")
        mixed = np.empty(positions.size, dtype=np.int64)
        for part in np.split(by_window, np.flatnonzero(np.diff(windows[by_window])) + 1) if positions.size else ():
            number = int(windows[part[0]])
            start, stop = self._windows[number : number + 2].tolist()
            order = _mixing(stop - start, *self._epoch, number)
            mixed[part] = start + order.of(positions[part] - start)
        return mixed + self._shifts[np.searchsorted(self._ends, mixed, side="right")]


# Typed, as numbers that are equal may be spelt differently (1 and True), and the keys come from the spelling.
@lru_cache(maxsize=_KEPT, typed=True)
def _mixing(n: int, seed: int, epoch: int, number: int) -> Permutation:
    return Permutation(n, seed, epoch, f"window {number} ")


def _lengths(sizes: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    given = np.asarray(sizes)
    whole = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
    if not whole or (given < 0).any() or given.sum(dtype=np.float64) > MOST:
        raise Unusable("sizes of blocks are integers of at least 0, and of 2^62 at most together")
    return given.astype(np.int64)


def _bounds(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each begins when laid end to end, and where the last ends."""
    return np.concatenate(([0], np.cumsum(lengths)))
