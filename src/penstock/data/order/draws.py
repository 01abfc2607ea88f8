"""Draws of a mixture's sources at each position of a run, in closed form.

Each source has an endless order: its epochs, one after the other. A run takes draws from the sources in blocks
(``Shares`` divides each), so that any number of blocks from the beginning holds the first draws of every source.
A stage is where weights or batches changed: the position, and how many draws each source had given by then.
Between two steps of the weights is a period: their draws are sums in closed form, so a lookup costs the same anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.order.mixture import WeightCurve
from penstock.data.order.orders import check_lookup
from penstock.data.order.protocol import has_lanes
from penstock.data.order.shares import EndingShares, Shares, choose_step, count_draws
from penstock.data.order.shuffle import MOST, Permutation
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.data.order.mixture import MixedSource, MixtureSpec
    from penstock.data.order.protocol import Lookup

# Units of a block with random batches, whose sources are permuted: larger than most batches.
_RANDOM = 4096
_KEPT = 4  # lookups of epochs of a source, and runs of blocks
# Kinds of blocks, and their keys for permutations.
_WHOLE, _OWN_TAIL, _LATER_TAIL = range(3)
_KEYS = "block", "own tail", "tail"
# The key of the run that ends an epoch in which each source comes once.
_LAST = "once, last"
# Draws of sources before periods that are summed up together: arrays of 64 KiB, which stay in the processor's cache.
_CELLS = 1 << 13
_TINY = 1e-200  # of weights that are not 0, but may be as quotients
_TOGETHER = 4
_NEAR = 8  # blocks for each that is looked up, between which the others are divided as well
# An odd number, by which the arrangements of neighbouring blocks differ.
_TURN = 1_000_003


class _BlockPiece(NamedTuple):
    """A part of a block: ``units`` units, each of ``size`` neighbouring draws of one source."""

    units: int
    size: int


class _LastBlock:
    """A single block, the first, whose division is known."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._counts = counts

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.tile(np.concatenate(([0], np.cumsum(self._counts))), (len(blocks), 1))

    def before(self, block: int) -> NDArray[np.int64]:
        return self._counts * block


class _BlockRun(NamedTuple):
    """Blocks of an epoch that are divided alike."""

    first: int  # number of the first block in the epoch
    number: int  # number of that block for the rules
    key: str  # name of these blocks for permutations
    pieces: Sequence[_BlockPiece]  # parts of each block
    rules: Sequence[Shares | EndingShares | _LastBlock]  # division of each part
    draws: NDArray[np.int64]  # draws of each source before the first block of the rules

    def before(self, number: int) -> NDArray[np.int64]:
        """Return the draws of each source before block ``number`` for the rules."""
        parts = zip(self.pieces, self.rules, strict=True)
        return sum((rule.before(number) * piece.size for piece, rule in parts), self.draws)


class Draws:
    """Draws at each position, for a number of lanes and a size of the global batch. Pure.

    Building one costs some milliseconds, a lookup 1 to 3 µs a position in blocks of some thousand.
    """

    def __init__(self, mixture: MixtureSpec, batch: int, lanes: int, seed: int, *, drop: bool = False) -> None:
        """Compute with global batches of ``batch`` samples; ``seed`` is for permutations within blocks.

        With ``drop``, an epoch ends with its last complete global batch, and the sources continue from there.
        """
        if batch % lanes:
            raise Unusable(f"{lanes} lanes must divide the global batch of {batch}")
        total, position = mixture.total, mixture.stage.position
        # Positions that are drawn in the stage's own epoch, and in any later one.
        self._own = drawn_positions(total - position, batch, drop=drop)
        self._whole = drawn_positions(total, batch, drop=drop)
        self._mixture, self._stage, self._seed, self._lanes = mixture, mixture.stage, seed, lanes
        if mixture.batches == "one-source":
            self._block, self._unit = batch, batch
        else:
            self._unit = lanes
            self._block = batch if mixture.batches == "stratified" else _RANDOM * lanes
        count = len(mixture.sources)
        self._base = np.array(self._stage.draws or [0] * count, dtype=np.int64)
        sizes = [source.samples for source in mixture.sources]
        self._bounds = np.concatenate(([0], np.cumsum(np.array(sizes, dtype=np.int64))))
        # Draws of each source in an epoch with ``once``.
        pairs = zip(mixture.sources, mixture.steps[0].weights, strict=True)
        self._sizes = np.array([source.positions if weight else 0 for source, weight in pairs], dtype=np.int64)
        self._inner = [_Inner(source, lanes) for source in mixture.sources]
        self._curve = WeightCurve(mixture.steps)
        # Positions from the stage on at which the periods begin; that of the stage may have begun before.
        self._starts = [min(start - self._stage.delivered, MOST) for start in self._curve.starts]
        self._period = max(0, bisect_right(self._starts, 0) - 1)  # number of the stage's
        # Parts of a whole block, of the incomplete block of the stage's own epoch, and of those of later epochs.
        self._pieces = (
            self._cut(self._block), self._cut(self._own % self._block), self._cut(self._whole % self._block)
        )  # fmt: skip
        # Draws of each source before the periods from the stage's on, as far as they are known.
        self._known = self._base[np.newaxis]
        # The latest runs, by epoch, period and kind of block; with ``once``, all runs and the number of whole blocks.
        self._kept: dict[tuple[int, int, int], _BlockRun] = {}
        self._ended: dict[bool, tuple[list[_BlockRun], int]] = {}

    def lookup(self, epoch: int) -> Lookup:
        return partial(self._samples, epoch, self._begin(epoch))

    def at(self, epoch: int, position: int) -> tuple[int, ...]:
        """Return the draws of each source before a position between global batches; with ``once``, in this epoch."""
        begin = self._begin(epoch)
        at = position - begin
        if position == self._mixture.total and not self._mixture.once:
            # The end of the last block, whole or not.
            at = -(-self._length(epoch) // self._block) * self._block
        block = at // self._block
        run = next(run for run in reversed(self._runs(epoch, block, block)) if run.first <= block)
        if run.key == _LAST:
            block = run.first
        draws = run.before(run.number + block - run.first)
        if at > block * self._block:
            sources, _ = self._drawn_at(epoch, begin, np.arange(begin + block * self._block, position))
            draws = draws + np.bincount(sources, minlength=len(draws))
        return tuple(draws.tolist())

    def delivered(self, epoch: int, position: int) -> int:
        """Return how many samples the run has delivered before a position."""
        return self._stage.delivered + self._since(epoch, position)

    def _since(self, epoch: int, position: int) -> int:
        later = epoch - self._stage.epoch
        return self._own + (later - 1) * self._whole + position if later else position - self._stage.position

    def _begin(self, epoch: int) -> int:
        if epoch < self._stage.epoch:
            raise Unusable(
                f"epoch {epoch} is before the current weights, which apply from epoch {self._stage.epoch} on: load "
                "a state of that time instead"
            )
        if self._stage.delivered + (epoch + 1 - self._stage.epoch) * self._mixture.total > MOST:
            raise Unusable(
                f"epoch {epoch} of a mixture of {self._mixture.total} samples per epoch: the limit is 2^62 samples"
            )
        return self._stage.position if epoch == self._stage.epoch else 0

    def _length(self, epoch: int) -> int:
        return self._own if epoch == self._stage.epoch else self._whole

    def _cut(self, draws: int) -> list[_BlockPiece]:
        """Return the parts of a block of so many draws; incomplete ones have rules apart, so that shares are exact."""
        if self._mixture.batches == "one-source":
            return [_BlockPiece(1, draws)] if draws else []
        parts = _BlockPiece(draws // self._unit, self._unit), _BlockPiece(draws % self._unit, 1)
        return [piece for piece in parts if piece.units]

    def _runs(self, epoch: int, low: int, high: int) -> list[_BlockRun]:
        """Return the runs of the blocks of an epoch from ``low`` to ``high``."""
        if self._mixture.once:
            return self._once(epoch == self._stage.epoch, high)
        full, rest = divmod(self._length(epoch), self._block)
        start = self._since(epoch, self._begin(epoch))
        whole = full - 1 if rest and high >= full else high
        found = []
        if low <= whole:
            begin, end = (self._period_at(start + block * self._block) for block in (low, whole))
            periods = range(begin, end + 1)
            firsts = [max(0, -((start - self._starts[period]) // self._block)) for period in periods]
            for period, first, after in zip(periods, firsts, [*firsts[1:], whole + 1], strict=True):
                if first < after or period == end:
                    found.append(self._run(epoch, period, _WHOLE, first))
        if whole < high:
            kind = _LATER_TAIL if epoch > self._stage.epoch else _OWN_TAIL
            found.append(self._run(epoch, self._period_at(start + full * self._block), kind, full))
        return found

    def _period_at(self, since: int) -> int:
        return max(0, bisect_right(self._starts, since) - 1)

    def _run(self, epoch: int, period: int, kind: int, first: int) -> _BlockRun:
        key = epoch, period, kind
        run = self._kept.get(key)
        if run is None:
            counts, begun = self._count_blocks(epoch, first), self._blocks_before(period)
            draws = self._draws_before(period)
            for other, count in enumerate(counts):
                if other != kind and count > begun[other]:
                    parts = zip(self._pieces[other], self._rules(period, other), strict=True)
                    draws = sum((rule.before(count) * piece.size for piece, rule in parts), draws)
            rules = self._rules(period, kind)
            run = _BlockRun(first, counts[kind], _KEYS[kind], self._pieces[kind], rules, draws)
            self._kept = dict([*self._kept.items()][1 - _KEPT :]) | {key: run}
        return run

    def _count_blocks(self, epoch: int, block: int) -> tuple[int, int, int]:
        """Return how many blocks of each kind begin before a block of an epoch."""
        later = epoch - self._stage.epoch
        number = self._own // self._block + (later - 1) * (self._whole // self._block) if later else 0
        return number + block, min(later, 1), max(later - 1, 0)

    def _blocks_before(self, period: int) -> tuple[int, int, int]:
        """Return how many blocks of each kind begin before a period."""
        since, block = max(0, self._starts[period]), self._block
        if since <= self._own:
            full = self._own // block
            return min(full, -(-since // block)), int(full * block < since), 0
        epochs, at = divmod(since - self._own, max(1, self._whole))
        full = self._whole // block
        number, own, tails = self._count_blocks(self._stage.epoch + 1 + epochs, min(full, -(-at // block)))
        return number, own, tails + int(full * block < at)

    def _rules(self, period: int, kind: int) -> list[Shares]:
        """Return the division of each part of the blocks of a kind that begin in a period."""
        blocks = self._blocks_of(period, kind)
        [first, last] = self._curve.at(self._ends(period, kind, blocks))
        return [Shares(first, piece.units, last, blocks) for piece in self._pieces[kind]]

    def _blocks_of(self, period: int, kind: int) -> range:
        """Return the numbers of the blocks of a kind that begin in a period; of the last period, none."""
        after = min(period + 1, len(self._starts) - 1)
        return range(*(self._blocks_before(each)[kind] for each in (period, after)))

    def _ends(self, period: int, kind: int, blocks: range) -> tuple[int, int]:
        """Return the samples of the run before the first and the last of the blocks that begin in a period."""
        if not blocks:
            return (self._stage.delivered + max(0, self._starts[period]),) * 2
        first, last = (self._begun(kind, number) for number in (blocks[0], blocks[-1]))
        return self._stage.delivered + first, self._stage.delivered + last

    def _begun(self, kind: int, number: int) -> int:
        """Return the position, from the stage on, where a block begins."""
        own, full = self._own // self._block, self._whole // self._block
        if kind == _OWN_TAIL:
            since = own * self._block
        elif kind == _LATER_TAIL:
            since = self._own + number * self._whole + full * self._block
        elif number < own:
            since = number * self._block
        else:
            epochs, at = divmod(number - own, max(full, 1))
            since = self._own + epochs * self._whole + at * self._block
        return since

    def _draws_before(self, period: int) -> NDArray[np.int64]:
        """Return the draws of each source before a period: sums over those before it, some at a time."""
        known = self._known
        while self._period + len(known) <= period:
            begin = self._period + len(known) - 1
            periods = range(begin, min(period, begin + max(1, _CELLS // len(self._base))))
            added = np.zeros((len(periods), len(self._base)), dtype=np.int64)
            edges = [self._blocks_before(min(each, len(self._starts) - 1)) for each in range(begin, periods.stop + 1)]
            for kind, pieces in enumerate(self._pieces):
                blocks = [range(low[kind], high[kind]) for low, high in pairwise(edges)]
                rows = [(each, its) for each, its in zip(periods, blocks, strict=True) if its]
                if not rows or not pieces:
                    continue
                ends = zip(*(self._ends(each, kind, blocks) for each, blocks in rows), strict=True)
                first, last = map(self._curve.at, ends)
                for piece in pieces:
                    draws = count_draws(first, last, piece.units, [blocks for _, blocks in rows])
                    added[[each - begin for each, _ in rows]] += draws * piece.size
            known = np.concatenate((known, known[-1] + np.cumsum(added, axis=0)))
            # Other threads may extend it, too: all find the same.
            self._known = known
        found: NDArray[np.int64] = known[period - self._period]
        return found

    def _once(self, own: bool, high: int) -> list[_BlockRun]:  # noqa: FBT001  whether the epoch is the stage's
        """Return the runs of an epoch in which each source comes once; the last only for blocks up to there."""
        sizes, draws = self._sizes, self._base if own else np.zeros_like(self._base)
        runs, count = self._ended.get(own, ([], 0))
        if not runs:
            units, pieces = (sizes - draws) // self._unit, self._pieces[_WHOLE]
            size = pieces[0].units
            if count := int(units.sum()) // size:
                weights = np.where(units, np.maximum(self._curve.table[0], _TINY), 0)
                shares = Shares(weights, size)
                number = shares.fitting(units, count)
                runs = [_BlockRun(0, 0, "once", pieces, [shares], draws)] if number else []
                after = runs[0].before(number) if number else draws
                if number < count:
                    ending = EndingShares(weights, units - (after - draws) // self._unit, size, number)
                    runs.append(_BlockRun(number, number, "once", pieces, [ending], after))
        if high >= count and (not runs or runs[-1].key != _LAST):
            draws = runs[-1].before(count) if runs else draws
            units, rest = np.divmod(sizes - draws, self._unit)
            # Rests of units may add up to more than a block.
            parts = [(each, size) for each, size in ((units, self._unit), (rest, 1)) if each.any()]
            pieces = [_BlockPiece(int(each.sum()), size) for each, size in parts]
            rules = [_LastBlock(each) for each, _ in parts]
            # Without any, positions at the end of the epoch are after the last whole block.
            runs = [*runs, _BlockRun(count, 0, _LAST, pieces, rules, draws)]
        self._ended[own] = runs, count
        return runs

    def _samples(self, epoch: int, begin: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        sources, draws = self._drawn_at(epoch, begin, positions)
        found = np.empty_like(positions)
        once = epoch if self._mixture.once else None
        by_source = np.argsort(sources, kind="stable")
        for part in _runs_of(sources, by_source):
            number = int(sources[part[0]])
            found[part] = self._bounds[number] + self._inner[number].samples(draws[part], once)
        return found

    def _drawn_at(
        self, epoch: int, begin: int, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each position, and the number of its draw."""
        at = positions - begin
        if at.size and at.min() < 0:
            raise Unusable(f"positions before {begin} are before the current weights")
        blocks = at // self._block
        sources, draws = np.empty_like(at), np.empty_like(at)
        runs = self._runs(epoch, int(blocks.min()), int(blocks.max())) if at.size else []
        which = np.searchsorted([run.first for run in runs], blocks, side="right") - 1
        for own in _runs_of(which, np.argsort(which, kind="stable")):
            run = runs[int(which[own[0]])]
            block = np.full_like(own, run.first) if run.key == _LAST else blocks[own]
            offsets = at[own] - block * self._block
            sources[own], draws[own] = self._in_blocks(run, block - run.first + run.number, offsets)
        return sources, draws

    def _in_blocks(
        self, run: _BlockRun, blocks: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers, inverse = np.unique(blocks, return_inverse=True)
        if numbers[-1] - numbers[0] < _NEAR * len(numbers):
            # The draws before all of them are one sum.
            inverse = blocks - numbers[0]
            numbers = np.arange(numbers[0], numbers[-1] + 1)
        bounds = [rule.bounds(numbers) for rule in run.rules]
        before = _befores(run, numbers, bounds)
        sources, draws = np.empty_like(offsets), np.empty_like(offsets)
        start = 0
        for piece, bound in zip(run.pieces, bounds, strict=True):
            stop = start + piece.units * piece.size
            inside = np.flatnonzero((offsets >= start) & (offsets < stop))
            units, at = np.divmod(offsets[inside] - start, piece.size)
            rows = inverse[inside]
            source, rank = self._arranged(run.key, piece, numbers, bound, rows, units)
            sources[inside] = source
            draws[inside] = before[rows, source] + rank * piece.size + at
            before = before + np.diff(bound, axis=1) * piece.size
            start = stop
        return sources, draws

    def _arranged(
        self,
        key: str,
        piece: _BlockPiece,
        numbers: NDArray[np.int64],
        bounds: NDArray[np.int64],
        rows: NDArray[np.int64],
        units: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each unit, and its number among the block's units of this source."""
        if self._mixture.batches == "random" or key == _LAST:
            return self._permuted(key, piece, numbers, bounds, rows, units)
        # Few neighbours are of one source, and the next ones lie far away, so that each rank's part of a batch has its
        # share of each. Some together are made faster than one by one.
        together = _TOGETHER if piece.units >= _TOGETHER**3 else 1
        groups = piece.units // together
        group, at = np.divmod(units, together)
        turned = (group * choose_step(groups) + (numbers[rows] * _TURN + self._seed % _TURN) % groups) % groups
        places = np.where(group < groups, turned * together + at, units)
        sources = _source_of(bounds, rows, places)
        return sources, places - bounds[rows, sources]

    def _permuted(
        self,
        key: str,
        piece: _BlockPiece,
        numbers: NDArray[np.int64],
        bounds: NDArray[np.int64],
        rows: NDArray[np.int64],
        units: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the same as ``_arranged``: sources in random order, and the draws of each in order."""
        sources, ranks = np.empty_like(units), np.empty_like(units)
        every = np.arange(piece.units)
        for part in _runs_of(rows, np.argsort(rows, kind="stable")):
            row = int(rows[part[0]])
            scope = f"mixture {key} {numbers[row]} "
            places = Permutation(piece.units, self._seed, 0, scope).of(every)
            of_unit = _source_of(bounds, np.full_like(places, row), places)
            sorted_units = np.argsort(of_unit, kind="stable")
            rank = np.empty_like(of_unit)
            rank[sorted_units] = every - bounds[row][of_unit[sorted_units]]
            sources[part], ranks[part] = of_unit[units[part]], rank[units[part]]
        return sources, ranks


class _Inner:
    """The endless order of a source."""

    def __init__(self, source: MixedSource, lanes: int) -> None:
        order = source.order
        self._order = order.with_lanes(lanes) if has_lanes(order) else order
        self._source = source
        self._lookups: dict[int, Callable[[NDArray[np.int64]], NDArray[np.int64]]] = {}

    def samples(self, draws: NDArray[np.int64], once: int | None) -> NDArray[np.int64]:
        """Return the sample of each draw; ``once`` is the epoch of all of them, if each epoch starts over."""
        size = self._source.positions
        if once is not None:
            return self._of(once)(draws)
        epochs, at = np.divmod(draws, size)
        found = np.empty_like(draws)
        for part in _runs_of(epochs, np.argsort(epochs, kind="stable")):
            found[part] = self._of(int(epochs[part[0]]))(at[part])
        return found

    def _of(self, epoch: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
        found = self._lookups.get(epoch)
        if found is None:
            source = self._source
            lookup = self._order.epoch(source.samples, source.seed, epoch)
            found = check_lookup(lookup, source.order.identity, source.samples)
            # Another thread may change these, too: list() and pop() are each done at once.
            for old in [*self._lookups][: 1 - _KEPT]:
                self._lookups.pop(old, None)
            self._lookups[epoch] = found
        return found


def drawn_positions(positions: int, batch: int, *, drop: bool) -> int:
    """Return how many of ``positions`` are drawn: all, or with ``drop`` those of complete global batches."""
    return positions - positions % batch if drop else positions


def _befores(run: _BlockRun, numbers: NDArray[np.int64], bounds: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the draws of each source before each of the blocks ``numbers``, which are sorted."""
    if numbers[-1] - numbers[0] + 1 != len(numbers):
        return np.stack([run.before(number) for number in numbers.tolist()])
    found = np.tile(run.before(int(numbers[0])), (len(numbers), 1))
    for piece, bound in zip(run.pieces, bounds, strict=True):
        found[1:] += np.cumsum(np.diff(bound, axis=1)[:-1], axis=0) * piece.size
    return found


def _source_of(bounds: NDArray[np.int64], rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the source whose part of the block (row of ``bounds``) has each place."""
    # One sorted table of all blocks: a row's places begin where those of the row before it end.
    size = int(bounds[0, -1])
    table = (bounds[:, 1:] + np.arange(len(bounds))[:, np.newaxis] * size).ravel()
    found: NDArray[np.int64] = np.searchsorted(table, rows * size + places, side="right") - rows * (bounds.shape[1] - 1)
    return found


def _runs_of(values: NDArray[np.int64], order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the places grouped by equal values; ``order`` sorts ``values``."""
    if not len(values):
        return []
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)
