"""Mixtures: weights of their sources, where in the run the present ones began to hold, and shares of each block.

Weights are given, by temperature or by repeats, and may change over a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, gcd, isfinite
from numbers import Rational, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order

    Weights: TypeAlias = "Mapping[str, float] | Schedule"

# Steps of constant weights between two stages of a linear schedule.
_PIECES = 256
_PAIR = 2
# Targets are kept in units of 2^-40 draws, in 64-bit integers.
_BITS = 40
_ONE = 1 << _BITS
MOST_DRAWS = 1 << 22  # of a block
# The golden ratio's fractional part in these units; odd, so that 2^40 blocks have different numbers.
_STEP = 679535556991
_FIRST = _ONE // 2


class WeightStep(NamedTuple):
    """Weights that apply from a given sample of the run."""

    start: int  # number of the run's first sample with these weights, over all ranks
    weights: tuple[Fraction, ...]  # weight of each source, which sum up to 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weights of a mixture that change during a run, for ``weights=`` of ``ps.Mix``.

    Between two stages the weights change linearly, in up to 256 equal steps. Two stages at the same position make a
    sudden change. The last stage holds to the end of the run.

    Attributes:
        stages: Pairs of a position and weights. A position is a number of samples that the run has delivered over all
            ranks and epochs: batch size times ranks times steps of training, less what the last batches of epochs lack
            or repeat. The first is 0.
        linear: Whether weights change linearly between stages; False: each stage holds until the next begins.

    Raises:
        Unusable: ``stages`` is empty, positions decrease, weights are invalid, or a stage has other sources than the
            first one.

    Example:
        >>> schedule = ps.order.Schedule([(0, {"web": 9, "code": 1}), (200_000, {"web": 1, "code": 1})])
        >>> schedule.weights_at(100_000)
        {'web': 0.7, 'code': 0.3}
    """

    stages: Sequence[tuple[int, Mapping[str, float]]]
    linear: bool = True

    def __post_init__(self) -> None:
        switch(self.linear, "linear of a Schedule")
        given: Any = self.stages
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence) or not given:
            raise Unusable(f"stages must be a list such as [(0, {{…}}), (200_000, {{…}})], got {given!r}")
        kept: list[tuple[int, Mapping[str, float]]] = []
        for stage in given:
            if not isinstance(stage, Sequence) or len(stage) != _PAIR or not isinstance(stage[1], Mapping):
                raise Unusable(f"a stage must be a position and weights, such as (200_000, {{…}}), got {stage!r}")
            kept.append((whole(stage[0], "the position of a stage", 0), dict(stage[1])))
        positions = [position for position, _ in kept]
        if positions[0] or positions != sorted(positions):
            raise Unusable(f"the positions of a Schedule must begin at 0 and not decrease, got {positions}")
        for _, weights in kept:
            _normalize_weights(weights, [*kept[0][1]])
        object.__setattr__(self, "stages", tuple(kept))

    def weights_at(self, position: int) -> dict[str, float]:
        """Return the weights, which sum up to 1, after ``position`` samples of the run.

        Args:
            position: Number of samples that the run has delivered, over all ranks.
        """
        names = [*self.stages[0][1]]
        found = [step for step in self.steps(names) if step.start <= whole(position, "position", 0)][-1]
        return {name: float(weight) for name, weight in zip(names, found.weights, strict=True)}

    def steps(self, names: Sequence[str]) -> tuple[WeightStep, ...]:
        """Return the weights of the sources, in the order of ``names``, as steps in order of their positions.

        Args:
            names: Names of the sources.

        Raises:
            Unusable: A stage does not have a valid weight for each source, or has others.
        """
        stages = [WeightStep(position, _normalize_weights(weights, names)) for position, weights in self.stages]
        found = [stages[0]]
        for first, last in pairwise(stages):
            found += self._between(first, last)
            found.append(last)
        return tuple(found)

    def _between(self, first: WeightStep, last: WeightStep) -> Iterator[WeightStep]:
        length = last.start - first.start
        pieces = min(_PIECES, length) if self.linear and first.weights != last.weights else 1
        for piece in range(1, pieces):
            part = Fraction(piece, pieces)
            weights = tuple(a + (b - a) * part for a, b in zip(first.weights, last.weights, strict=True))
            yield WeightStep(first.start + length * piece // pieces, weights)


def steps_of(weights: object, names: Sequence[str], kind: str = "source") -> tuple[WeightStep, ...]:
    """Return the steps of ``weights``, a mapping or a ``Schedule``, for ``names``, which errors call ``kind``."""
    if isinstance(weights, Schedule):
        return weights.steps(names)
    if not isinstance(weights, Mapping):
        raise Unusable(f"weights must be a mapping from sources to weights, or a ps.order.Schedule, got {weights!r}")
    return (WeightStep(0, _normalize_weights(weights, names, kind)),)


def by_temperature(temperature: object, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return weights n ** temperature for sources of n samples: 1 is proportional, 0 is equal."""
    if type(temperature) is bool or not isinstance(temperature, Real) or not 0 <= float(temperature) <= 1:
        raise Unusable(f"temperature must be a number from 0 (sources alike) to 1 (by size), got {temperature!r}")
    return {name: float(size) ** float(temperature) if size else 0 for name, size in sizes.items()}


def by_repeats(repeats: object, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return weights that repeat each source in an epoch as ``repeats`` says; default: once."""
    if not isinstance(repeats, Mapping):
        raise Unusable(f"repeats must be a mapping from sources to numbers, such as {{'docs': 4}}, got {repeats!r}")
    if unknown := [name for name in repeats if name not in sizes]:
        raise Unusable(f"repeats: unknown source {unknown[0]!r}; sources are {', '.join(map(repr, sizes))}")
    return {name: size * _parse_weight(name, repeats.get(name, 1), "repeats") for name, size in sizes.items()}


def _normalize_weights(
    weights: Mapping[str, float], names: Sequence[str], kind: str = "source"
) -> tuple[Fraction, ...]:
    """Return the weight of each source, divided by the sum."""
    for name in names:
        if name not in weights:
            raise Unusable(f"weights lacks the {kind} {name!r}: give each {kind} one, 0 to leave it out")
    for name in weights:
        if name not in names:
            raise Unusable(f"weights: unknown {kind} {name!r}; known: {', '.join(map(repr, names))}")
    found = [_parse_weight(name, weights[name], "weights") for name in names]
    if not (total := sum(found)):
        raise Unusable("weights must not all be 0")
    return tuple(each / total for each in found)


def _parse_weight(name: str, value: object, of: str) -> Fraction:
    valid = type(value) is not bool and isinstance(value, Real)
    if not valid or not isfinite(float(value)) or float(value) < 0:  # type: ignore[arg-type]
        raise Unusable(f"{of}[{name!r}] must be a number that is 0 or more, got {value!r}")
    return Fraction(value) if isinstance(value, Rational) else Fraction(float(value))  # type: ignore[arg-type]


Batches = Literal["stratified", "random", "one-source"]
Ends = Literal["longest", "shortest", "once"]


class MixedSource(NamedTuple):
    """A source of a mixture."""

    name: str
    samples: int  # number of its samples
    positions: int  # number of positions of its epoch; for a permutation, the number of samples
    order: Order
    seed: int
    digest: str  # eight hexadecimal digits that identify its samples and their order


class MixtureStage(NamedTuple):
    """A point of the run from which blocks are counted."""

    epoch: int = 0  # epoch in which it begins
    position: int = 0  # position in that epoch
    delivered: int = 0  # samples of the run before it, over all epochs
    # Draws that each source had given before it; () for none. With ``ends="once"``, of this epoch.
    draws: tuple[int, ...] = ()
    # Digest and draws of sources removed from the mixture, by name.
    parked: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSpec:
    """Arguments of a mixture, with which ``Draws`` computes. A sample's number counts through all sources in order."""

    sources: tuple[MixedSource, ...]
    steps: tuple[WeightStep, ...]  # their weights during the run
    # The length of an epoch: until each source has come once ("longest") or the first one has ("shortest"), both by
    # the weights, or with each source once and the others going on without it ("once").
    ends: Ends = "longest"
    batches: Batches = "stratified"  # how the batches are composed
    epoch_samples: int | None = None  # positions of an epoch; None: by ``ends``
    # Where the blocks begin.
    stage: MixtureStage = MixtureStage()  # noqa: RUF009  a tuple
    total: int = field(init=False)  # positions of an epoch

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.epoch_samples or self._length())

    def _length(self) -> int:
        pairs = zip(self.sources, self.steps[0].weights, strict=True)
        sizes = [(source.positions, weight) for source, weight in pairs if weight]
        if self.ends == "once":
            return sum(size for size, _ in sizes)
        lengths = [size / weight for size, weight in sizes]
        return max(1, floor(min(lengths))) if self.ends == "shortest" else ceil(max(lengths))

    @property
    def once(self) -> bool:
        return self.ends == "once"

    @property
    def identity(self) -> str:
        """The text that a state holds: sources and weights may differ, and are compared by the plan."""
        return f"mixture 1: {self.batches}{', once' if self.once else ''}"

    @property
    def samples(self) -> int:
        return sum(source.samples for source in self.sources)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify sources, weights and the length of an epoch."""
        steps = [[step.start, *map(str, step.weights)] for step in self.steps]
        text = json.dumps([[[each.name, each.digest] for each in self.sources], steps, self.total])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def positions(self, samples: int) -> int:  # noqa: ARG002  part of the contract of orders
        return self.total


class Shares:
    """The draws of each source in a block, and in all blocks before it, in closed form. Blocks have equal sizes.

    A block is divided by systematic sampling: each source has a target, its weight times the draws of the block, and
    the running totals of the targets are rounded down after the same number in [0, 1) was added to all of them. So
    every source gets its target rounded up or down, and the sum is exact. For block k the number is the fractional part
    of k times the golden ratio, whose values fill [0, 1) as evenly as any sequence's, so what rounding gives or takes
    does not add up: over millions of blocks a source is within a few draws of its weight.
    """

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
