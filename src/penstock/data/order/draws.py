"""Draws of a mixture's sources at each position of a run, in closed form.

Each source has an endless order: its epochs, one after the other. A run takes draws from the sources in blocks
(``Shares`` divides each), so that any number of blocks from the beginning holds the first draws of every source.
A ``Stage`` is where weights or batches changed: the position, and how many draws each source had given by then.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.data.order.mixture import Shares, choose_step
from penstock.data.order.orders import check_lookup
from penstock.data.order.protocol import LaneOrder
from penstock.data.order.shuffle import MOST, Permutation
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from penstock.data.order.mixture import MixedSource, MixtureSpec
    from penstock.data.order.protocol import Lookup

# Units of a block with random batches, whose sources are permuted: larger than most batches.
_RANDOM = 4096
_KEPT = 4  # lookups of epochs of a source
# The key of the run that ends an epoch in which each source comes once.
_LAST = "once, last"
_TOGETHER = 4
# An odd number, by which the arrangements of neighbouring blocks differ.
_TURN = 1_000_003


class _BlockPiece(NamedTuple):
    """A part of a block: ``units`` units, each of ``size`` neighbouring draws of one source."""

    units: int
    size: int


class _DivisionRule(Protocol):
    """The division of the units of a piece, for blocks of some kind."""

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def before(self, block: int) -> NDArray[np.int64]: ...


class _CountedBlock:
    """A single block whose division is known."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = np.array(counts, dtype=np.int64)

    def bounds(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.tile(np.concatenate(([0], np.cumsum(self._counts))), (len(blocks), 1))

    def before(self, block: int) -> NDArray[np.int64]:
        return self._counts * block


class _BlockRun(NamedTuple):
    """Blocks of an epoch that are divided alike."""

    first: int  # number of the first block in the epoch
    number: int  # number of that block for the rules
    key: str  # name of these blocks for permutations
    pieces: list[_BlockPiece]  # parts of each block
    rules: list[_DivisionRule]  # division of each part
    draws: NDArray[np.int64]  # draws of each source before the first block

    def before(self, number: int) -> NDArray[np.int64]:
        """Return the draws of each source before block ``number`` for the rules."""
        return self.draws + _count_draws(self.pieces, self.rules, self.number, number)


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
        self._inner = [_Inner(source, lanes) for source in mixture.sources]
        # Of the latest two epochs.
        self._kept: dict[int, tuple[list[_BlockRun], NDArray[np.int64]]] = {}

    def lookup(self, epoch: int) -> Lookup:
        return partial(self._samples, epoch, self._begin(epoch), *self._runs(epoch))

    def at(self, epoch: int, position: int) -> tuple[int, ...]:
        """Return the draws of each source before a position between global batches; with ``once``, in this epoch."""
        begin = self._begin(epoch)
        runs, firsts = self._runs(epoch)
        at = position - begin
        if position == self._mixture.total and not self._mixture.once:
            # The end of the last block, whole or not.
            at = -(-self._length(epoch) // self._block) * self._block
        block = at // self._block
        run = runs[int(np.searchsorted(firsts, block, side="right")) - 1]
        if run.key == _LAST:
            block = run.first
        draws = run.before(run.number + block - run.first)
        if at > block * self._block:
            sources, _ = self._drawn_at(begin, runs, firsts, np.arange(begin + block * self._block, position))
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

    def _runs(self, epoch: int) -> tuple[list[_BlockRun], NDArray[np.int64]]:
        """Return the runs of an epoch, and the first block of each."""
        found = self._kept.get(epoch)
        if found is None:
            runs = self._once(epoch) if self._mixture.once else self._endless(epoch)
            found = runs, np.array([run.first for run in runs], dtype=np.int64)
            self._kept = dict([*self._kept.items()][-1:]) | {epoch: found}
        return found

    # An incomplete block at the end of an epoch has rules of its own, so that the shares of all blocks stay exact.

    def _tail(self, rest: int) -> list[_BlockPiece]:
        if self._mixture.batches == "one-source":
            return [_BlockPiece(1, rest)] if rest else []
        return [
            piece
            for piece in (_BlockPiece(rest // self._unit, self._unit), _BlockPiece(rest % self._unit, 1))
            if piece.units
        ]

    def _endless(self, epoch: int) -> list[_BlockRun]:
        full, rest = divmod(self._length(epoch), self._block)
        later = epoch - self._stage.epoch
        number = self._own // self._block + (later - 1) * (self._whole // self._block) if later else 0
        runs: list[_BlockRun] = []
        start = self._since(epoch, self._begin(epoch))
        steps = self._periods
        starts = [step.since for step in steps]
        block = 0
        while block < full:
            after = bisect_right(starts, start + block * self._block)
            step = steps[after - 1]
            stop = min(full, -(-(starts[after] - start) // self._block)) if after < len(starts) else full
            draws = step.draws(number + block, later)
            runs.append(_BlockRun(block, number + block, "block", step.pieces, step.rules, draws))
            block = stop
        if rest:
            step = steps[bisect_right(starts, start + full * self._block) - 1]
            pieces = self._tail(rest)
            rules = _rules(step.weights, pieces)
            tail = max(later - 1, 0)
            key = f"tail {later > 0}"
            runs.append(_BlockRun(full, tail, key, pieces, rules, step.draws(number + full, later)))
        return runs or [_BlockRun(0, 0, "block", [], [], self._base)]

    @cached_property
    def _periods(self) -> list[_Period]:
        """The periods of constant weights since the stage began."""
        return [*self._timeline()]

    def _timeline(self) -> Iterator[_Period]:
        given, block = self._mixture.steps, self._block
        first_full, first_rest = divmod(self._own, block)
        full, rest = divmod(self._whole, block)
        base = self._base
        begun = max(number for number, step in enumerate(given) if step.start <= self._stage.delivered or not number)
        previous: _Period | None = None
        for step in given[begun:]:
            since = max(0, step.start - self._stage.delivered)
            # Blocks and incomplete blocks that begin before it.
            if since <= self._own:
                blocks, tails = min(first_full, -(-since // block)), int(first_full * block < since)
            else:
                epochs, at = divmod(since - self._own, max(1, self._whole))
                blocks = first_full + epochs * full + min(full, -(-at // block))
                tails = 1 + epochs + int(full * block < at)
            draws = base if previous is None else previous.draws(blocks, tails)
            pieces = [_BlockPiece(block // self._unit, self._unit)]
            previous = _Period(
                since, step.weights, pieces, _rules(step.weights, pieces),
                self._tail(first_rest), self._tail(rest), blocks, tails, draws,
            )  # fmt: skip
            yield previous

    def _once(self, epoch: int) -> list[_BlockRun]:
        mixture, stage = self._mixture, self._stage
        weights = mixture.steps[0].weights
        draws = self._base if epoch == stage.epoch else np.zeros_like(self._base)
        sizes = [source.positions if weight else 0 for source, weight in zip(mixture.sources, weights, strict=True)]
        left = np.array(sizes, dtype=np.int64) - draws
        units, rest = np.divmod(left, self._unit)
        pieces = [_BlockPiece(self._block // self._unit, self._unit)]
        count, runs = int(units.sum()) // pieces[0].units, list[_BlockRun]()
        block = 0
        while block < count:
            active = [weight if number else 0 for weight, number in zip(weights, units.tolist(), strict=True)]
            shares = Shares(active, pieces[0].units)
            number = _most_blocks(shares, units, count - block)
            if number:
                runs.append(_BlockRun(block, 0, f"once {block}", pieces, [shares], draws))
            else:
                counts = _cap_division(shares.bounds(np.zeros(1, np.int64))[0], units, active)
                runs.append(_BlockRun(block, 0, f"once {block}", pieces, [_CountedBlock(counts)], draws))
                number = 1
            given = runs[-1].rules[0].before(number)
            units, draws, block = units - given, draws + given * self._unit, block + number
        tail, rules = list[_BlockPiece](), list[_DivisionRule]()
        for each, size in ((units, self._unit), (rest, 1)):
            if each.any():
                tail.append(_BlockPiece(int(each.sum()), size))
                rules.append(_CountedBlock(each.tolist()))
        # Rests of units may add up to more than a block.
        if tail or not runs:
            runs.append(_BlockRun(block, 0, _LAST, tail, rules, draws))
        return runs

    def _samples(
        self, epoch: int, begin: int, runs: list[_BlockRun], firsts: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        sources, draws = self._drawn_at(begin, runs, firsts, positions)
        found = np.empty_like(positions)
        once = epoch if self._mixture.once else None
        by_source = np.argsort(sources, kind="stable")
        for part in _runs_of(sources, by_source):
            number = int(sources[part[0]])
            found[part] = self._bounds[number] + self._inner[number].samples(draws[part], once)
        return found

    def _drawn_at(
        self, begin: int, runs: list[_BlockRun], firsts: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each position, and the number of its draw."""
        at = positions - begin
        if at.size and at.min() < 0:
            raise Unusable(f"positions before {begin} are before the current weights")
        blocks = at // self._block
        sources, draws = np.empty_like(at), np.empty_like(at)
        which = np.searchsorted(firsts, blocks, side="right") - 1
        for own in _runs_of(which, np.argsort(which, kind="stable")):
            run = runs[int(which[own[0]])]
            block = np.full_like(own, run.first) if run.key == _LAST else blocks[own]
            numbers, inverse = np.unique(block - run.first + run.number, return_inverse=True)
            offsets = at[own] - block * self._block
            sources[own], draws[own] = self._in_blocks(run, numbers, inverse, offsets)
        return sources, draws

    def _in_blocks(
        self, run: _BlockRun, numbers: NDArray[np.int64], inverse: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


class _Period(NamedTuple):
    """Constant weights since some position after the stage."""

    since: int  # position, counted from the stage over all epochs
    weights: tuple[Fraction, ...]  # weight of each source
    pieces: list[_BlockPiece]  # parts of a whole block
    rules: list[_DivisionRule]  # division of each part
    first_tail: list[_BlockPiece]  # parts of the incomplete block of the stage's own epoch
    tail: list[_BlockPiece]  # parts of the incomplete block of any later epoch
    blocks: int  # whole blocks before it
    tails: int  # incomplete blocks before it; that of the stage's own epoch counts if it has none
    base: NDArray[np.int64]  # draws of each source before it

    def draws(self, blocks: int, tails: int) -> NDArray[np.int64]:
        """Return the draws of each source before a later block, after these numbers of whole and incomplete blocks."""
        found = self.base + _count_draws(self.pieces, self.rules, self.blocks, blocks)
        if tails and not self.tails:
            found = found + _count_draws(self.first_tail, _rules(self.weights, self.first_tail), 0, 1)
        # Incomplete blocks of later epochs have numbers from 0.
        low, high = max(self.tails - 1, 0), max(tails - 1, 0)
        return found + _count_draws(self.tail, _rules(self.weights, self.tail), low, high)


class _Inner:
    """The endless order of a source."""

    def __init__(self, source: MixedSource, lanes: int) -> None:
        order = source.order
        self._order = order.with_lanes(lanes) if isinstance(order, LaneOrder) else order
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


def _rules(weights: Sequence[Fraction], pieces: Sequence[_BlockPiece]) -> list[_DivisionRule]:
    return [Shares(weights, piece.units) for piece in pieces]


def _count_draws(
    pieces: Sequence[_BlockPiece], rules: Sequence[_DivisionRule], start: int, stop: int
) -> NDArray[np.int64] | int:
    if start == stop:
        return 0
    return sum((rule.before(stop) - rule.before(start)) * piece.size for piece, rule in zip(pieces, rules, strict=True))


def _befores(run: _BlockRun, numbers: NDArray[np.int64], bounds: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the draws of each source before each of the blocks ``numbers``, which are sorted."""
    if not len(numbers):
        return np.zeros((0, len(run.draws)), dtype=np.int64)
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


def _most_blocks(shares: Shares, left: NDArray[np.int64], most: int) -> int:
    """Return the largest number of blocks, up to ``most``, for which all sources have enough units left."""

    def fits(number: int) -> bool:
        return bool((shares.before(number) <= left).all())

    # Near the estimate by targets; rounding moves it by few draws.
    guess = min(most, int((left / np.maximum(shares.targets, 1e-300)).min()))
    reach = 8
    while True:
        low, high = max(0, guess - reach), min(most, guess + reach)
        if (not low or fits(low)) and (high == most or not fits(high)):
            break
        reach *= 4
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _cap_division(bounds: NDArray[np.int64], left: NDArray[np.int64], weights: Sequence[Fraction | int]) -> list[int]:
    """Return a block's division in which no source gives more units than are left; other sources fill in."""
    size = int(bounds[-1])
    counts = np.minimum(np.diff(bounds), left)
    while missing := size - int(counts.sum()):
        able = [weight if more else 0 for weight, more in zip(weights, (left > counts).tolist(), strict=True)]
        more = np.diff(Shares(able, missing).bounds(np.zeros(1, np.int64))[0])
        counts = np.minimum(counts + more, left)
    found: list[int] = counts.tolist()
    return found
