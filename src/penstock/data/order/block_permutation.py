"""Permuted blocks, and windows that slide over them: the sample at any place of an epoch, computed.

The blocks of a lane are cut into groups, and a window holds a few groups. Each step takes samples of all groups of the
window; then the first group is used up, and the next one comes in. So memory is let go of evenly, a group at a time.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.order.shuffle import MOST, EpochOrder, Permutation
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup


_WINDOW = 16
# Blocks cut by bytes are smaller than blocks that users choose: more of them mix as well as a full permutation nearly
# does (a batch of 256 over sorted classes: total variation 0.38, a full permutation 0.25).
_WINDOW_OF_BYTES = 160
_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 1 << 31  # so that arithmetic with them fits 64 bits
# Groups of a window. More let go of memory in smaller portions; each costs a look-up in one more table.
_GROUPS = 8
# Samples of a step on average, at least: the table of each step takes some 10 µs.
_LEAST = 256
# Steps that are computed beyond those that are asked for, since a reader asks for the next places.
_AHEAD = 16
# Sets that 16 bits can number.
_SMALL = 1 << 16


class Blocks(NamedTuple):
    """The arguments of an order of blocks, checked."""

    # Samples of each block: one number, or a read-only array of int64; None: blocks are cut by bytes.
    samples: int | NDArray[np.int64] | None
    window: int  # blocks mixed with one another
    size_bytes: int  # bytes of each block if ``samples`` is None; else 0


def checked_blocks(samples: object, window: object, size_bytes: object) -> Blocks:
    """Return the arguments of an order of blocks, with defaults."""
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


def sizes_text(blocks: Blocks) -> str:
    if blocks.samples is None:
        return f"{blocks.size_bytes} bytes"
    if isinstance(blocks.samples, int):
        return f"{blocks.samples} samples"
    digest = hashlib.sha256(np.asarray(blocks.samples, dtype="<i8").tobytes()).hexdigest()[:32]
    return f"{len(blocks.samples)} of sizes {digest}"


def groups_of(samples: int, blocks: int, window: int) -> int:
    """Return the number of groups in which a window of ``window`` of ``blocks`` blocks is used up."""
    return max(1, min(_GROUPS, window, samples * window // max(blocks, 1) // _LEAST))


class _Sets(NamedTuple):
    """Steps, or groups: places that a permutation mixes."""

    kind: str  # "window" or "group"
    numbers: NDArray[np.int64]  # number of each, over all lanes: int64, shape (sets,)
    sizes: NDArray[np.int64]  # samples of each


class _Steps(NamedTuple):
    """Some steps, in order, and their parts: the samples of one group that each takes."""

    begins: NDArray[np.int64]  # place at which each step begins: int64, shape (steps,)
    steps: _Sets
    # Place behind each part, as if a step took its groups one after the other: int64, shape (parts,).
    ends: NDArray[np.int64]
    # What to subtract from a place of a part to have the number of the sample within its group.
    taken: NDArray[np.int64]
    starts: NDArray[np.int64]  # first place of the samples of the group of each part
    groups: _Sets
    group: NDArray[np.int64]  # which of ``groups`` each part is of


class SlidingWindow:
    """The order of the samples of permuted blocks, in one or several lanes, each a run of the permuted samples.

    A lane is cut as evenly as possible into G groups of blocks (or parts of blocks, at its ends), so that a window of P
    groups has at most ``window`` blocks. Step s of a lane takes samples of the groups s to s + P - 1, for s from 0 to
    G - P. So a group is used up in P steps, as evenly as possible; the first groups, with which the lane begins, in
    fewer, and so the last ones, with which it ends. Which samples of a group come in which step is a permutation of the
    group, and the samples of a step are permuted. A lane of at most ``window`` blocks is one step: a full shuffle.
    """

    def __init__(
        self, blocks: WindowedBlocks, key: tuple[int, int], borders: NDArray[np.int64], window: int, groups: int
    ) -> None:
        """Cut lanes into groups.

        ``borders`` has the first place of each lane, and the end of the last: int64, shape (lanes + 1,). ``window`` is
        1 to 2^31 blocks, used up in ``groups`` groups.
        """
        self._blocks, self._key, self._borders = blocks, key, borders
        self._width = groups  # of a window
        lanes = len(borders) - 1
        self._first = np.zeros(lanes, dtype=np.int64)  # of the permuted blocks, the first of each lane
        self._pieces = np.ones(lanes, dtype=np.int64)  # blocks of each lane, whole or partial
        full = np.diff(borders) > 0
        ends = blocks.ranks(np.stack([borders[:-1], borders[1:] - 1])[:, full])
        self._first[full], self._pieces[full] = ends[0], ends[1] - ends[0] + 1
        self._groups = -(-self._pieces * groups // window)
        self._before = np.cumsum(self._groups) - self._groups  # groups of the lanes before
        # Permutations that the last two calls used: a reader asks for the next places.
        self._used: tuple[dict[tuple[str, int], Permutation], ...] = ({}, {})
        self._known: _Steps | None = None

    def of(self, lanes: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples that come at ``places`` of ``lanes``, as places in the permuted blocks."""
        if not places.size:
            return places.copy()
        known, used = self._steps_of(lanes, places), dict[tuple[str, int], Permutation]()
        step = np.searchsorted(known.begins, places, side="right") - 1
        begins = known.begins[step]
        mixed = begins + self._mixed(known.steps, step, places - begins, used)
        part = np.searchsorted(known.ends, mixed, side="right")
        within = mixed - known.taken[part]
        if self._width > 1:
            within = self._mixed(known.groups, known.group[part], within, used)
        self._used = used, self._used[0]
        found: NDArray[np.int64] = known.starts[part] + within
        return found

    def _steps_of(self, lanes: NDArray[np.int64], places: NDArray[np.int64]) -> _Steps:
        """Return the steps of these places, and others."""
        ranks = self._blocks.ranks(places) - self._first[lanes]
        groups = ((ranks + 1) * self._groups[lanes] - 1) // self._pieces[lanes]
        numbers = self._before[lanes] + groups
        # Most neighbours are of the same group, unless there are several lanes.
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        heads = heads[np.unique(numbers[heads], return_index=True)[1]]
        lanes, groups = lanes[heads][:, None], groups[heads][:, None]
        # A place within the samples of a group belongs to the step of that group, or to one of those before it.
        near = groups + np.arange(1 - self._width, 1 + _AHEAD)
        near = np.clip(near, 0, self._count(lanes) - 1)
        numbers = self._before[lanes] + near
        known = self._known
        if known is None or not np.isin(numbers[:, : self._width], known.steps.numbers).all():
            _, first = np.unique(numbers, return_index=True)
            known = self._known = self._steps(lanes[first // near.shape[1], 0], near.ravel()[first])
        return known

    def _steps(self, lanes: NDArray[np.int64], steps: NDArray[np.int64]) -> _Steps:
        """Return these steps, which are sorted by lane and number."""
        begins = self._begins(lanes, steps)
        groups = steps[:, None] + np.arange(self._width)
        every = np.broadcast_to(lanes[:, None], groups.shape)
        starts, taken = self._starts(every, groups), self._taken(every, groups, steps[:, None])
        sizes = self._taken(every, groups, steps[:, None] + 1) - taken
        ends = begins[:, None] + np.cumsum(sizes, axis=1)
        # A group that does not exist has no samples, and the number of the last that does.
        numbers = self._before[every] + np.minimum(groups, self._groups[every] - 1)
        numbers, first, group = np.unique(numbers, return_index=True, return_inverse=True)
        return _Steps(
            begins=begins,
            steps=_Sets("window", self._before[lanes] + steps, sizes.sum(axis=1)),
            ends=ends.ravel(),
            taken=(ends - sizes - taken).ravel(),
            starts=starts.ravel(),
            groups=_Sets("group", numbers, (self._starts(every, groups + 1) - starts).ravel()[first]),
            group=group.ravel(),
        )

    def _begins(self, lanes: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the place at which each step begins; before the first and after the last step, the lane's ends."""
        earlier = steps[..., None] + np.arange(self._width - 1)  # groups that have come, and are not used up
        each = np.broadcast_to(lanes[..., None], earlier.shape)
        taken = self._taken(each, earlier, steps[..., None]).sum(axis=-1)
        begins = self._starts(lanes, steps) + np.where(steps > 0, taken, 0)
        return np.where(steps < self._count(lanes), begins, self._borders[lanes + 1])

    def _taken(
        self, lanes: NDArray[np.int64], groups: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return how many samples of each group the steps before these take."""
        start = self._starts(lanes, groups)
        size = self._starts(lanes, groups + 1) - start
        comes = np.maximum(groups - self._width + 1, 0)
        count = np.maximum(np.minimum(groups + 1, self._count(lanes)) - comes, 1)
        passed = np.clip(steps - comes, 0, count)
        found: NDArray[np.int64] = size // count * passed + size % count * passed // count
        return found

    def _count(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(self._groups[lanes] - self._width + 1, 1)

    def _starts(self, lanes: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first place of the samples of each group; else the lane's nearest end."""
        count = self._groups[lanes]
        ranks = self._first[lanes] + np.clip(groups, 0, count) * self._pieces[lanes] // count
        return np.clip(self._blocks.starts(ranks), self._borders[lanes], self._borders[lanes + 1])

    def _mixed(
        self, sets: _Sets, which: NDArray[np.int64], places: NDArray[np.int64], used: dict[tuple[str, int], Permutation]
    ) -> NDArray[np.int64]:
        """Permute the places within each set; ``which`` has the sets' indices."""
        # Small integers are sorted faster.
        by_set = np.argsort(which.astype(np.uint16) if sets.sizes.size < _SMALL else which, kind="stable")
        mixed = np.empty_like(places)
        for part in np.split(by_set, np.flatnonzero(np.diff(which[by_set])) + 1):
            index = which[part[0]]
            name = sets.kind, int(sets.numbers[index])
            order = next((each[name] for each in (used, *self._used) if name in each), None)
            if order is None:
                order = Permutation(int(sets.sizes[index]), *self._key, f"{sets.kind} {name[1]} ")
            used[name] = order
            mixed[part] = order.of(places[part])
        return mixed


class WindowedBlocks(EpochOrder):
    """Order of permuted blocks, whose samples are mixed by a ``SlidingWindow``; subclasses locate the blocks."""

    groups: int  # groups of a window
    _key: tuple[int, int]  # seed and epoch
    _window: int  # blocks

    @abstractmethod
    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number, among the permuted blocks, of the block that holds each position."""

    @abstractmethod
    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first position of each permuted block; for the number past the last block, the end."""

    @abstractmethod
    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the difference between the samples and the positions of each permuted block."""

    def sliding(self, borders: NDArray[np.int64]) -> SlidingWindow:
        """Return the window that slides over the blocks of lanes, which end at ``borders``."""
        return SlidingWindow(self, self._key, borders, self._window, self.groups)

    @cached_property
    def _sliding(self) -> SlidingWindow:
        return self.sliding(np.array([0, self.n]))

    def _samples(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        places = self._sliding.of(np.zeros_like(positions), positions)
        return places + self.shifts(self.ranks(places))


class BlockPermutation(WindowedBlocks):
    """The order of epoch ``epoch`` over consecutive blocks of samples, such as shards or Zarr chunks.

    Block b holds the ``sizes[b]`` samples after those of the blocks before it. The blocks are permuted, and a window
    slides over them: see ``SlidingWindow``. All of this uses ``Permutation``, so the order depends only on (sizes,
    seed, epoch, window), on every platform.

    Guarantees for readers: at any position, at most ``window`` blocks have been begun and not finished. So a sequential
    reader that keeps these reads each block once. If d is at most the number of samples of any ``window`` blocks, d
    consecutive positions touch at most 2 * ``window`` blocks: a reader that is d positions ahead keeps that many.

    A window of 1 keeps blocks whole, with their samples mixed; a window of all blocks or more is a full shuffle. In
    between, the samples of a block stay close to one another, so they should not be alike.

    Memory is O(blocks), at most 24 bytes each (70 while they are permuted, which takes 60 ms for 400,000), and nothing
    per sample. The tables that the last two calls used are kept: 8 bytes per sample of a step or a group of blocks
    below 65,536 samples, nothing for larger ones. Access takes the same time at any position: 20 ns to find the block,
    50 to 80 ns for each sample of a step and of its groups the first time (for all their samples, whichever of them
    this process reads), and some 10 µs for each step and group. So a window should hold at least dozens of samples. For
    blocks of single samples, use a ``Permutation``.

    The sum of ``sizes`` is at most 2^62.
    """

    def __init__(
        self, sizes: Sequence[int] | NDArray[np.integer], seed: int, epoch: int, window: int = _WINDOW
    ) -> None:
        if window < 1:
            raise Unusable(f"a window must have at least one block, got {window}")
        each = lengths(sizes)
        blocks = Permutation(each.size, seed, epoch, "blocks ").block(0, each.size)
        self._bounds = _accumulate_lengths(each[blocks])  # of the permuted blocks, in positions
        self._offsets = _accumulate_lengths(each)[blocks] - self._bounds[:-1]
        self.n, self._key = int(self._bounds[-1]), (seed, epoch)
        self._window = min(window, max(blocks.size, 1))
        self.groups = groups_of(self.n, blocks.size, self._window)

    def ranks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._bounds[1:], positions, side="right")

    def starts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._bounds[ranks]

    def shifts(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._offsets[ranks]


class EqualBlockPermutation(WindowedBlocks):
    """A ``BlockPermutation`` of blocks of equal size, except the last, in O(1) memory for any number of samples.

    The order is the one that ``BlockPermutation`` computes for the same sizes. Below 65,536 blocks their permutation is
    a table; from there on it takes 50 to 80 ns more per sample. There are at most 2^62 samples
    in 2^31 blocks.
    """

    def __init__(self, n: int, size: int, seed: int, epoch: int, window: int = _WINDOW) -> None:
        if size < 1 or window < 1:
            raise Unusable(f"a block must have at least one sample, and a window one block, got {size} and {window}")
        if not 0 <= n <= MOST:
            raise Unusable(f"an order must have 0 to 2^62 samples, got {n}")
        # Arithmetic with the size must fit 64 bits.
        size = min(size, max(n, 1))
        blocks = -(-n // size)
        if blocks > _MOST_BLOCKS:
            raise Unusable(f"{n} samples in blocks of {size} are {blocks} blocks, more than 2^31: pass larger blocks")
        self.n, self._size, self._key = n, size, (seed, epoch)
        self._window = min(window, max(blocks, 1))
        self.groups = groups_of(n, blocks, self._window)
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
        return self._permutation.of(ranks) * self._size - self.starts(ranks)


def permute_blocks(
    sizes: int | Sequence[int] | NDArray[np.int64] | None, samples: int, key: tuple[int, int], window: int
) -> WindowedBlocks:
    """Return the order of an epoch over blocks of these sizes; ``key`` is the seed and the epoch."""
    known = check_sizes(sizes, samples)
    if isinstance(known, int):
        return EqualBlockPermutation(samples, known, *key, window)
    return BlockPermutation(known, *key, window)


def check_sizes(
    sizes: int | Sequence[int] | NDArray[np.int64] | None, samples: int
) -> int | Sequence[int] | NDArray[np.int64]:
    """Return the sizes of blocks, which must hold exactly ``samples`` samples."""
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


def _accumulate_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the starts of consecutive intervals of these lengths, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(lengths)))


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
