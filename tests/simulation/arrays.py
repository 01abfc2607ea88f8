"""Operations of Zarr arrays: each chunk of a sample is of one version of its object, whoever writes meanwhile.

Arrays have 8 rows of 4 values; a value tells the version of its object and its place in the array.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as ps
from penstock.data.zarr.samples import arrangement
from penstock.data.zarr.statistics import record
from penstock.errors import Conflict, NotFound
from tests.simulation.scenario import LIES, TTL_S, Run, Wrong, watched
from tests.simulation.world import _replace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    # Of an object, by the places of its chunks in the array: their values; None of one that was never written.
    Chunks = dict[tuple[int, int], "NDArray[np.int32] | None"]

ROWS, COLUMNS = 8, 4
# Rows and columns of a chunk, and of an object.
_GRIDS = {
    "end": ((2, 4), (4, 4)),
    "start": ((4, 2), (8, 4)),
    "v3": ((2, 4), (2, 4)),
    "v2": ((4, 2), (4, 2)),
}
_SHARDED = ("end", "start")
_PLACES = ROWS * COLUMNS
_ABSENT = (1 << 64) - 1


def _crc32c(data: bytes) -> bytes:
    """Return the checksum of RFC 3720, little-endian."""
    found = _ABSENT & 0xFFFFFFFF
    for each in data:
        found = found >> 8 ^ _TABLE[(found ^ each) & 255]
    return struct.pack("<I", found ^ 0xFFFFFFFF)


def _row_of_table(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    return number


_TABLE = [_row_of_table(number) for number in range(256)]


@dataclass(frozen=True, slots=True)
class Array:
    """An array: its key, and how it is stored: in shards with their index at the ``end`` or ``start``, or in chunks."""

    key: str
    kind: str

    @property
    def chunk(self) -> tuple[int, int]:
        return _GRIDS[self.kind][0]

    @property
    def rows(self) -> str:
        """Return the name of the dimension of its rows."""
        return "dim_0" if self.kind == "v2" else "t"

    @property
    def documents(self) -> dict[str, bytes]:
        """Return its metadata."""
        if self.kind == "v2":
            array = {"zarr_format": 2, "shape": [ROWS, COLUMNS], "chunks": [*self.chunk], "dtype": "<i4", "order": "C"}
            array |= {"compressor": {"id": "zlib", "level": 1}, "fill_value": 0, "filters": None}
            return {f"{self.key}/.zarray": json.dumps(array).encode()}
        return {f"{self.key}/zarr.json": json.dumps(self.document).encode()}

    @property
    def document(self) -> dict[str, Any]:
        plain: Any = [{"name": "bytes", "configuration": {"endian": "little"}}]
        codecs, grid = plain, _GRIDS[self.kind][1]
        if self.kind in _SHARDED:
            how = {"chunk_shape": [*self.chunk], "codecs": plain, "index_codecs": [*plain, {"name": "crc32c"}]}
            how["index_location"] = self.kind
            codecs = [{"name": "sharding_indexed", "configuration": how}]
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [ROWS, COLUMNS],
            "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*grid]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": codecs,
            "attributes": {},
            "dimension_names": ["t", "x"],
        }

    @property
    def sharded(self) -> bool:
        return self.kind in _SHARDED

    @property
    def objects(self) -> dict[str, list[tuple[int, int]]]:
        """Return the keys of its objects, with the first row and column of each of their chunks."""
        chunk, grid = _GRIDS[self.kind]
        name = "{}/{}.{}" if self.kind == "v2" else "{}/c/{}/{}"
        return {
            name.format(self.key, row // grid[0], column // grid[1]): [
                (row + down, column + right)
                for down in range(0, grid[0], chunk[0])
                for right in range(0, grid[1], chunk[1])
            ]
            for row in range(0, ROWS, grid[0])
            for column in range(0, COLUMNS, grid[1])
        }


@dataclass(slots=True)
class Opened:
    """A dataset of arrays, by the names in its samples, that the process under test keeps.

    Attributes:
        whole: Whether the arrays are read as a whole at their first use, and kept.

    """

    arrays: dict[str, Array]
    dataset: Any
    map: Any
    since: float
    whole: bool


@dataclass(slots=True)
class Bucket:
    """The chunks of each version of each object, as other writers wrote them.

    ``jumped_s`` and ``lowest_s`` are the seconds by which the wall clock was ahead and behind, at most, at readings.
    """

    chunks: dict[str, dict[str, Chunks]] = field(default_factory=dict)
    jumped_s: float = 0.0
    lowest_s: float = 0.0


def _bucket(run: Run) -> Bucket:
    # Not of the process under test: ``kept`` ends with that.
    found: Bucket = run.shards.setdefault("zarr", Bucket())  # type: ignore[arg-type,assignment]
    return found


# -- another writer --------------------------------------------------------------------------------------------------


def write_object(run: Run, array: Array, key: str, dice: Random) -> None:
    """Write an object of an array anew: all values tell the new version, and chunks of a shard may lie elsewhere."""
    run.made += 1
    known = _bucket(run).chunks.setdefault(key, {})
    chunks: Chunks = {}
    for row, column in array.objects[key]:
        absent = array.sharded and dice.random() < 0.06
        rows, columns = np.ogrid[row : row + array.chunk[0], column : column + array.chunk[1]]
        chunks[row, column] = None if absent else (run.made * _PLACES + rows * COLUMNS + columns).astype("<i4")
    if array.sharded:
        data = _shard(array, [*chunks.values()], dice, turned=bool(len(known) % 2))
    else:
        (values,) = chunks.values()
        data = b"" if values is None else values.tobytes()
        data = zlib.compress(data, 1) if array.kind == "v2" else data
    stored = run.world.store.put(key, data)
    known[run.world.store.version(stored)] = chunks


def _shard(array: Array, chunks: Sequence[NDArray[np.int32] | None], dice: Random, *, turned: bool) -> bytes:
    """Return a shard, with its chunks in one of few orders, and sometimes bytes of no chunk between them."""
    places = [*range(len(chunks))]
    # Mostly the other one of two orders, so that an index may fit again after two rewrites.
    if turned if dice.random() < 0.8 else dice.random() < 0.5:
        places.reverse()
    gap = dice.choice((0, 0, 0, 16))
    index_bytes = 16 * len(chunks) + 4
    at = index_bytes if array.kind == "start" else 0
    body, entries = b"", [(_ABSENT, _ABSENT)] * len(chunks)
    for place in places:
        values = chunks[place]
        if values is not None:
            data = values.tobytes()
            body += b"\x7f" * gap
            entries[place] = (at + len(body), len(data))
            body += data
    index = b"".join(struct.pack("<QQ", *each) for each in entries)
    index += _crc32c(index)
    return index + body if array.kind == "start" else body + index


def _rewrite(run: Run, arrays: Sequence[Array], dice: Random) -> None:
    """Let another writer write some objects anew soon, often one several times, while its answers are on the way."""
    if not run.writer:
        return
    array = dice.choice(arrays)
    key = dice.choice([*array.objects])
    when = run.world.clock.now
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        when += run.world.store.weather.usual_s * dice.choice((1, 3, 6, 30)) * dice.random()

        def write(gone: bool = dice.random() < 0.05) -> None:  # noqa: FBT001
            if gone:
                run.world.store.objects.pop(key, None)
            else:
                write_object(run, array, key, dice)
            run.world.trace(f"another writer: {'delete' if gone else 'new'} {key}")

        run.world.wire.at(when, write)


def _pursued(run: Run, arrays: Sequence[Array], dice: Random) -> Any:
    """Let another writer write objects anew right after they were read, some of the time, until a block ends."""
    store, owners = run.world.store, {key: array for array in arrays for key in array.objects}
    share = dice.choice((0.0, 0.1, 0.5)) if run.writer else 0.0
    real = store.carry_out

    def carry_out(request: Any, **how: Any) -> Any:
        outcome = real(request, **how)
        if request.key in owners and dice.random() < share:
            write_object(run, owners[request.key], request.key, dice)
            run.world.trace(f"another writer: new {request.key}")
        return outcome

    return _replace(store, "carry_out", carry_out)


def _fill(run: Run, arrays: Sequence[Array], dice: Random) -> None:
    """Write what is missing of arrays."""
    store = run.world.store
    for array in arrays:
        for key, data in array.documents.items():
            if key not in store.objects:
                store.put(key, data)
        for key in array.objects:
            if key not in store.objects and (key not in store.history or dice.random() < 0.5):
                write_object(run, array, key, dice)


# -- what samples may be ---------------------------------------------------------------------------------------------


def _possible(run: Run, array: Array, since: float, until: float) -> dict[tuple[int, int], list[NDArray[np.int32]]]:
    """Return the values that each chunk may have: those of the versions of its object that were there meanwhile."""
    store, known = run.world.store, _bucket(run).chunks
    nothing = np.zeros(array.chunk, "<i4")
    found: dict[tuple[int, int], list[NDArray[np.int32]]] = {}
    for key, places in array.objects.items():
        for place in places:
            found[place] = some = []
            for stored in store.alive(key, since, until):
                values = None if stored is None else known[key][store.version(stored)][place]
                some.append(nothing if values is None else values)
    return found


def _since(run: Run, opened: Opened, array: Array, begun: float, *, mapped: bool) -> float:
    """Return the time from which on a version of an object may be read.

    An index that a dataset has in memory may be older than the reading, and a cache may hold the chunks that it
    locates. ``as_map`` keeps decoded chunks, and small arrays are kept as a whole.
    """
    since = opened.since if mapped or opened.whole or (array.sharded and run.cache) else begun
    # If the wall clock was set back since then, for a reading whose chunks are still in memory, an entry of a cache is
    # older than it seemed.
    return since - (TTL_S + _bucket(run).jumped_s - _bucket(run).lowest_s if run.cache == "ttl" else 0.0)


def check_rows(
    rows: Sequence[NDArray[np.int32]],
    numbers: Sequence[int] | None,
    possible: dict[tuple[int, int], list[NDArray[np.int32]]],
) -> None:
    """Require that rows of an array are of its versions; without ``numbers``, each row once, in any order.

    All rows of a chunk are of one version, as it is decoded once.
    """
    numbers = _number(rows, possible) if numbers is None else numbers
    for (top, left), some in possible.items():
        height, width = some[0].shape
        mine = [
            (number - top, row[left : left + width])
            for number, row in zip(numbers, rows, strict=True)
            if top <= number < top + height
        ]
        if not any(all(np.array_equal(values[at], row) for at, row in mine) for values in some):
            seen = {number + top: row.tolist() for number, row in mine}
            if all(any(np.array_equal(values[at], row) for values in some) for at, row in mine):
                raise Wrong(f"the chunk at {top}, {left} is of several versions: {seen}")
            raise Wrong(f"the chunk at {top}, {left} is of no version that was there: {_explain(seen)}")


def _number(rows: Sequence[NDArray[np.int32]], possible: dict[Any, Any]) -> list[int]:
    """Return the number of each row, as its values tell it; rows without values have the numbers that are left."""
    del possible
    told = [next((int(value) % _PLACES // COLUMNS for value in row if value), -1) for row in rows]
    left = [number for number in range(ROWS) if number not in told]
    if len({each for each in told if each >= 0}) + told.count(-1) != ROWS or len(rows) != ROWS:
        raise Wrong(f"an epoch of {ROWS} rows gave the rows {told}")
    return [left.pop(0) if each < 0 else each for each in told]


def _explain(seen: dict[int, list[int]]) -> str:
    """Return rows with their values as version:row.column."""
    return "; ".join(
        f"row {number}: " + " ".join(f"{v // _PLACES}:{v % _PLACES // COLUMNS}.{v % COLUMNS}" for v in row)
        for number, row in seen.items()
    )


def _honest(run: Run, seen: watched, arrays: Sequence[Array], since: float) -> None:
    """Refuse an error about a change where nothing has changed."""
    if seen.error is None or seen.world.store.happened & {*LIES}:
        return
    keys = [key for array in arrays for key in (*array.objects, *array.documents)]
    changed = any(len(run.world.store.alive(key, since, seen.until)) > 1 for key in keys)
    if isinstance(seen.error, (Conflict, NotFound)) and not changed:
        raise Wrong(f"nothing had changed: {seen.error!r}") from seen.error


# -- operations ------------------------------------------------------------------------------------------------------


def _array(run: Run, *kinds: str) -> Array:
    """Return an array of one of some kinds, the same throughout a run, so that several operations meet at one."""
    kind = Random(f"{run.world.seed}/arrays").choice(kinds)
    return Array(f"zarr/{kind}", kind)


def _kept(run: Run, name: str, arrays: dict[str, Array], dice: Random, where: str) -> Opened | None:
    """Return the dataset of a name that was opened before, or open it."""
    if name in run.kept and dice.random() < 0.5:
        found: Opened = run.kept[name]
        return found
    since = run.world.clock.now
    with watched(run) as seen:
        seen.reads = tuple(key for array in arrays.values() for key in array.objects)
        whole = dice.random() < 0.15
        how: dict[str, Any] = {"shuffle": dice.random() < 0.3, "seed": dice.randrange(99), "output": "numpy"}
        with _replace(arrangement, "_KEPT_BYTES", arrangement._KEPT_BYTES if whole else 0):
            dataset = ps.ZarrDataset(run.url(where), store=run.world.options, **how)
        run.kept[name] = Opened(arrays, dataset, dataset.as_map(), since, whole)
    _honest(run, seen, [*arrays.values()], since)
    return run.kept.get(name)


def _take(opened: Opened, dice: Random, disturb: Callable[[], None]) -> tuple[list[Any], list[int] | None, bool]:
    """Read samples of a dataset; return them with their numbers, None for an epoch, and whether by number."""
    how = dice.choice(("map", "epoch", "epoch", "batches"))
    if how == "map":
        numbers = [dice.randrange(ROWS) for _ in range(dice.randint(1, 6))]
        # The map's samples are numbered chunk by chunk: by row, as all columns are of a sample.
        return opened.map.__getitems__(numbers), numbers, True
    samples: list[Any] = []
    if how == "epoch":
        for sample in opened.dataset:
            samples.append(sample)
            if dice.random() < 0.2:
                disturb()
        return samples, None, False
    for batch in opened.dataset.batched(dice.choice((1, 3, 4))):
        samples += _divide(batch)
        if dice.random() < 0.2:
            disturb()
    return samples, None, False


def _divide(batch: Any) -> list[Any]:
    """Return the samples of a batch."""
    if not isinstance(batch, dict):
        return [*batch]
    return [dict(zip(batch, each, strict=True)) for each in zip(*batch.values(), strict=True)]


def _gusts(run: Run, dice: Random) -> Any:
    """Let more answers be late for a while than there were so far, so that second requests are sent, and win."""
    weather = run.world.store.weather
    return _replace(weather, "tail", 0.4 if weather.tail and dice.random() < 0.5 else weather.tail)


def _read(run: Run, dice: Random, name: str, arrays: dict[str, Array], where: str) -> None:
    _fill(run, [*arrays.values()], dice)
    bucket = _bucket(run)
    bucket.jumped_s = max(bucket.jumped_s, run.world.clock.jumped_s)
    bucket.lowest_s = min(bucket.lowest_s, run.world.clock.jumped_s)
    if dice.random() < 0.15:
        run.world.clock.sleep(dice.choice((1.0, 4.0)))
    _rewrite(run, [*arrays.values()], dice)
    opened = _kept(run, name, arrays, dice, where)
    if opened is None:
        return
    _rewrite(run, [*arrays.values()], dice)
    begun = run.world.clock.now
    with watched(run) as seen, _gusts(run, dice), _pursued(run, [*arrays.values()], Random(dice.random())):
        seen.reads = tuple(key for array in arrays.values() for key in array.objects)
        samples, numbers, mapped = _take(opened, dice, lambda: _rewrite(run, [*arrays.values()], dice))
        seen.until = run.world.clock.now
        if run.world.store.deaf and "etag" in run.world.store.ever:
            # Nothing tells the versions apart.
            return
        for part, array in arrays.items():
            rows = [np.asarray(each[part] if part else each).reshape(-1) for each in samples]
            since = _since(run, opened, array, begun, mapped=mapped)
            check_rows(rows, numbers, _possible(run, array, since, seen.until))
        if numbers is None and len(arrays) > 1:
            _check_aligned(samples)
    _honest(run, seen, [*arrays.values()], 0.0)


def _check_aligned(samples: Sequence[dict[str, NDArray[np.int32]]]) -> None:
    """Require that the arrays of each sample are of one row."""
    for sample in samples:
        told = {int(v) % _PLACES // COLUMNS for values in sample.values() for v in np.asarray(values).reshape(-1) if v}
        if len(told) > 1:
            raise Wrong(f"a sample holds values of the rows {sorted(told)}")


def zarr_end(run: Run, dice: Random) -> None:
    """Read rows of an array in shards that are written anew meanwhile: by number, an epoch, or batches of one."""
    array = _array(run, "end")
    _read(run, dice, array.key, {"": array}, array.key)


def zarr_start(run: Run, dice: Random) -> None:
    """As ``zarr_end``, of a shard with its index at the start."""
    array = _array(run, "start")
    _read(run, dice, array.key, {"": array}, array.key)


def zarr_chunks(run: Run, dice: Random) -> None:
    """As ``zarr_end``, of an array without shards."""
    array = _array(run, "v2", "v3")
    _read(run, dice, array.key, {"": array}, array.key)


def zarr_group(run: Run, dice: Random) -> None:
    """Read rows of two arrays of a group together."""
    arrays = {name: Array(f"zarr/group/{name}", kind) for name, kind in (("features", "end"), ("labels", "start"))}
    key = "zarr/group/zarr.json"
    if key not in run.world.store.objects:
        group: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": {}}
        if dice.random() < 0.5:
            inline = {name: array.document for name, array in arrays.items()}
            group["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": inline}
        run.world.store.put(key, json.dumps(group).encode())
    _read(run, dice, "zarr/group", arrays, "zarr/group")


def _with_options(run: Run) -> Any:
    """Let files of statistics lie in the bucket, with the options that lead there."""
    real = record.open_object
    return _replace(record, "open_object", lambda url, mode, **_store: real(url, mode, store=run.world.options))


def zarr_statistics(run: Run, dice: Random) -> None:
    """Gather statistics with ``save=``, perhaps where a file of earlier ones is: they are of the values there now."""
    array = _array(run, "end", "start", "v2")
    _fill(run, [array], dice)
    if dice.random() < 0.5:
        _rewrite(run, [array], dice)
    opened = _kept(run, array.key, {"": array}, dice, array.key)
    if opened is None:
        return
    bucket = _bucket(run)
    bucket.jumped_s = max(bucket.jumped_s, run.world.clock.jumped_s)
    bucket.lowest_s = min(bucket.lowest_s, run.world.clock.jumped_s)
    if dice.random() < 0.3:
        _rewrite(run, [array], dice)
    begun = run.world.clock.now
    with watched(run) as seen, _with_options(run), _pursued(run, [array], Random(dice.random())):
        seen.reads = tuple(array.objects)
        found = opened.dataset.statistics(array.rows, save=run.url(f"{array.key}.json"), progress=False)[""]
        seen.until = run.world.clock.now
        history = [version.since for key in array.objects for version in run.world.store.history.get(key, [])]
        moments = [begun, *(each for each in history if begun < each <= seen.until)]
        if not any(fits(found, _possible(run, array, each, each)) for each in moments):
            raise Wrong(f"statistics are of no moment at which they were gathered: {found.min} to {found.max}")
    _honest(run, seen, [array], opened.since - TTL_S)


def fits(found: Any, possible: dict[tuple[int, int], list[NDArray[np.int32]]]) -> bool:
    """Return whether the statistics of each row are those of values that its chunks may have."""
    for number in range(ROWS):
        some = [
            [values[number - top] for values in versions]
            for (top, _), versions in sorted(possible.items())
            if top <= number < top + len(versions[0])
        ]
        told = (found.count[number], found.min[number], found.max[number], found.mean[number])
        rows = [np.concatenate(each) for each in product(*some)]
        if not any(np.allclose(told, (COLUMNS, row.min(), row.max(), row.mean()), rtol=1e-12) for row in rows):
            return False
    return True


OPERATIONS: dict[str, Callable[[Run, Random], None]] = {
    each.__name__: each for each in (zarr_end, zarr_start, zarr_chunks, zarr_group, zarr_statistics)
}
