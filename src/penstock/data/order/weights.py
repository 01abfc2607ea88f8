"""Weights of a mixture's sources: given, by temperature or by repeats, and changing over a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from numbers import Rational, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.errors import Unusable
from penstock.values import switch, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    Weights: TypeAlias = "Mapping[str, float] | Schedule"

# Steps of constant weights between two stages of a linear schedule.
_PIECES = 256
_PAIR = 2


class WeightStep(NamedTuple):
    """Weights that hold from some sample of the run on."""

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
        Unusable: There is no stage, a position is smaller than the one before it, or weights are not valid or of
            other sources than those of the first stage.

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
            raise Unusable(f"a Schedule takes stages such as [(0, {{…}}), (200_000, {{…}})], got {given!r}")
        kept: list[tuple[int, Mapping[str, float]]] = []
        for stage in given:
            if not isinstance(stage, Sequence) or len(stage) != _PAIR or not isinstance(stage[1], Mapping):
                raise Unusable(f"a stage is a position and weights, (200_000, {{…}}), got {stage!r}")
            kept.append((whole(stage[0], "the position of a stage", 0), dict(stage[1])))
        positions = [position for position, _ in kept]
        if positions[0] or positions != sorted(positions):
            raise Unusable(f"the positions of a Schedule begin at 0 and do not fall, got {positions}")
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
    """Return weights n ** temperature for sources of n samples: 1 is in proportion, 0 is all alike."""
    if type(temperature) is bool or not isinstance(temperature, Real) or not 0 <= float(temperature) <= 1:
        raise Unusable(f"temperature must be a number from 0 (sources alike) to 1 (by size), got {temperature!r}")
    return {name: float(size) ** float(temperature) if size else 0 for name, size in sizes.items()}


def by_repeats(repeats: object, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return weights with which sources come as often in an epoch as ``repeats`` says, 1 for those it does not name."""
    if not isinstance(repeats, Mapping):
        raise Unusable(f"repeats must be a mapping from sources to numbers, such as {{'docs': 4}}, got {repeats!r}")
    if unknown := [name for name in repeats if name not in sizes]:
        raise Unusable(f"repeats names {unknown[0]!r}, which is no source: there are {', '.join(map(repr, sizes))}")
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
            raise Unusable(f"weights names {name!r}, which is no {kind}: there are {', '.join(map(repr, names))}")
    found = [_parse_weight(name, weights[name], "weights") for name in names]
    if not (total := sum(found)):
        raise Unusable("weights must not all be 0")
    return tuple(each / total for each in found)


def _parse_weight(name: str, value: object, of: str) -> Fraction:
    valid = type(value) is not bool and isinstance(value, Real)
    if not valid or not math.isfinite(float(value)) or float(value) < 0:  # type: ignore[arg-type]
        raise Unusable(f"{of}[{name!r}] must be a number that is 0 or more, got {value!r}")
    return Fraction(value) if isinstance(value, Rational) else Fraction(float(value))  # type: ignore[arg-type]
