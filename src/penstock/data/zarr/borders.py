"""Borders and gaps of the parts that ``ZarrDataset.split_at`` and ``split`` make: dates and durations as elements."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstock.data.catalog.rows import round_counts, shares
from penstock.data.order.shuffle import Permutation
from penstock.data.zarr.coordinates import dates_along
from penstock.data.zarr.samples.alignment import shown
from penstock.data.zarr.samples.extraction import integers_of
from penstock.errors import Unusable
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays.stored import StoredArray
    from penstock.data.zarr.samples.arrangement import Arrangement, Shape

    Border: TypeAlias = "int | str | dt.date | np.datetime64"
    Gap: TypeAlias = "int | dt.timedelta | np.timedelta64"

_DATES = (str, dt.date, np.datetime64)


@dataclass(frozen=True)
class Along:
    """Dimension of samples; ``inside`` has the chosen elements that they may use, ascending.

    ``chosen`` has the chosen elements of each array with the dimension, by number of the array.
    """

    name: str
    inside: NDArray[np.int64]
    arrays: Sequence[StoredArray]
    chosen: Mapping[int, Sequence[int]]
    memory_bytes: int

    def parts(self, owners: NDArray[np.int64], gap: Gap) -> list[NDArray[np.bool_]]:
        """Return a mask of the chosen elements of each part, from the part of each element: see ``apart``."""
        found = np.zeros((int(owners.max()) + 1, len(next(iter(self.chosen.values())))), dtype=np.bool_)
        found[:, self.inside] = apart(owners, elements_in(gap, self.dates))
        return [*found]

    def dates(self) -> NDArray[Any]:
        number, found = dates_along([self.arrays[each] for each in self.chosen], self.name, self.memory_bytes)
        chosen = integers_of([*self.chosen.values()][number])
        return found[chosen[self.inside]]


def along_of(
    arrays: Sequence[StoredArray], arrangement: Arrangement, shape: Shape, dim: str | None, memory_bytes: int
) -> Along:
    """Return the dimension ``dim`` of samples of a shape, by default the first that numbers them."""
    axes = [axis.name for axis in arrangement.space.axes]
    name = axes[0] if dim is None else dim
    if name not in axes:
        raise Unusable(f"dim must be a dimension that samples extend along ({', '.join(axes)}), got {dim!r}")
    chosen = {
        number: cut.chosen
        for number, extraction in enumerate(arrangement.extractions)
        for cut in extraction.cuts
        if cut.axis == axes.index(name) and cut.scale == 1
    }
    if any(len(np.unique(each)) < len(each) for each in chosen.values()):
        raise Unusable(f"select takes elements of {name!r} twice, so parts would share them: give each element once")
    mask = shape.within.get(name)
    inside = np.arange(len(next(iter(chosen.values())))) if mask is None else np.flatnonzero(mask)
    return Along(name, inside, arrays, chosen, memory_bytes)


def divide_elements(length: int, parts: Sequence[float], *, block: int | None, seed: int) -> NDArray[np.int64]:
    """Return the number of the part of each of ``length`` elements: runs in order, or blocks that are drawn at random.

    ``parts`` are fractions that sum to 1, or counts, of elements or of blocks; a single number is the first of two.
    """
    seed, size = whole(seed, "seed"), 1 if block is None else whole(block, "block", 1)
    count, things = -(-length // size), "elements" if block is None else "blocks"
    fractions, counts = shares(parts, count, things)
    if count < len(fractions):
        raise Unusable(f"cannot divide {length:,} elements: {count} {things} are fewer than {len(fractions)} parts")
    counts = counts or round_counts(count, fractions)
    if block is None:
        return np.repeat(np.arange(len(counts)), counts)
    return draw_parts(length, counts, block=size, seed=seed)


def draw_parts(length: int, counts: Sequence[int], *, block: int, seed: int) -> NDArray[np.int64]:
    """Return the part of each of ``length`` elements, drawn in blocks, ``counts`` of them for each part."""
    blocks = sum(counts)
    owners = np.empty(blocks, dtype=np.int64)
    owners[Permutation(blocks, seed, 0, "split ").of(np.arange(blocks))] = np.repeat(np.arange(len(counts)), counts)
    return np.repeat(owners, block)[:length]


def apart(owners: NDArray[np.int64], gap: int) -> list[NDArray[np.bool_]]:
    """Return a mask of the elements of each part, without the last ``gap`` elements before each border of parts."""
    borders = np.flatnonzero(np.diff(owners)) + 1
    change = np.zeros(len(owners) + 1, dtype=np.int64)
    np.add.at(change, np.maximum(borders - gap, 0), 1)
    np.add.at(change, borders, -1)
    taken = np.cumsum(change[:-1]) > 0
    return [(owners == part) & ~taken for part in range(int(owners.max(initial=-1)) + 1)]


def sides(borders: Sequence[Border], length: int, dates: Callable[[], NDArray[Any]]) -> NDArray[np.int64]:
    """Return the part number of each of ``length`` elements: the number of borders at or before it.

    Borders are dates, or numbers of elements, of which negative ones count from the end.
    """
    if not borders:
        raise Unusable('split_at takes the first date or element of each part but the first: split_at("2015")')
    # Dates of cftime are of no common class.
    if all(isinstance(each, _DATES) or hasattr(each, "isoformat") for each in borders):
        values = dates()
        if values.dtype.kind == "M" and (missing := np.flatnonzero(np.isnat(values))).size:
            raise Unusable(f"element {missing[0]} has no time (NaT), so it cannot be split by date: give numbers")
        known = [_date(each, values) for each in borders]
    else:
        values = np.arange(length)
        numbers = [whole(each, "a border") for each in borders]
        known = [each + length if each < 0 else each for each in numbers]
    if any(not one < other for one, other in pairwise(known)):
        raise Unusable(f"borders must ascend, got {', '.join(map(str, borders))}")
    owners: NDArray[np.int64] = np.stack([values >= each for each in known]).sum(axis=0, dtype=np.int64)
    for part in range(len(known) + 1):
        if not (owners == part).any():
            side = f"before {borders[0]}" if not part else f"from {borders[part - 1]} on"
            first, last = map(shown, (values[0], values[-1]))
            raise Unusable(f"no element is {side}: the {length:,} elements are {first} to {last}")
    return owners


def _date(border: Border, values: NDArray[Any]) -> Any:  # noqa: ANN401  datetime64, or a date of cftime
    if isinstance(border, type(values[0])):
        return border
    try:
        found = np.datetime64(border)  # type: ignore[arg-type]
        if values.dtype.kind == "M":
            return found
        moment = found.astype("M8[s]").item()
        return type(values[0])(*moment.timetuple()[:6])
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise Unusable(f'a border must be a date such as "2015" or "2015-06-01T12", got {border!r}') from error


def elements_in(gap: Gap, dates: Callable[[], NDArray[Any]]) -> int:
    """Return the maximum number of elements in a gap: a number, or a duration by the shortest step of the dates."""
    if not isinstance(gap, dt.timedelta | np.timedelta64):
        return whole(gap, "gap", 0)
    if isinstance(gap, np.timedelta64) and np.datetime_data(gap)[0] in {"Y", "M"}:
        raise Unusable(f"gap must not be in months or years, whose length differs, got {gap!r}")
    steps = np.abs(np.diff(dates()).astype("m8[us]"))
    steps = steps[steps > np.timedelta64(0)]
    count = np.ceil(np.timedelta64(gap).astype("m8[us]") / steps.min()) if len(steps) else np.nan
    if not count >= 0:
        raise Unusable(f"gap must be a duration of 0 or more, between dates that differ, got {gap!r}")
    return int(count)


def subset_of(arrangement: Arrangement, indices: NDArray[np.int64]) -> Arrangement:
    """Return the arrangement of the samples with the numbers ``indices``, in the order of their numbers."""
    space = arrangement.space
    windows = []
    for number in range(len(space.axes)):
        cuts = [cut for each in arrangement.extractions for cut in each.cuts if cut.axis == number]
        windows.append(np.unique(np.concatenate([np.atleast_1d(cut.window) // cut.scale for cut in cuts])))
    if name := space.overlaps(windows):
        raise Unusable(
            f"samples share elements along {name!r} (offsets, stride, patch or halo), so a Subset would share values "
            "with the rest: take parts without common elements, dataset.split(0.9, block=…, gap=…) or "
            'dataset.split_at("2015"), or samples by number, dataset.as_map()'
        )
    numbers = np.unique(indices)
    if len(numbers) < np.size(indices) or (numbers.size and not 0 <= numbers[0] <= numbers[-1] < space.samples):
        raise Unusable(f"a Subset must have different numbers of samples, from 0 to {space.samples - 1:,}")
    if not numbers.size:
        raise Unusable("a Subset of arrays must not be empty")
    return arrangement._replace(space=space.subset(numbers.astype(np.int64)))
