"""The coordinates of arrays: the one-dimensional arrays beside them that are named as their dimensions are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.datasets.zarr.arrays import StoredArray, numbered
from penstock.datasets.zarr.chunks import Chunks
from penstock.datasets.zarr.indexes import IndexCache
from penstock.datasets.zarr.objects.joined import joined
from penstock.datasets.zarr.objects.locations import OwnObjects
from penstock.datasets.zarr.objects.whole import whole_array
from penstock.datasets.zarr.samples.alignment import Coordinate, align
from penstock.datasets.zarr.samples.arrangement import dims_of
from penstock.errors import Unusable
from penstock.formats.zarr.cf import times_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from penstock.datasets.zarr.samples.alignment import Alignment

__all__ = ["aligned"]

_MOST = 1 << 27  # elements of a coordinate: 1 GiB
_TIMES = 5  # a coordinate is held while it is compared: as read, twice sorted, and two comparisons of neighbours
_SINCE = " since "  # in units of times
_STANDARD = "standard"  # CF's default, which was "gregorian" before
_CALENDARS = {"": _STANDARD, "gregorian": _STANDARD, "365_day": "noleap", "366_day": "all_leap"}  # by CF's other names
_REAL = {_STANDARD, "proleptic_gregorian"}  # those that datetime64 has
_ADVICE = 'align="coordinates" compares the arrays that are named as dimensions, in the groups of the arrays'


class _Stored(NamedTuple):
    """A coordinate as it is stored."""

    values: NDArray[Any]
    units: str
    calendar: str
    url: str

    @property
    def kind(self) -> str:
        """What its values are: ``times``, ``durations`` or ``numbers``."""
        is_time = _SINCE in self.units or self.values.dtype.kind == "M"
        return "times" if is_time else "durations" if self.values.dtype.kind == "m" else "numbers"


def aligned(arrays: Sequence[StoredArray], dims: Sequence[str], memory_bytes: int) -> Alignment:
    """Return which elements of arrays belong together along ``dims``: those with the same coordinate.

    Without ``dims`` along the first dimension of the first array.

    A coordinate is an array beside the array, in the same group, named as the dimension. Each is read once: a few
    requests for its metadata, and its chunks. Times of one unit and calendar are compared as they are stored, others
    as xarray decodes them. ``memory_bytes`` is what the process may hold.

    Raises:
        Unusable: There is no coordinate, it is no coordinate, the arrays have none in common, or they need more memory.
        MissingExtra: Times in several units, and no xarray.
        PenstockError: One could not be read.

    """
    known: dict[Hashable, _Stored] = {}
    found: list[dict[str, Coordinate]] = [{} for _ in arrays]
    for name in dims or dims_of(arrays[0].layout)[:1]:
        stored: dict[int, _Stored] = {}
        for number, array in enumerate(arrays):
            if name not in dims_of(array.layout):
                continue
            group = array.layout.key.rstrip("/").rpartition("/")[0]
            key = f"{group}/{name}".lstrip("/")
            # Several documents of references may lie in one store: each has coordinates of its own.
            which = array.source.address(key) if isinstance(array.objects, OwnObjects) else (number, name)
            if which not in known:
                known[which] = _read(array, key, name, memory_bytes)
                memory_bytes -= _TIMES * known[which].values.nbytes
            stored[number] = known[which]
            _check_length(array, name, len(stored[number].values), stored[number].url)
        for number, coordinate in zip(stored, _comparable(name, [*stored.values()]), strict=True):
            found[number][name] = coordinate
    return align(found)


def _read(array: StoredArray, key: str, name: str, most_bytes: int) -> _Stored:
    """Return the coordinate ``key`` of an array along dimension ``name``, of which ``most_bytes`` may be held."""
    beside = array.objects.beside(key)
    if beside is None:
        raise Unusable(f"there is no coordinate {name!r} beside this array: {_ADVICE}", url=array.url)
    layout, objects = beside
    coordinate = StoredArray.of(array.source, layout, objects, decode_cf=None)
    if len(layout.shape) != 1 or dims_of(layout)[0] not in {name, "dim_0"} or layout.shape[0] > _MOST:
        shape = f"the shape {layout.shape} of {dims_of(layout)}"
        raise Unusable(f"{name!r} is no coordinate, it has {shape}: {_ADVICE}", url=coordinate.url)
    _check_length(array, name, layout.shape[0], coordinate.url)  # before it is read
    needed = _TIMES * layout.shape[0] * layout.dtype.itemsize
    if needed > most_bytes:
        words = f"to compare the {layout.shape[0]:,} values of this coordinate takes {needed:,} bytes"
        raise Unusable(f"{words}, and memory_bytes leaves {max(most_bytes, 0):,}: raise it", url=coordinate.url)
    [coordinate], stores = numbered([coordinate])
    parts = -(-array.source.options.read.ahead_bytes // max(1, most_bytes // 4))
    values = whole_array([coordinate], 0, Chunks([coordinate], "fill"), joined(stores), IndexCache(), parts)
    units, calendar = (str(layout.attributes.get(each, "")) for each in ("units", "calendar"))
    calendar = _CALENDARS.get(calendar.lower(), calendar.lower())
    return _Stored(values, units, calendar, coordinate.url)


def _check_length(array: StoredArray, name: str, values: int, url: str) -> None:
    length = array.layout.shape[dims_of(array.layout).index(name)]
    if values != length:
        raise Unusable(
            f"the coordinate {name!r} has {values} values, and the array {length} elements along it: {url}",
            url=array.url,
        )


def _comparable(name: str, stored: Sequence[_Stored]) -> list[Coordinate]:
    """Return coordinates whose values can be compared."""
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
        raise Unusable(f"the times {name!r} are of several calendars, whose days are not the same: {words}")
    if not decoded:
        return [Coordinate(each.values, each.units, each.url) for each in stored]
    return [
        Coordinate(times_of(each.values, each.units, each.calendar, each.url), "", each.url)
        if _SINCE in each.units
        else Coordinate(each.values, "", each.url)
        for each in stored
    ]
