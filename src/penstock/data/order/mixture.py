"""Mixtures: weights of their sources, and where in the run the present ones began to hold.

Weights are given, by temperature or by repeats, and may change over a run.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, fsum, inf
from numbers import Rational, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.order.protocol import Order

    Weights: TypeAlias = "Mapping[str, float] | Schedule"

_PAIR = 2


class WeightStep(NamedTuple):
    """Weights at a sample of the run, from which they change linearly to those of the next step."""

    start: int  # number of the sample, over all ranks
    weights: tuple[Rational | float, ...]  # weight of each source, of which only the proportion counts


class WeightCurve:
    """The weights of the sources at any sample of a run; those of the last step hold to its end."""

    def __init__(self, steps: Sequence[WeightStep]) -> None:
        self.starts = [step.start for step in steps]
        given = np.array([step.weights for step in steps], dtype=np.float64)
        # A power of two changes no digit, and keeps sums within the range of float64.
        given = np.ldexp(given, -np.frexp(given.max(axis=1))[1][:, np.newaxis])
        # Weights of each step, which sum up to 1: float64, shape (steps, sources).
        self.table = given / np.array([fsum(row) for row in given.tolist()])[:, np.newaxis]

    def at(self, positions: Sequence[int]) -> NDArray[np.float64]:
        """Return the weights, which sum up to 1, after so many samples: float64, shape (positions, sources)."""
        numbers = [bisect_right(self.starts, position) - 1 for position in positions]
        after = [min(number + 1, len(self.starts) - 1) for number in numbers]
        begun, ended = ([self.starts[number] for number in each] for each in (numbers, after))
        rows = zip(positions, begun, ended, strict=True)
        parts = [(position - begin) / (end - begin) if end > begin else 0.0 for position, begin, end in rows]
        part = np.array(parts)[:, np.newaxis]
        found: NDArray[np.float64] = self.table[numbers] * (1 - part) + self.table[after] * part
        return found


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weights of a mixture that change during a run, for ``weights=`` of ``ps.Mix``.

    Between two stages the weights change linearly, from each global batch to the next. Two stages at the same position
    make a sudden change. The last stage holds to the end of the run. A batch takes as long with a thousand stages as
    with two.

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
            _parse_weights(weights, [*kept[0][1]])
        object.__setattr__(self, "stages", tuple(kept))

    def weights_at(self, position: int) -> dict[str, float]:
        """Return the weights, which sum up to 1, after ``position`` samples of the run.

        Args:
            position: Number of samples that the run has delivered, over all ranks.
        """
        names = [*self.stages[0][1]]
        found = WeightCurve(self.steps(names)).at([whole(position, "position", 0)])
        return dict(zip(names, found[0].tolist(), strict=True))

    def steps(self, names: Sequence[str]) -> tuple[WeightStep, ...]:
        """Return the weights of the sources, in the order of ``names``, as steps in order of their positions.

        Args:
            names: Names of the sources.

        Raises:
            Unusable: A stage does not have a valid weight for each source, or has others.
        """
        found: list[WeightStep] = []
        for position, weights in self.stages:
            if found and not self.linear:
                found.append(found[-1]._replace(start=position))
            found.append(WeightStep(position, _parse_weights(weights, names)))
        return tuple(found)


def steps_of(weights: object, names: Sequence[str], kind: str = "source") -> tuple[WeightStep, ...]:
    """Return the steps of ``weights``, a mapping or a ``Schedule``, for ``names``, which errors call ``kind``."""
    if isinstance(weights, Schedule):
        return weights.steps(names)
    if not isinstance(weights, Mapping):
        raise Unusable(f"weights must be a mapping from sources to weights, or a ps.order.Schedule, got {weights!r}")
    return (WeightStep(0, _parse_weights(weights, names, kind)),)


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
    return {name: size * Fraction(_parse_weight(name, repeats.get(name, 1), "repeats")) for name, size in sizes.items()}


def _parse_weights(
    weights: Mapping[str, float], names: Sequence[str], kind: str = "source"
) -> tuple[Rational | float, ...]:
    """Return the weight of each source as it is given."""
    if weights.keys() != {*names}:
        for name in names:
            if name not in weights:
                raise Unusable(f"weights lacks the {kind} {name!r}: give each {kind} one, 0 to leave it out")
        for name in weights:
            if name not in names:
                raise Unusable(f"weights: unknown {kind} {name!r}; known: {', '.join(map(repr, names))}")
    found = tuple(_parse_weight(name, weights[name], "weights") for name in names)
    if not any(found):
        raise Unusable("weights must not all be 0")
    return found


def _parse_weight(name: str, value: object, of: str) -> Rational | float:
    if type(value) is bool or not isinstance(value, Real) or not 0 <= float(value) < inf:
        raise Unusable(f"{of}[{name!r}] must be a number that is 0 or more, got {value!r}")
    return value if isinstance(value, Rational) else float(value)


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
        total = sum(Fraction(weight) for _, weight in sizes)
        lengths = [size * total / Fraction(weight) for size, weight in sizes]
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
        curve = WeightCurve(self.steps)
        text = json.dumps([[[each.name, each.digest] for each in self.sources], curve.starts, self.total])
        weights = curve.table.astype("<f8").tobytes()
        return hashlib.sha256(text.encode("utf-8", "surrogatepass") + weights).hexdigest()[:16]

    def positions(self, samples: int) -> int:  # noqa: ARG002  part of the contract of orders
        return self.total
