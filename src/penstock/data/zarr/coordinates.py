"""Coordinates: the one-dimensional arrays that are named as dimensions of the arrays beside them."""

from __future__ import annotations

import warnings
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.zarr.alignment import Alignment, Coordinate, Times, align, times_along
from penstock.data.zarr.arrangement import dims_of
from penstock.data.zarr.arrays import OwnObjects, StoredArray, joined, numbered
from penstock.data.zarr.contents import Chunks, IndexCache, whole_array
from penstock.data.zarr.format.cf import dates_of, times_of
from penstock.errors import Damaged, Denied, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray


__all__ = ["aligned", "dates_along", "paired"]

_MOST = 1 << 27  # elements of a coordinate: 1 GiB
# Limit for times that are read although no argument asks for them.
_MOST_CHUNKS = 1024
# Copies of a coordinate in memory during a comparison: as read, two sorted, and two comparisons of neighbours.
_TIMES = 5
_SINCE = " since "  # in units of times
_STANDARD = "standard"  # CF's default, formerly called "gregorian"
# Calendars by their other names in CF.
_CALENDARS = {"": _STANDARD, "gregorian": _STANDARD, "365_day": "noleap", "366_day": "all_leap"}
_REAL = {_STANDARD, "proleptic_gregorian"}  # calendars that datetime64 supports
_ADVICE = 'align="coordinates" compares the arrays that are named as dimensions, in the groups of the arrays'


class _Stored(NamedTuple):
    """Coordinate with its stored values and attributes."""

    values: NDArray[Any]
    units: str
    calendar: str
    url: str

    @property
    def kind(self) -> str:
        """Kind of the values: ``times``, ``durations`` or ``numbers``."""
        return _kind(self.units, self.values.dtype)


def _kind(units: object, dtype: np.dtype[Any]) -> str:
    is_time = _SINCE in str(units) or dtype.kind == "M"
    return "times" if is_time else "durations" if dtype.kind == "m" else "numbers"


def aligned(arrays: Sequence[StoredArray], dims: Sequence[str], memory_bytes: int) -> Alignment:
    """Return the elements of arrays that belong together along ``dims``: those with the same coordinate.

    A coordinate is an array beside the array, in the same group, named as the dimension. Each is read once: a few
    requests for its metadata, and its chunks. Times with one unit and calendar are compared as stored; other times are
    first decoded by xarray. ``memory_bytes`` is the memory that the process may use.

    Raises:
        Unusable: A coordinate does not exist or is invalid, the arrays have no common coordinates, or the coordinates
            need more memory.
        MissingExtra: Times have several units, and xarray is not installed.
        PenstockError: A coordinate could not be read.

    """
    known: dict[Hashable, _Stored] = {}
    found: list[dict[str, Coordinate]] = [{} for _ in arrays]
    for name in dims:
        stored: dict[int, _Stored] = {}
        for number, (array, key, which) in _beside(arrays, name).items():
            if which not in known:
                known[which] = _read(_coordinate(array, key, name), memory_bytes)
                memory_bytes -= _TIMES * known[which].values.nbytes
            stored[number] = known[which]
            _check_length(array, name, len(stored[number].values), stored[number].url)
        for number, coordinate in zip(stored, _comparable(name, [*stored.values()]), strict=True):
            found[number][name] = coordinate
    return align(found)


def paired(arrays: Sequence[StoredArray], dims: Sequence[str], memory_bytes: int, *, steps: bool) -> Alignment:
    """Return the times of elements that are paired by their index along ``dims``, for a check.

    Times are read if arrays do not share them, and along the first of ``dims`` if samples take several ``steps``: a few
    requests for each. Arrays without times beside them are paired without a check. So are those whose times have more
    than 1,024 chunks or need more than ``memory_bytes``, with a warning.

    Raises:
        Unusable: The times cannot be compared.
        MissingExtra: Times have several units, and xarray is not installed.
        PenstockError: Times could not be read.

    """
    times: dict[str, Times] = {}
    for name in dims:
        places = {which: (array, key) for array, key, which in _beside(arrays, name).values()}
        if len(places) < 2 and not (steps and name == dims[0]):  # noqa: PLR2004  a single coordinate has no other to match
            continue
        stored = []
        for array, key in places.values():
            coordinate = _times_beside(array, key, name)
            if coordinate is not None and _is_small(coordinate, memory_bytes):
                stored.append(_read(coordinate, memory_bytes))
        if len(stored) > 1 or (stored and steps and name == dims[0]):
            times[name] = times_along(_comparable(name, stored))
    return Alignment({}, tuple({} for _ in arrays), (), times)


def _times_beside(array: StoredArray, key: str, name: str) -> StoredArray | None:
    """Return the coordinate of an array if it has times and can be read; else None."""
    try:
        found = _coordinate(array, key, name)
    except (Damaged, Denied, Unsupported, Unusable):  # does not concern samples
        return None
    return found if _kind(found.layout.attributes.get("units"), found.layout.dtype) == "times" else None


def _is_small(coordinate: StoredArray, memory_bytes: int) -> bool:
    """Return whether a coordinate may be read although no argument asks for it; warn if not."""
    layout = coordinate.layout
    chunks, size = prod(layout.grid), _TIMES * layout.shape[0] * layout.dtype.itemsize
    if chunks <= _MOST_CHUNKS and size <= memory_bytes:
        return True
    warnings.warn(
        f"times of {chunks:,} chunks are not compared, and samples pair elements by their index: {coordinate.url}; "
        'align="coordinates" compares them, and align="index" accepts this',
        stacklevel=4,
    )
    return False


def _beside(arrays: Sequence[StoredArray], name: str) -> dict[int, tuple[StoredArray, str, Hashable]]:
    """Return, by number of each array with dimension ``name``: array, key of its coordinate, identity of the latter."""
    found: dict[int, tuple[StoredArray, str, Hashable]] = {}
    for number, array in enumerate(arrays):
        if name in dims_of(array.layout):
            group = array.layout.key.rstrip("/").rpartition("/")[0]
            key = f"{group}/{name}".lstrip("/")
            # Several documents of references may lie in one store, each with separate coordinates.
            own = isinstance(array.objects, OwnObjects)
            found[number] = array, key, array.source.address(key) if own else (number, name)
    return found


def _coordinate(array: StoredArray, key: str, name: str) -> StoredArray:
    """Return the coordinate of an array along dimension ``name``, which has the key ``key``."""
    beside = array.objects.beside(key)
    if beside is None:
        raise Unusable(f"coordinate {name!r} does not exist beside this array: {_ADVICE}", url=array.url)
    layout, objects = beside
    coordinate = StoredArray.of(array.source, layout, objects, decode_cf=None)
    if len(layout.shape) != 1 or dims_of(layout)[0] not in {name, "dim_0"} or layout.shape[0] > _MOST:
        shape = f"the shape {layout.shape} of {dims_of(layout)}"
        raise Unusable(f"{name!r} is not a coordinate, it has {shape}: {_ADVICE}", url=coordinate.url)
    _check_length(array, name, layout.shape[0], coordinate.url)  # before it is read
    return coordinate


def _read(coordinate: StoredArray, most_bytes: int) -> _Stored:
    """Return the values of a coordinate; raise if a comparison would need more than ``most_bytes``."""
    layout = coordinate.layout
    needed = _TIMES * layout.shape[0] * layout.dtype.itemsize
    if needed > most_bytes:
        words = f"to compare the {layout.shape[0]:,} values of this coordinate takes {needed:,} bytes"
        raise Unusable(f"{words}, and memory_bytes leaves {max(most_bytes, 0):,}: raise it", url=coordinate.url)
    [coordinate], stores = numbered([coordinate])
    parts = -(-coordinate.source.options.read.ahead_bytes // max(1, most_bytes // 4))
    values = whole_array([coordinate], 0, Chunks([coordinate], "fill"), joined(stores), IndexCache(), parts)
    units, calendar = (str(layout.attributes.get(each, "")) for each in ("units", "calendar"))
    calendar = _CALENDARS.get(calendar.lower(), calendar.lower())
    return _Stored(values, units, calendar, coordinate.url)


def _check_length(array: StoredArray, name: str, values: int, url: str) -> None:
    length = array.layout.shape[dims_of(array.layout).index(name)]
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
        raise Unusable(f"the times {name!r} use several calendars, whose days differ: {words}")
    if not decoded:
        return [Coordinate(each.values, each.units, each.url) for each in stored]
    return [
        Coordinate(times_of(each.values, each.units, each.calendar, each.url), "", each.url)
        if _SINCE in each.units
        else Coordinate(each.values, "", each.url)
        for each in stored
    ]


def dates_along(arrays: Sequence[StoredArray], name: str, memory_bytes: int) -> tuple[int, NDArray[Any]]:
    """Return the number of the first array with times along dimension ``name``, and its times.

    These are ``datetime64``, or objects of cftime for calendars that NumPy does not have.

    Raises:
        Unusable: No array has times beside it along the dimension, or they are invalid.
        MissingExtra: xarray is not installed.
        PenstockError: The times could not be read.

    """
    for number, (array, key, _) in _beside(arrays, name).items():
        coordinate = _times_beside(array, key, name)
        if coordinate is not None:
            stored = _read(coordinate, memory_bytes)
            if stored.values.dtype.kind == "M":
                return number, stored.values
            return number, dates_of(stored.values, stored.units, stored.calendar, stored.url)
    raise Unusable(
        f"no array has times beside it along {name!r}, to compare dates with: give numbers of elements",
        url=arrays[0].url,
    )
