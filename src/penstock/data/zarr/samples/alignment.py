"""Alignment of several arrays: elements with equal coordinates belong together. Pure."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.samples.extraction import integers_of
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_NUMBERS = "iufMm"  # kinds of dtypes
# Fraction of the usual distance between neighbours: the lengths of months differ by less.
_TOLERANCE = 1 / 8
# Fraction of the usual distance: for times that were computed in two ways.
_ROUNDING = 1e-6
# Fraction of the steps within stores that are usual, where a gap between stores is an error.
_EVEN = 0.9
# Fraction of a step: coordinates of float32 beside those of float64.
_PLACE = 1e-2
_TURN = 360  # degrees
_WORDS = (
    'align="coordinates" pairs equal times and leaves out samples over gaps; align="index" takes elements by their '
    "number, whatever their times are"
)


def shown(value: Any) -> str:  # noqa: ANN401  datetime64, a date of cftime, or a number
    """Return a value of a coordinate as text: a date without the zeros of its nanoseconds."""
    return str(np.datetime_as_string(value, unit="auto")) if isinstance(value, np.datetime64) else str(value)


class Coordinate(NamedTuple):
    """Coordinate of an array along one dimension: values, their unit for errors (may be empty), and URL."""

    values: NDArray[Any]
    unit: str
    url: str

    @property
    def shown(self) -> str:
        """First and last value, as text."""
        return f"{shown(self.values[0])} to {self.at(-1)}" if len(self.values) else "no values"

    def at(self, element: int) -> str:
        """Return a value with its unit, for errors."""
        unit = self.unit if self.unit.isprintable() else repr(self.unit)  # text of the store, shown on a terminal
        return f"{shown(self.values[element])} {unit}".rstrip()


class Times(NamedTuple):
    """Times along a dimension whose elements are paired by their index; ``others`` differ from the first."""

    first: Coordinate
    others: tuple[Coordinate, ...] = ()


class Alignment(NamedTuple):
    """Common elements of arrays along some dimensions.

    ``values`` are the common coordinates by dimension, in the order of the first array; ``elements`` those of each
    array that have them. ``times`` check elements that are paired by their index, and are not kept.
    """

    values: Mapping[str, NDArray[Any]]
    elements: tuple[Mapping[str, Sequence[int]], ...]
    words: tuple[str, ...]
    times: Mapping[str, Times] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes that are kept: values, and element numbers that are not a range, here and in the cuts of arrays."""
        numbers = (len(some) for each in self.elements for some in each.values() if not isinstance(some, range))
        return sum(each.nbytes for each in self.values.values()) + 16 * sum(numbers)


def align(coordinates: Sequence[Mapping[str, Coordinate]]) -> Alignment:
    """Return the alignment of arrays, from the coordinates of each by dimension."""
    values: dict[str, NDArray[Any]] = {}
    elements: list[dict[str, Sequence[int]]] = [{} for _ in coordinates]
    words = []
    for dimension in dict.fromkeys(name for each in coordinates for name in each):
        of = {number: each[dimension] for number, each in enumerate(coordinates) if dimension in each}
        common = values[dimension] = _common(dimension, [*of.values()])
        for number, each in of.items():
            elements[number][dimension] = _find_indices(_require_sorted(dimension, each, common.dtype), common)
        counts = ", ".join(dict.fromkeys(f"{len(each.values):,} ({each.shown})" for each in of.values()))
        words.append(f"{dimension}: {len(common):,} common coordinates of {counts}")
    return Alignment(values, tuple(elements), tuple(words))


def _common(dimension: str, of: Sequence[Coordinate]) -> NDArray[Any]:
    """Return the values that all coordinates contain, in the order of the first."""
    try:
        dtype = np.result_type(*(each.values.dtype for each in of))
    except TypeError:
        dtype = np.dtype(object)
    found = first = _require_sorted(dimension, of[0], dtype)
    for each in of[1:]:
        other = _require_sorted(dimension, each, dtype)
        if not np.array_equal(found, other):
            found = np.intersect1d(found, other, assume_unique=True)
    if not len(found):
        ranges = "; ".join(f"{each.url}: {each.shown}" for each in of)
        raise Unusable(f"the arrays have no coordinate along {dimension!r} in common: {ranges}")
    descends = len(first) > 1 and first[0] > first[-1]
    return found[::-1] if descends and len(found) > 1 and found[0] < found[-1] else found


def _require_sorted(dimension: str, coordinate: Coordinate, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values in a type; raise unless they ascend or descend strictly."""
    where = f"the coordinate {dimension!r} of {coordinate.url}"
    if coordinate.values.dtype.kind not in _NUMBERS or dtype.kind not in _NUMBERS:
        raise Unusable(f"{where} has values of {coordinate.values.dtype}, but must have numbers or times")
    with np.errstate(invalid="ignore"):  # values that the type cannot hold
        values = coordinate.values.astype(dtype)
        back = values.astype(coordinate.values.dtype)
    if dtype.kind in "fMm" and not (values == values).all():  # noqa: PLR0124  NaN, and NaT
        raise Unusable(f"{where} has missing values (NaN): each element needs a coordinate")
    if (changed := back != coordinate.values).any():
        at = int(np.argmax(changed))
        raise Unusable(
            f"{where} has values of {coordinate.values.dtype} that {dtype} cannot hold, in which they are "
            f"compared: {coordinate.values[at]} (element {at}); store the coordinates as one type"
        )
    ascends, descends = values[1:] > values[:-1], values[1:] < values[:-1]
    if ascends.all() or descends.all():
        return values
    at = int(np.argmin(ascends if ascends.sum() >= descends.sum() else descends))
    what = "has a value twice" if values[at] == values[at + 1] else "neither ascends nor descends"
    raise Unusable(f"{where} {what}: {coordinate.values[at]}, {coordinate.values[at + 1]} (elements {at} and {at + 1})")


def _find_indices(values: NDArray[Any], common: NDArray[Any]) -> Sequence[int]:
    if len(values) > 1 and values[0] > values[-1]:
        return elements_of(len(values) - 1 - np.searchsorted(values[::-1], common), range(len(common)))
    return elements_of(np.searchsorted(values, common), range(len(common)))


def elements_of(
    elements: Sequence[int] | NDArray[np.int64], chosen: Sequence[int] | NDArray[np.int64]
) -> Sequence[int]:
    """Return the chosen elements, as a range if possible."""
    if isinstance(elements, range) and isinstance(chosen, range):
        return range(
            elements.start + chosen.start * elements.step,
            elements.start + chosen.stop * elements.step,
            elements.step * chosen.step,
        )
    found = integers_of(elements)[integers_of(chosen)]
    steps = np.diff(found)
    if len(found) == 1:
        return range(int(found[0]), int(found[0]) + 1)
    step = int(steps[0])
    if step and (steps == step).all():
        return range(int(found[0]), int(found[-1]) + (1 if step > 0 else -1), step)
    # A fifth of a tuple's memory, and NumPy reads it without a copy.
    return array("q", found.tobytes())


def times_along(coordinates: Sequence[Coordinate]) -> Times:
    """Return the times of arrays along a dimension; all coordinates have the same length."""
    first, *others = coordinates
    return Times(first, tuple(each for each in others if _differs(first, each).any()))


def _differs(one: Coordinate, other: Coordinate) -> NDArray[np.bool_]:
    """Return a mask of the elements at which two coordinates differ."""
    dtype = np.result_type(one.values.dtype, other.values.dtype)
    here, there = one.values.astype(dtype), other.values.astype(dtype)
    if dtype.kind != "f":
        return np.asarray(here != there)
    steps = np.abs(np.diff(here))
    usual = float(np.median(steps)) if len(steps) else 0.0
    return np.asarray(~(np.abs(here - there) <= _ROUNDING * usual))  # NaN differs


def check_times(
    name: str, times: Times, chosen: NDArray[np.int64], positions: NDArray[np.int64], offsets: Sequence[int]
) -> None:
    """Raise for samples that, by their index alone, would pair different times or reach over a gap.

    ``positions`` of samples count the ``chosen`` elements; ``offsets`` are the elements that samples take from there.
    """
    for other in times.others:
        wrong = _differs(times.first, other)[chosen]
        for offset in offsets:
            if (at := positions[wrong[positions + offset]]).size:
                element = int(chosen[at[0] + offset])
                raise Unusable(
                    f"the arrays have different times along {name!r}: element {element} is {times.first.at(element)} "
                    f"in {times.first.url} and {other.at(element)} in {other.url}; {_WORDS}"
                )
    reach = min(offsets), max(offsets)
    values = times.first.values[chosen]
    broken = positions[~unbroken(values, positions, reach)]
    if broken.size:
        first = int(broken[0]) + min(0, reach[0])
        some = chosen[first : int(broken[0]) + max(0, reach[1]) + 1].tolist()
        raise Unusable(
            f"a sample with offsets {reach[0]} to {reach[1]} reaches over a gap along {name!r}: elements {some[0]} to "
            f"{some[-1]} are {times.first.at(some[0])} to {times.first.at(some[-1])} in {times.first.url}, and other "
            f"steps are {np.sort(np.diff(values))[(len(values) - 1) // 2]}; {_WORDS}"
        )


def check_order(name: str, parts: Sequence[Coordinate], *, gaps: bool) -> None:
    """Raise for stores whose coordinates do not continue each other; with ``gaps``, steps between them may be longer.

    Values that are not numbers, or have no order within a store, are not checked.
    """
    some = [each for each in parts if len(each.values)]
    if len(some) < 2 or any(each.values.dtype.kind not in _NUMBERS for each in some):  # noqa: PLR2004  neighbours
        return
    steps = _distances(np.concatenate([each.values for each in some]))
    borders = np.cumsum([len(each.values) for each in some])[:-1] - 1
    within = np.delete(steps, borders)
    usual = np.median(within if len(within) else steps)
    if not usual or not (within * np.sign(usual) > 0).all():
        return
    even = abs(within - usual) <= _TOLERANCE * abs(usual)
    # Between observations at odd times there is no usual step.
    is_even = not len(within) or even.mean() > _EVEN
    for (before, after), step in zip(pairwise(some), steps[borders].tolist(), strict=True):
        where = f"{before.url} ends at {before.at(-1)}, and {after.url} begins at {after.at(0)}"
        if step * usual <= 0:
            raise Unusable(
                f"the stores overlap along {name!r}, or are in the wrong order: {where}; pass them in order, without "
                'duplicate elements; align="index" takes all elements, in the order of the stores'
            )
        if is_even and not gaps and abs(step - usual) > _TOLERANCE * abs(usual):
            raise Unusable(
                f"there is a gap along {name!r}: {where}, where other steps are {_step(usual, before.values.dtype)}; "
                'align="coordinates" leaves out samples that would reach over it; align="index" takes elements by '
                "their number"
            )


def check_equal(name: str, parts: Sequence[Coordinate]) -> None:
    """Raise for stores whose coordinates along a dimension differ: their grids differ."""
    for other in parts[1:]:
        if not np.array_equal(parts[0].values, other.values):
            raise Unusable(
                f"the stores have different grids: {name!r} is {parts[0].shown} in {parts[0].url} and {other.shown} in "
                f'{other.url}; align="index" joins them by element number'
            )


def _step(distance: float, dtype: np.dtype[Any]) -> str:
    """Return a distance as text: a duration between times, and a number otherwise."""
    if dtype.kind != "M":
        return f"{distance:g}"
    step = np.array(round(distance), dtype=dtype.str.replace("M8", "m8"))
    return str(step.astype("m8[us]").item())


def _distances(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between neighbours; also of a descending coordinate of unsigned integers."""
    return np.diff(values.astype(np.float64 if values.dtype.kind == "f" else np.int64))


def check_nested(name: str, coarse: Coordinate, fine: Coordinate, factor: int) -> None:
    """Raise unless ``factor`` elements of a coordinate are in each element of another, as mean or first value."""
    count = min(len(coarse.values), len(fine.values) // factor)
    wanted, found = coarse.values[:count].astype(np.float64), fine.values[: count * factor].astype(np.float64)
    steps = np.abs(np.diff(fine.values.astype(np.float64)))
    room = _PLACE * float(np.median(steps)) if len(steps) else 0.0
    means = found.reshape(count, factor).mean(axis=1)
    wrong = [~(np.abs(each - wanted) <= room) for each in (means, found[::factor])]  # NaN differs
    if all(each.any() for each in wrong):
        at = int(np.argmax(wrong[1]))
        raise Unusable(
            f"patches at the same elements are in different places along {name!r}: element {at} is {coarse.at(at)} in "
            f"{coarse.url}, and element {at * factor} is {fine.at(at * factor)} in {fine.url}; store both in one order "
            f'and on nested grids, or accept this with align="index"'
        )


def check_direction(name: str, one: Coordinate, other: Coordinate) -> None:
    """Raise for coordinates with the same places in another order: reversed, or from another meridian.

    Other places are the user's choice, and these are not.
    """
    if np.allclose(one.values, other.values):
        return
    ours, theirs = (each.values % _TURN for each in (one, other))
    how = ""
    if np.allclose(one.values, other.values[::-1]):
        how, mend = "have opposite directions", "flip"
    # Longitudes from 0 to 360, and from -180 to 180; metres go on beyond a turn.
    elif (
        max(np.ptp(one.values), np.ptp(other.values)) <= _TURN
        and np.allclose(np.sort(ours), np.sort(theirs))
        and not np.allclose(ours, theirs)
    ):
        how, mend = "begin at different meridians", "roll"
    if how:
        raise Unusable(
            f"the arrays {how} along {name!r}: {one.shown} in {one.url} and {other.shown} in {other.url}; store both "
            f'in one order, or {mend} one by transform= and pass align="index"'
        )


def unbroken(
    values: NDArray[Any], positions: Sequence[int] | NDArray[np.int64], reach: tuple[int, int]
) -> NDArray[np.bool_]:
    """Return a mask of the positions whose sample does not reach over a gap of the coordinate.

    A gap is a distance between neighbours that differs from the usual one, the median, by more than an eighth.
    """
    first, last = min(0, reach[0]), max(0, reach[1])
    distances = _distances(values)
    if first == last or not len(distances):
        return np.ones(len(positions), dtype=bool)
    usual = np.median(distances)
    # NaN counts as a gap.
    gaps = np.concatenate(([0], np.cumsum(~(np.abs(distances - usual) <= _TOLERANCE * abs(usual)))))
    at = integers_of(positions)
    none: NDArray[np.bool_] = gaps[at + last] == gaps[at + first]
    return none
