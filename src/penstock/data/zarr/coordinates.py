"""Coordinates: the one-dimensional arrays that are named as dimensions of the arrays in their group."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.arrays.stored import OwnObjects, StoredArray, join_stores, numbered
from penstock.data.zarr.chunks.contents import Chunks, whole_arrays
from penstock.data.zarr.format.cf import dates_of, times_in
from penstock.data.zarr.samples.alignment import (
    Alignment,
    Coordinate,
    Times,
    align,
    check_direction,
    check_equal,
    check_nested,
    check_order,
    check_times,
    times_along,
)
from penstock.data.zarr.samples.arrangement import dims_of, factor_of, lengths_of
from penstock.errors import Damaged, Denied, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.samples.arrangement import Shape

_MOST = 1 << 27  # elements of a coordinate: 1 GiB
# Limit for times that are read although no argument asks for them.
_MOST_CHUNKS = 1024
# Copies of a coordinate in memory during a comparison: as read, two sorted, and two comparisons of neighbours.
_TIMES = 5
_OPENED_AT_ONCE = 16  # stores
_SINCE = " since "  # in units of times
_STANDARD = "standard"  # CF's default, formerly called "gregorian"
# Calendars by their other names in CF.
_CALENDARS = {"": _STANDARD, "gregorian": _STANDARD, "365_day": "noleap", "366_day": "all_leap"}
_REAL = {_STANDARD, "proleptic_gregorian"}  # calendars that datetime64 supports
_ADVICE = 'align="coordinates" compares the arrays that are named as dimensions, in the groups of the arrays'


class _Stored(NamedTuple):
    """Coordinate with its stored values and attributes; ``parts`` are those of single stores, if there are several."""

    values: NDArray[Any]
    units: str
    calendar: str
    url: str
    parts: tuple[Coordinate, ...] = ()

    @property
    def coordinate(self) -> Coordinate:
        return Coordinate(self.values, self.units, self.url)

    @property
    def kind(self) -> str:
        return _classify_units(self.units, self.values.dtype)


def _classify_units(units: object, dtype: np.dtype[Any]) -> str:
    is_time = _SINCE in str(units) or dtype.kind == "M"
    return "times" if is_time else "durations" if dtype.kind == "m" else "numbers"


def compare_coordinates(
    arrays: Sequence[StoredArray], dims: Sequence[str], memory_bytes: int, *, equal: bool, steps: bool
) -> Alignment:
    """Return the elements of arrays that belong together along ``dims``.

    A coordinate is an array in the same group, named as the dimension. Each is read once: a few
    requests for its metadata, unless that of the group is known, and its chunks. Times with one unit and calendar are
    compared as stored; other times are first decoded by xarray. Coordinates of arrays of several stores are checked:
    they continue each other from store to store, and are the same along other dimensions.

    With ``equal``, elements with the same coordinate belong together. If not, those with the same number do, and the
    alignment has the times to check them by: if arrays do not share them, and along the first of ``dims`` if samples
    take several ``steps`` along it. Arrays without times are paired without a check; so are those whose
    times have more than 1,024 chunks or need more than ``memory_bytes``, with a warning.
    """
    coordinates = _Coordinates(memory_bytes)
    for array in arrays:
        if array.stored:
            coordinates.check(array, gaps=equal)
    if equal:
        return _align_arrays(arrays, dims, coordinates)
    return Alignment({}, tuple({} for _ in arrays), (), _times(arrays, dims, coordinates, steps=steps))


def _align_arrays(arrays: Sequence[StoredArray], dims: Sequence[str], coordinates: _Coordinates) -> Alignment:
    found: list[dict[str, Coordinate]] = [{} for _ in arrays]
    for name in dims:
        stored: dict[int, _Stored] = {}
        for number, place in _beside(arrays, name).items():
            stored[number] = coordinates.read(place)
            _check_length(arrays[number], name, len(stored[number].values), stored[number].url)
        for number, coordinate in zip(stored, _comparable(name, [*stored.values()]), strict=True):
            found[number][name] = coordinate
    return align(found)


def _times(
    arrays: Sequence[StoredArray], dims: Sequence[str], coordinates: _Coordinates, *, steps: bool
) -> dict[str, Times]:
    """Return the times of elements that are paired by their index, by dimension, for a check."""
    times: dict[str, Times] = {}
    for name in dims:
        places = {place.which: place for place in _beside(arrays, name).values()}
        if len(places) < 2 and not (steps and name == dims[0]):  # noqa: PLR2004  a single coordinate has no other to match
            continue
        coordinates.look([*places.values()], lambda kind: kind == "times")
        stored = [coordinates.found[which] for which in places if which in coordinates.found]
        stored = [each for each in stored if each.kind == "times"]
        # Different lengths are refused later, with the shapes of the arrays.
        if len({len(each.values) for each in stored}) > 1:
            continue
        if len(stored) > 1 or (stored and steps and name == dims[0]):
            times[name] = times_along(_comparable(name, stored))
    return times


def check_places(arrays: Sequence[StoredArray], shape: Shape, memory_bytes: int) -> None:
    """Raise where the same elements of two arrays would be in different places.

    Along patched dimensions, the coordinates of the arrays are compared. Those of a finer array must
    have those of the coarsest as their mean, or begin with them; times must be the same. Along dimensions that samples
    take whole, they must not be those of another array in reverse. Arrays that share a coordinate, have none, or one of
    more than 1,024 chunks, are not compared.
    """
    coordinates, layouts, scale = _Coordinates(memory_bytes), [array.layout for array in arrays], shape.scale
    several: dict[str, dict[Hashable, tuple[_CoordinatePlace, Layout]]] = {}
    for name in dict.fromkeys(name for layout in layouts for name in dims_of(layout) if name not in shape.dims):
        places = {place.which: (place, layouts[number]) for number, place in _beside(arrays, name).items()}
        lengths = {lengths_of(layout)[name] for _, layout in places.values()}
        # Different lengths without a scale are refused later, with the shapes of the arrays.
        if len(places) > 1 and (len(lengths) == 1 or name in scale):
            several[name] = places
    alike = [name for name in several if name in shape.patch and name not in scale]
    for timed, kinds in ((True, ("numbers", "times")), (False, ("numbers",))):
        some = [places.values() for name, places in several.items() if (name in alike) == timed]
        coordinates.look([place for each in some for place, _ in each], kinds.__contains__)
    for name, places in several.items():
        found = [coordinates.found[which] for which in places if which in coordinates.found]
        if {each.kind for each in found} == {"times"}:
            every = np.arange(len(found[0].values))
            check_times(name, times_along(_comparable(name, found)), every, every, (0,))
            continue
        known = [
            (factor_of(layout, name, layouts, scale), coordinates.found[which])
            for which, (_, layout) in places.items()
            if which in coordinates.found and coordinates.found[which].values.dtype.kind in "iuf"
        ]
        known.sort(key=itemgetter(0))
        for factor, fine in known[1:]:
            least, coarse = known[0]
            if name in shape.patch:
                check_nested(name, coarse.coordinate, fine.coordinate, factor // least)
            else:
                check_direction(name, coarse.coordinate, fine.coordinate)


class _CoordinatePlace(NamedTuple):
    """Coordinate of an array along the dimension ``name``, not yet opened; ``which`` identifies it.

    ``parts`` are the arrays that it belongs to: several, if an array of several stores continues along the dimension.
    """

    name: str
    parts: tuple[StoredArray, ...]
    which: Hashable

    @classmethod
    def of(cls, name: str, parts: tuple[StoredArray, ...]) -> _CoordinatePlace:
        # Several documents of references may lie in one store, each with separate coordinates.
        own = (isinstance(each.objects, OwnObjects) for each in parts)
        keys = ((each, _key_beside(each, name)) for each in parts)
        which = tuple(
            each.source.address(key) if is_own else (id(each.objects), name)
            for is_own, (each, key) in zip(own, keys, strict=True)
        )
        return cls(name, parts, which)


def _beside(arrays: Sequence[StoredArray], name: str) -> dict[int, _CoordinatePlace]:
    """Return the coordinate of each array along a dimension, by number; a dimension that stores add has none."""
    found: dict[int, _CoordinatePlace] = {}
    for number, array in enumerate(arrays):
        dims = dims_of(array.layout)
        continues = bool(array.stored) and dims[array.along] == name
        if name in dims and not (continues and array.stacked):
            found[number] = _CoordinatePlace.of(name, array.stored if continues else array.parts[:1])
    return found


def _key_beside(array: StoredArray, name: str) -> str:
    group = array.layout.key.rstrip("/").rpartition("/")[0]
    return f"{group}/{name}".lstrip("/")


class _Coordinates:
    """Coordinates of a dataset's arrays, within a limit of memory; each is read once, and found by its identity."""

    def __init__(self, memory_bytes: int) -> None:
        self._left_bytes = memory_bytes
        self.found: dict[Hashable, _Stored] = {}

    def read(self, place: _CoordinatePlace) -> _Stored:
        """Return a coordinate; raise if it does not exist or needs too much memory."""
        if place.which not in self.found:
            self._take([(place, [_coordinate(part, place.name) for part in place.parts])])
        return self.found[place.which]

    def look(self, places: Sequence[_CoordinatePlace], wanted: Callable[[str], bool]) -> None:
        """Read the given coordinates that exist, are small and have a wanted kind; all at once."""
        new = {each.which: each for each in places if each.which not in self.found}
        some = []
        for place, opened in zip(new.values(), _open_coordinates([*new.values()]), strict=True):
            if opened and wanted(_kind_of(opened[0])) and _is_small(opened, self._left_bytes):
                some.append((place, opened))
        self._take(some)

    def check(self, array: StoredArray, *, gaps: bool) -> None:
        """Raise if the coordinates of the stores of an array do not continue each other, or differ elsewhere.

        Coordinates that do not exist are not compared. With ``gaps``, steps between stores may be longer than others.
        """
        dims = dims_of(array.layout)
        along = dims[array.along]
        grids = {name: [_CoordinatePlace.of(name, (part,)) for part in array.stored] for name in dims if name != along}
        chain = [] if array.stacked else [_CoordinatePlace.of(along, array.stored)]
        self.look([*chain, *(place for some in grids.values() for place in some)], lambda _: True)
        for place in chain:
            if (stored := self.found.get(place.which)) is not None:
                check_order(along, stored.parts or (stored.coordinate,), gaps=gaps)
        for name, some in grids.items():
            each = [self.found[place.which] for place in some if place.which in self.found]
            check_equal(name, _comparable(name, each) if each else [])

    def _take(self, opened: Sequence[tuple[_CoordinatePlace, list[StoredArray]]]) -> None:
        flat = [each for _, some in opened for each in some]
        stored = iter(_read_coordinates(flat, self._left_bytes) if flat else [])
        for place, some in opened:
            found = _concatenate_coordinates(place.name, [*islice(stored, len(some))])
            self.found[place.which] = found
            self._left_bytes -= _TIMES * found.values.nbytes


def _open_coordinates(places: Sequence[_CoordinatePlace]) -> list[list[StoredArray]]:
    """Return the arrays of each coordinate, opened in parallel; none if one of a coordinate does not exist."""

    def open_one(part: StoredArray, name: str) -> list[StoredArray]:
        # A coordinate that cannot be read does not concern samples.
        with suppress(Damaged, Denied, Unsupported, Unusable):
            return [_coordinate(part, name)]
        return []

    flat = [(part, place.name) for place in places for part in place.parts]
    with ThreadPoolExecutor(_OPENED_AT_ONCE, "penstock-opening") as threads:
        found = iter([*(threads.map(open_one, *zip(*flat, strict=True)) if flat else ())])
    some = [[*islice(found, len(place.parts))] for place in places]
    return [[one for [one] in each] if all(each) else [] for each in some]


def _is_small(coordinates: Sequence[StoredArray], memory_bytes: int) -> bool:
    """Return whether a coordinate may be read although no argument asks for it; warn if not."""
    layouts = [each.layout for each in coordinates]
    chunks, elements = sum(prod(each.grid) for each in layouts), sum(each.shape[0] for each in layouts)
    if chunks <= _MOST_CHUNKS * len(layouts) and _TIMES * elements * layouts[0].dtype.itemsize <= memory_bytes:
        return True
    if _kind_of(coordinates[0]) == "times":
        warnings.warn(
            f"times of {chunks:,} chunks are not compared, and samples pair elements by their index: "
            f'{coordinates[0].url}; align="coordinates" compares them, and align="index" accepts this',
            stacklevel=8,
        )
    return False


def _kind_of(coordinate: StoredArray) -> str:
    return _classify_units(coordinate.layout.attributes.get("units"), coordinate.layout.dtype)


def _coordinate(array: StoredArray, name: str) -> StoredArray:
    beside = array.objects.beside(_key_beside(array, name))
    if beside is None:
        raise Unusable(f"this array has no coordinate {name!r}: {_ADVICE}", url=array.url)
    layout, objects = beside
    coordinate = StoredArray.of(array.source, layout, objects, decode_cf=None)
    if len(layout.shape) != 1 or dims_of(layout)[0] not in {name, "dim_0"} or layout.shape[0] > _MOST:
        shape = f"the shape {layout.shape} of {dims_of(layout)}"
        raise Unusable(f"{name!r} is not a coordinate: it has {shape}: {_ADVICE}", url=coordinate.url)
    _check_length(array, name, layout.shape[0], coordinate.url)  # before it is read
    return coordinate


def _read_coordinates(coordinates: Sequence[StoredArray], most_bytes: int) -> list[_Stored]:
    """Return the values of coordinates; raise if a comparison would need more than ``most_bytes``."""
    count = sum(each.layout.shape[0] for each in coordinates)
    needed = sum(_TIMES * each.layout.shape[0] * each.layout.dtype.itemsize for each in coordinates)
    if needed > most_bytes:
        words = f"to compare the {count:,} values of this coordinate takes {needed:,} bytes"
        raise Unusable(f"{words}, and memory_bytes leaves {max(most_bytes, 0):,}: raise it", url=coordinates[0].url)
    found, stores = numbered(coordinates)
    parts = -(-found[0].source.options.read.ahead_bytes // max(1, most_bytes // 4))
    numbers = range(len(found))
    values = whole_arrays(Chunks(found, "fill"), numbers, join_stores(stores), parts)
    stored = []
    for coordinate, of in zip(found, values, strict=True):
        units, calendar = (str(coordinate.layout.attributes.get(each, "")) for each in ("units", "calendar"))
        calendar = calendar.lower()
        stored.append(_Stored(of, units, _CALENDARS.get(calendar, calendar), coordinate.url))
    return stored


def _concatenate_coordinates(name: str, parts: Sequence[_Stored]) -> _Stored:
    """Return the coordinates of stores that continue each other as one; times in several units become comparable."""
    first, *others = parts
    if not others:
        return first
    alike = all(each[1:3] == first[1:3] for each in others) or {each.kind for each in parts} == {"numbers"}
    coordinates = [each.coordinate for each in parts] if alike else _comparable(name, parts)
    values = np.concatenate([each.values for each in coordinates])
    units, calendar = (first.units, first.calendar) if alike or first.calendar not in _REAL else ("", _STANDARD)
    return _Stored(values, units, calendar, f"{first.url} to {parts[-1].url}", tuple(coordinates))


def _check_length(array: StoredArray, name: str, values: int, url: str) -> None:
    length = lengths_of(array.layout)[name]
    if values != length:
        raise Unusable(
            f"the coordinate {name!r} has {values} values, but the array {length} elements along it: {url}",
            url=array.url,
        )


def _comparable(name: str, stored: Sequence[_Stored]) -> list[Coordinate]:
    """Return coordinates with comparable values; raise if units or calendars differ."""
    kinds = {each.kind for each in stored}
    units = {each.units for each in stored if each.units}
    decoded = len({(each.units, each.calendar) for each in stored}) > 1 and kinds == {"times"}
    if len(kinds) > 1 or (len(units) > 1 and not decoded):
        words = "; ".join(
            f"{repr(each.units) if each.units else f'no units ({each.values.dtype})'} in {each.url}" for each in stored
        )
        raise Unusable(f"the coordinates {name!r} differ in units and cannot be compared: {words}")
    calendars = {each.calendar for each in stored} if decoded else set()
    if len(calendars) > 1 and not calendars <= _REAL:
        words = "; ".join(f"{each.calendar!r} in {each.url}" for each in stored)
        raise Unusable(f"the times {name!r} use several calendars, with different days: {words}")
    if not decoded:
        return [each.coordinate for each in stored]
    [calendar, *others] = calendars
    if not others and calendar not in _REAL:
        # NumPy has no such dates: all in the units of the first.
        of = (each._replace(values=times_in(stored[0].units, *each[:4])) for each in stored)
        return [Coordinate(each.values, stored[0].units, each.url) for each in of]
    return [Coordinate(_decode_times(each), "", each.url) for each in stored]


def _decode_times(stored: _Stored) -> NDArray[Any]:
    """Return times as ``datetime64``; raise where NumPy cannot represent them: another calendar, or distant years."""
    if _SINCE not in stored.units:
        return stored.values
    found = dates_of(*stored[:4])
    if found.dtype.kind != "M":
        message = f"times in {stored.units!r} of the calendar {stored.calendar!r} cannot be compared with others"
        raise Unusable(f"{message}: store both in the same unit", url=stored.url)
    return found


def dates_along(arrays: Sequence[StoredArray], name: str, memory_bytes: int) -> tuple[int, NDArray[Any]]:
    """Return the number of the first array with times along dimension ``name``, and its times.

    These are ``datetime64``, or objects of cftime for calendars that NumPy does not have.
    """
    for number, place in _beside(arrays, name).items():
        [opened] = _open_coordinates([place])
        if opened and _kind_of(opened[0]) == "times":
            stored = _Coordinates(memory_bytes).read(place)
            if stored.values.dtype.kind == "M":
                return number, stored.values
            return number, dates_of(*stored[:4])
    raise Unusable(
        f"no array has times along {name!r} to compare dates with: give numbers of elements",
        url=arrays[0].url,
    )
