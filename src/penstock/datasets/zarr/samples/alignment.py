"""Which elements of several arrays belong together: those that have the same coordinate. Pure."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Alignment", "Coordinate", "align", "elements_of", "unbroken"]

_NUMBERS = "iufMm"  # kinds of dtypes
_TOLERANCE = 1 / 8  # of the usual distance between neighbours: months differ by less


class Coordinate(NamedTuple):
    """The coordinate of an array along one dimension.

    Attributes:
        values: One for each element.
        unit: Of them, for errors; may be empty.
        url: Where they lie.

    """

    values: NDArray[Any]
    unit: str
    url: str

    @property
    def shown(self) -> str:
        """The first and the last value."""
        unit = self.unit if self.unit.isprintable() else repr(self.unit)  # the store's text, for a terminal
        return f"{self.values[0]} to {self.values[-1]} {unit}".rstrip() if len(self.values) else "no values"


class Alignment(NamedTuple):
    """What arrays have in common along some dimensions.

    Attributes:
        values: The common coordinates of each dimension, in the order of the first array.
        elements: Of each array, in their order: its elements that have these coordinates, by dimension.
        words: What was found, a line for each dimension.

    """

    values: Mapping[str, NDArray[Any]]
    elements: tuple[Mapping[str, Sequence[int]], ...]
    words: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """What is kept of them: values, and numbers of elements that are no range, here and in what cuts arrays."""
        numbers = (len(some) for each in self.elements for some in each.values() if not isinstance(some, range))
        return sum(each.nbytes for each in self.values.values()) + 16 * sum(numbers)


def align(coordinates: Sequence[Mapping[str, Coordinate]]) -> Alignment:
    """Return what arrays have in common, of the coordinates that each has by dimension.

    Raises:
        Unusable: Coordinates that are no numbers, have gaps in themselves (NaN), are not sorted or come twice, or that
            the type in which they are compared cannot hold; arrays that have none in common.

    """
    values: dict[str, NDArray[Any]] = {}
    elements: list[dict[str, Sequence[int]]] = [{} for _ in coordinates]
    words = []
    for dimension in dict.fromkeys(name for each in coordinates for name in each):
        of = {number: each[dimension] for number, each in enumerate(coordinates) if dimension in each}
        common = values[dimension] = _common(dimension, [*of.values()])
        for number, each in of.items():
            elements[number][dimension] = _found(_sorted(dimension, each, common.dtype), common)
        counts = ", ".join(dict.fromkeys(f"{len(each.values):,} ({each.shown})" for each in of.values()))
        words.append(f"{dimension}: {len(common):,} common coordinates of {counts}")
    return Alignment(values, tuple(elements), tuple(words))


def _common(dimension: str, of: Sequence[Coordinate]) -> NDArray[Any]:
    """Return the values that all have, in the order of the first."""
    try:
        dtype = np.result_type(*(each.values.dtype for each in of))
    except TypeError:
        dtype = np.dtype(object)
    found = first = _sorted(dimension, of[0], dtype)
    for each in of[1:]:
        other = _sorted(dimension, each, dtype)
        if not np.array_equal(found, other):
            found = np.intersect1d(found, other, assume_unique=True)
    if not len(found):
        ranges = "; ".join(f"{each.url}: {each.shown}" for each in of)
        raise Unusable(f"the arrays have no coordinate along {dimension!r} in common: {ranges}")
    descends = len(first) > 1 and first[0] > first[-1]
    return found[::-1] if descends and len(found) > 1 and found[0] < found[-1] else found


def _sorted(dimension: str, coordinate: Coordinate, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values of a type, once sure that they ascend or descend strictly."""
    where = f"the coordinate {dimension!r} of {coordinate.url}"
    if coordinate.values.dtype.kind not in _NUMBERS or dtype.kind not in _NUMBERS:
        raise Unusable(f"{where} has values of {coordinate.values.dtype}, and arrays are aligned by numbers or times")
    with np.errstate(invalid="ignore"):  # what a type cannot hold
        values = coordinate.values.astype(dtype)
        back = values.astype(coordinate.values.dtype)
    if dtype.kind in "fMm" and not (values == values).all():  # noqa: PLR0124  NaN, and NaT
        raise Unusable(f"{where} has missing values (NaN): each element of the arrays needs a coordinate")
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


def _found(values: NDArray[Any], common: NDArray[Any]) -> Sequence[int]:
    """Return where in ``values`` those that are common lie."""
    if len(values) > 1 and values[0] > values[-1]:
        return elements_of(len(values) - 1 - np.searchsorted(values[::-1], common), range(len(common)))
    return elements_of(np.searchsorted(values, common), range(len(common)))


def elements_of(elements: Sequence[int] | NDArray[np.int64], chosen: Sequence[int]) -> Sequence[int]:
    """Return some of the elements, as a range where they are one."""
    if isinstance(elements, range) and isinstance(chosen, range):
        return range(
            elements.start + chosen.start * elements.step,
            elements.start + chosen.stop * elements.step,
            elements.step * chosen.step,
        )
    found = np.asarray(elements, dtype=np.int64)[np.asarray(chosen, dtype=np.int64)]
    steps = np.diff(found)
    if len(found) == 1:
        return range(int(found[0]), int(found[0]) + 1)
    step = int(steps[0])
    if step and (steps == step).all():
        return range(int(found[0]), int(found[-1]) + (1 if step > 0 else -1), step)
    return array("q", found.tobytes())  # a fifth of a tuple's memory, and NumPy reads it where it is


def unbroken(values: NDArray[Any], positions: range, reach: tuple[int, int]) -> NDArray[np.bool_]:
    """Return at which positions a sample reaches over steps of the coordinate only, and over no gap.

    A step is a distance between neighbours that differs from the usual one, the median, by an eighth at most.
    """
    first, last = min(0, reach[0]), max(0, reach[1])
    # The differences of a descending coordinate of unsigned integers would wrap around.
    distances = np.diff(values.astype(np.float64 if values.dtype.kind == "f" else np.int64))
    if first == last or not len(distances):
        return np.ones(len(positions), dtype=bool)
    usual = np.median(distances)
    gaps = np.concatenate(([0], np.cumsum(np.abs(distances - usual) > _TOLERANCE * abs(usual))))
    at = np.asarray(positions, dtype=np.int64)
    none: NDArray[np.bool_] = gaps[at + last] == gaps[at + first]
    return none
