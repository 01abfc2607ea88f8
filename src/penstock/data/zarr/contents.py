"""``ZarrContents``: the arrays of a dataset, its samples, and the state that one process keeps of them.

Coordinates, the one-dimensional arrays that are named as dimensions of the arrays beside them, are read as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from functools import cached_property
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.zarr.alignment import Alignment, Coordinate, Times, align, times_along
from penstock.data.zarr.arrangement import MOST_AT_ONCE, dims_of
from penstock.data.zarr.arrays import OwnObjects, StoredArray, joined, numbered
from penstock.data.zarr.cf import times_of
from penstock.data.zarr.chunks import Chunks, IndexCache, ShardIndexes
from penstock.data.zarr.pool import MemoryPool
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Damaged, Denied, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrangement import Arrangement
    from penstock.data.zarr.arrays import Missing
    from penstock.data.zarr.extraction import Part
    from penstock.source import Source

    Located = tuple[list[int], list[tuple[int | slice, ...]]]  # chunks by sample, and the elements in each

__all__ = ["ZarrContents", "aligned", "paired", "whole_array"]

_lock = Lock()  # held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class _Kept:
    """Values of kept arrays: read once per process, by the first thread that needs them."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), Lock()
        self.values: dict[int, NDArray[Any]] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the values."""
        return _Kept, ()


class ZarrContents:
    """Arrays and the samples cut from them. Picklable; each process decodes and keeps arrays separately.

    Attributes:
        arrays: The arrays to read.
        names: Names of the arrays.
        arrangement: Arrangement of the samples.
        ahead_parts: Read-ahead takes at most 1 / ``ahead_parts`` of the store's own limit.

    """

    def __init__(
        self, arrays: Sequence[StoredArray], names: Sequence[str], arrangement: Arrangement, missing: Missing
    ) -> None:
        """Number the arrays; nothing is read yet."""
        self.arrays, self._stores = numbered(arrays)
        self.names = tuple(names)
        self.arrangement = arrangement
        self._missing = missing
        self._chunks: Chunks | None = None
        self._pool: MemoryPool | None = None
        self._kept = _Kept()
        self.indexes = IndexCache()
        self.ahead_parts = 1

    @property
    def source(self) -> Source:
        """Store of all arrays, or a source that reads from several stores."""
        return joined(self._stores)

    @property
    def root(self) -> str:
        """Root URL of the store of the first array."""
        return self.arrays[0].source.root

    @property
    def base(self) -> str:
        """Key of the first array in its store."""
        return self.arrays[0].layout.key

    # Cached: every state contains the digest, and a dimension may have millions of elements.
    @cached_property
    def digest(self) -> str:
        """Digest of all that determines the samples and their order: not of values, nor of locations."""
        layouts = [array.layout for array in self.arrays]
        space = self.arrangement.space
        shown = [
            [name, layout.shape, layout.dtype.str, layout.dims, repr(extraction.cuts)]
            for name, layout, extraction in zip(self.names, layouts, self.arrangement.extractions, strict=True)
        ]
        axes = [[axis.name, repr(axis.positions)] for axis in space.axes]
        text = json.dumps([1, shown, axes, space.samples, space.digest], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.arrangement.space.samples

    @property
    def chunks(self) -> Chunks:
        """The chunks, by number."""
        if self._chunks is None:
            self._chunks = Chunks(self.arrays, self._missing)
        return self._chunks

    def pool(self, most_bytes: int) -> MemoryPool:
        """Return the memory pool of decoded chunks, ``most_bytes`` at most; the next epoch reuses the memory."""
        if self._pool is None or self._pool.most_bytes != most_bytes:
            self._pool = MemoryPool(most_bytes)
        return self._pool

    def verify(self) -> None:
        """Check that arrays with absent objects still exist; see ``OwnObjects``.

        Raises:
            DatasetChanged: An array does not exist any more.

        """
        for array in self.arrays:
            array.objects.verify()

    def name_of(self, position: Sequence[int]) -> str:
        """Return the URL of the first array with the position of a sample, for reports."""
        axes = self.arrangement.space.axes
        place = ", ".join(f"{axis.name}={at}" for axis, at in zip(axes, position, strict=True))
        return f"{self.arrays[0].url} at {place}"

    def uses(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions need, without those of kept arrays."""
        pairs = zip(self.arrangement.extractions, self.arrangement.kept, strict=True)
        found = [extraction.chunks(positions) for extraction, keeps in pairs if not keeps]
        return np.concatenate(found, axis=1) if found else np.empty((len(positions), 0), dtype=np.int64)

    def parts(self, position: Sequence[int]) -> list[list[Part]]:
        """Return the parts of each array that the sample at a position takes."""
        return [extraction.parts(position) for extraction in self.arrangement.extractions]

    def located(self, positions: NDArray[np.int64]) -> list[Located] | None:
        """Return the one chunk that each sample takes of each array; None if a sample may need several."""
        found = [extraction.located(positions) for extraction in self.arrangement.extractions]
        return None if None in found else found  # type: ignore[return-value]  # without None

    def views(self, found: Sequence[Located], values: Mapping[int, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return, for each array, the view of a chunk that each sample takes."""
        kept, columns = self.kept, []
        for number, (chunks, insides) in enumerate(found):
            held = {chunk: kept[number] if chunk < 0 else values[chunk] for chunk in {*chunks}}
            views = [held[chunk][inside] for chunk, inside in zip(chunks, insides, strict=True)]
            scalars = not self.arrangement.extractions[number].shape
            columns.append([np.asarray(view, self.chunks.dtypes[number]) for view in views] if scalars else views)
        return columns

    def assembled(
        self, parts: Sequence[Sequence[Part]], values: Mapping[int, NDArray[Any]], *, own: bool
    ) -> list[NDArray[Any]]:
        """Return the arrays of a sample: views of chunks where possible, copies with ``own``."""
        kept, dtypes, found = self.kept, self.chunks.dtypes, []
        for number, (some, extraction) in enumerate(zip(parts, self.arrangement.extractions, strict=True)):
            if len(some) == 1:
                chunk, inside, _ = some[0]
                view = np.asarray((kept[number] if chunk < 0 else values[chunk])[inside], dtypes[number])
                found.append(view.copy() if own else view)
                continue
            out = np.empty(extraction.shape, dtypes[number])
            for chunk, inside, place in some:
                out[place] = (kept[number] if chunk < 0 else values[chunk])[inside]
            found.append(out)
        return found

    @property
    def kept(self) -> dict[int, NDArray[Any]]:
        """Values of kept arrays, by number: read at the first access, once per process."""
        values = self._kept.values
        if values is not None:
            return values
        with _lock:
            # After a fork: another thread of the parent may have held the lock.
            if self._kept.process != os.getpid():
                self._kept = _Kept()
            kept = self._kept
        with kept.lock:
            if kept.values is None:
                kept.values = {
                    number: whole_array(self.arrays, number, self.chunks, self.source, self.indexes, self.ahead_parts)
                    for number, keeps in enumerate(self.arrangement.kept)
                    if keeps
                }
            return kept.values

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without what this process has read and decoded."""
        return self.__dict__ | {"_chunks": None, "_pool": None, "indexes": IndexCache()}


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
        'align="coordinates" compares them, and align="index" says that there is no need to',
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
        raise Unusable(f"there is no coordinate {name!r} beside this array: {_ADVICE}", url=array.url)
    layout, objects = beside
    coordinate = StoredArray.of(array.source, layout, objects, decode_cf=None)
    if len(layout.shape) != 1 or dims_of(layout)[0] not in {name, "dim_0"} or layout.shape[0] > _MOST:
        shape = f"the shape {layout.shape} of {dims_of(layout)}"
        raise Unusable(f"{name!r} is no coordinate, it has {shape}: {_ADVICE}", url=coordinate.url)
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
            f"the coordinate {name!r} has {values} values, and the array {length} elements along it: {url}",
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
        raise Unusable(f"the times {name!r} are of several calendars, whose days are not the same: {words}")
    if not decoded:
        return [Coordinate(each.values, each.units, each.url) for each in stored]
    return [
        Coordinate(times_of(each.values, each.units, each.calendar, each.url), "", each.url)
        if _SINCE in each.units
        else Coordinate(each.values, "", each.url)
        for each in stored
    ]


def whole_array(
    arrays: Sequence[StoredArray], number: int, chunks: Chunks, source: Source, cache: IndexCache, parts: int = 1
) -> NDArray[Any]:
    """Return the values of array ``number`` of ``arrays``; all requests are in flight at once.

    ``chunks`` are the chunks of ``arrays``. Read-ahead takes at most 1 / ``parts`` of the store's own limit.

    Raises:
        Unusable: The array has too many chunks.
        PenstockError: A chunk of the array could not be read.

    """
    layout, first = arrays[number].layout, chunks.bases[number]
    if (count := prod(layout.grid)) > MOST_AT_ONCE:
        raise Unusable(
            f"the array is read as a whole, and has {count:,} chunks, of at most {MOST_AT_ONCE:,}: store it in larger "
            "ones (penstock zarr copy --chunks)",
            url=arrays[number].url,
        )
    out = np.empty(layout.shape, chunks.dtypes[number])
    indexes = ShardIndexes(arrays, source, cache, ReadCounts())
    some = range(first, first + prod(layout.grid))
    chunks.prepare(some)
    indexes.ask(chunks.shards(some))
    spans = [chunks.span(chunk, indexes) for chunk in some]
    with source.lookahead((span for span in spans if isinstance(span, tuple)), parts) as ahead:
        for chunk, span in zip(some, spans, strict=True):
            values = chunks.decode(chunk, ahead.advance() if isinstance(span, tuple) else span)
            place = map(int, np.unravel_index(chunk - first, layout.grid))
            box = tuple(
                slice(at * size, min((at + 1) * size, length))
                for at, size, length in zip(place, layout.chunks, layout.shape, strict=True)
            )
            out[box] = values[tuple(slice(each.stop - each.start) for each in box)]
    return out
