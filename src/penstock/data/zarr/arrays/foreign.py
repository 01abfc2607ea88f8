"""Arrays that a program has already opened with zarr or xarray: their layouts, and reads through their store.

A variable of xarray is traced to the array that it reads: as a whole, or the elements that a selection takes. Dask is
not imported: a graph that only takes elements says which, block by block.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from operator import itemgetter
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

import numpy as np

from penstock.data.zarr.arrays.stored import OwnObjects
from penstock.data.zarr.format.cf import ATTRIBUTES
from penstock.data.zarr.format.metadata import Arrays
from penstock.data.zarr.samples.alignment import elements_of
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.errors import Cancelled, NotFound, PenstockError, Transient, Truncated, Unusable
from penstock.source import open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.source import Source

    Elements: TypeAlias = int | Sequence[int]
    Manifest: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]


class Opened(NamedTuple):
    """Arrays of one zarr store, by path or variable name, "" for an array that was passed directly.

    The keys of ``arrays`` are relative to the root of ``store``, a ``zarr.abc.store.Store`` (None if no array could be
    traced to one). ``url`` is that of the root, if Penstock can read it too: a folder, or Penstock's own store, whose
    source is ``own`` and whose options were ``given``; else "". ``chosen`` has the elements that a selection of xarray
    takes, by name and dimension, and ``decodes`` whether a variable of xarray decodes values by CF.
    """

    arrays: Arrays
    store: Any
    url: str
    own: Source | None = None
    given: object = None
    forbidden_is_missing: bool = False
    chosen: Mapping[str, Mapping[str, Elements]] = {}
    decodes: Mapping[str, bool] = {}


def reader_of(store: Any) -> Callable[[str, int, int | None], bytes | None]:  # noqa: ANN401  a store of zarr's
    """Return a function that reads bytes of a store's objects: ``read(key, start, stop)``, as in ``Span``; it blocks.

    The function returns None for a missing object. Any thread may call it; zarr's event loop does the read.
    """
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    prototype = default_buffer_prototype()

    def read(key: str, start: int, stop: int | None) -> bytes | None:
        part: SuffixByteRequest | RangeByteRequest | OffsetByteRequest | None = None
        if start < 0:
            part = SuffixByteRequest(-start)
        elif stop is not None:
            part = RangeByteRequest(start, stop)
        elif start:
            part = OffsetByteRequest(start)
        found = sync(store.get(key, prototype, byte_range=part))
        return None if found is None else found.to_bytes()

    return read


def arrays_of(value: object) -> Opened:
    """Return the layouts of an open array or group of zarr, or of an object that xarray opened from one.

    No request for an array; for a group, zarr's requests to list its members. Coordinates of an xarray dataset are left
    out. Variables that cannot be traced to an array (loaded or computed) have no layout: their lookup raises an error
    that says what to pass instead.
    """
    kind = classify_object(value)
    if not kind:
        raise Unusable(f"neither an array or group of zarr nor a dataset or array of xarray: {type(value).__name__}")
    arrays, stores, described = Arrays(), list[Any](), dict[str, Any]()
    chosen: dict[str, dict[str, Elements]] = {}
    decodes = dict[str, bool]()
    # In order of names: zarr lists a group in the order of responses, which differs between processes.
    for name, array, traced in sorted(_iterate_arrays(value, kind), key=itemgetter(0)):
        if isinstance(array, PenstockError):
            arrays.refused[name] = array
            continue
        if classify_object(array) == "group":
            described[name] = array.attrs
            continue
        document = {**array.metadata.to_dict()}
        where = array.store_path
        arrays.put(name, as_folder(where.path), document, document.get("attributes") or {}, str(where))
        if traced is not None and name in arrays:
            arrays[name], chosen[name] = traced.of(arrays[name])
            decodes[name] = traced.decodes
        if not any(where.store == each for each in stores):
            stores.append(where.store)
    for name, attributes in described.items():
        arrays.describe(name, dict(attributes))
    if len(stores) > 1:
        raise Unusable(f"these variables are in {len(stores)} stores of zarr: pass a mapping from names to their URLs")
    if kind == "array" and "" in arrays.refused:
        raise arrays.refused[""]
    return _in_store(arrays, stores[0] if stores else None)._replace(chosen=chosen, decodes=decodes)


def manifests_of(value: object) -> dict[str, Manifest]:
    """Return metadata and manifest, by name, of the virtual variables of an xarray object that VirtualiZarr made.

    Empty without virtual variables; raises if there are virtual variables and a data variable that is not.
    """
    kind = classify_object(value)
    if not kind or hasattr(value, "store_path"):
        return {}
    xarrays = cast("Any", value)
    variables = {"": getattr(xarrays, "variable", xarrays)} if kind == "array" else dict(xarrays.variables)
    virtual = {str(name): variable for name, variable in variables.items() if _is_virtual(variable)}
    loaded = [name for name in getattr(xarrays, "data_vars", ()) if name not in virtual] if virtual else []
    if loaded:
        some = ", ".join(map(str, loaded))
        raise Unusable(f"these variables are not virtual: {some}; pass the dataset without them (drop_vars)")
    return {name: _manifest(variable) for name, variable in virtual.items()}


def _is_virtual(variable: Any) -> bool:  # noqa: ANN401  a variable of xarray
    layer = type(variable._data)  # noqa: SLF001  as in trace_variable
    return layer.__name__ == "ManifestArray" and layer.__module__.partition(".")[0] == "virtualizarr"


def _manifest(variable: Any) -> Manifest:  # noqa: ANN401  a variable of xarray
    """Return metadata and manifest of a variable, with the names and attributes that xarray took out of the array."""
    layer = variable._data  # noqa: SLF001  as in trace_variable
    encoded = {name: value for name, value in variable.encoding.items() if name in ATTRIBUTES}
    moved = {"dimension_names": list(variable.dims), "attributes": encoded | dict(variable.attrs)}
    return layer.metadata.to_dict() | moved, layer.manifest.dict()


def classify_object(value: object) -> str:
    """Return ``group`` or ``array`` for an object of zarr or xarray, which are not imported; empty for others."""
    kinds = {"Dataset": "group", "Group": "group", "Array": "array", "DataArray": "array", "Variable": "array"}
    for each in type(value).__mro__:
        if each.__module__.partition(".")[0] in {"zarr", "xarray"} and each.__name__ in kinds:
            return kinds[each.__name__]
    return ""


def _iterate_arrays(value: Any, kind: str) -> Iterator[tuple[str, Any, Traced | None]]:  # noqa: ANN401  of either library
    """Yield names, arrays of zarr (or errors), and how xarray reads them (or None).

    For a group of zarr, yield the group itself and all members below it, too.
    """
    if hasattr(value, "store_path"):
        yield "", value, None
        for name, member in value.members(max_depth=None) if kind == "group" else ():
            yield name, member, None
        return
    variables = {"": getattr(value, "variable", value)} if kind == "array" else value.data_vars
    for name, variable in variables.items():
        found = trace_variable(getattr(variable, "variable", variable))
        yield (str(name), found.array, found) if isinstance(found, Traced) else (str(name), found, None)


def _in_store(arrays: Arrays, store: Any) -> Opened:  # noqa: ANN401  a store of zarr's, or None
    """Return arrays with the root URL of their store, if Penstock can read the same objects; else without URL."""
    module = type(store).__module__
    arrays.url = str(store or "")
    if module.startswith("penstock."):
        return Opened(arrays, store, store.url, store.source, store.given, store.forbidden_is_missing)
    is_local = module.startswith("zarr.") and type(store).__name__ == "LocalStore"
    return Opened(arrays, store, str(store.root) if is_local else "")


# Layers of xarray's lazy arrays that keep all elements and their order, if their `key` is a selection along dimensions.
_LAYERS = {
    *("MemoryCachedArray", "CopyOnWriteArray", "LazilyIndexedArray", "ZarrArrayWrapper", "NativeEndiannessArray"),
    *("_ElementwiseFunctionArray", "BoolTypeArray", "ImplicitToExplicitIndexingAdapter"),
}
# Those that decode values by CF.
_DECODING = {"_ElementwiseFunctionArray", "BoolTypeArray"}
_KEYS = {"BasicIndexer", "OuterIndexer"}
# Functions of Dask's graphs that take elements and change none.
_GETTERS = {"getter", "getter_nofancy", "getter_inline", "getitem", "_getitem"}
_ADVICE = (
    "pass the URL of its Zarr store instead, or an object of xarray.open_zarr(…) with isel or sel at most (of lists, "
    "with chunks=None), before .values, .load(), an assignment or arithmetic"
)


class Traced(NamedTuple):
    """Zarr array that a variable reads, and whether it decodes values by CF: not with ``mask_and_scale=False``.

    ``chosen`` has the elements of the variable along each dimension of the array; a number for a dropped dimension.
    """

    array: Any
    dims: tuple[str, ...]
    chosen: tuple[Elements, ...]
    decodes: bool

    def of(self, layout: Layout) -> tuple[Layout, dict[str, Elements]]:
        """Return the layout with xarray's dimension names, and the elements that a selection takes."""
        left = iter(self.dims)
        pairs = zip(dims_of(layout), self.chosen, strict=True)
        layout = replace(layout, dims=tuple(name if isinstance(each, int) else next(left) for name, each in pairs))
        known = zip(dims_of(layout), self.chosen, layout.shape, strict=True)
        return layout, {name: each for name, each, size in known if each != range(size)}


def trace_variable(variable: Any) -> Traced | Unusable:  # noqa: ANN401  a variable of xarray
    """Return the array that a variable reads, or an error with advice."""
    layer: Any = variable._data  # noqa: SLF001  xarray keeps unloaded data here
    later: list[Elements] | None = None
    if type(layer).__module__.partition(".")[0] == "dask" and hasattr(layer, "__dask_graph__"):
        graph = dict(layer.__dask_graph__())
        root, other = _root(graph)
        if root is None:
            return Unusable(f"this variable of xarray is computed by Dask ({', '.join(other)}): {_ADVICE}")
        lazy: Any = getattr(graph[root], "value", graph[root])
        later = _trace_elements(layer, graph, root, lazy.shape)
        layer = lazy
    chosen: list[Elements] | None = None
    decodes = False
    while type(layer).__name__ in _LAYERS:
        key, decodes = getattr(layer, "key", None), decodes or type(layer).__name__ in _DECODING
        if key is not None:
            if type(key).__name__ not in _KEYS:
                return Unusable(f"this variable of xarray is a selection of points of a Zarr array: {_ADVICE}")
            own = [_elements(each, size) for each, size in zip(key.tuple, layer.array.shape, strict=True)]
            chosen = own if chosen is None else _compose_selections(own, chosen)
        layer = getattr(layer, "array", None) if hasattr(layer, "array") else layer.get_array()
    if hasattr(layer, "store_path") and hasattr(layer, "metadata"):
        whole: list[Elements] = [range(size) for size in layer.shape]
        found = whole if chosen is None else chosen
        found = found if later is None else _compose_selections(found, later)
        return Traced(layer, tuple(map(str, variable.dims)), tuple(found), decodes)
    source = variable.encoding.get("source")
    words = f"it was opened from {source}; " if source else ""
    return Unusable(f"this variable of xarray is {type(layer).__name__}, not a Zarr array: {words}{_ADVICE}")


def _elements(key: Any, size: int) -> Elements:  # noqa: ANN401  a part of an indexer of xarray
    if isinstance(key, slice):
        return range(*key.indices(size))
    if np.ndim(key) == 0:
        return int(key) % size
    return _run(np.where(np.asarray(key) < 0, np.asarray(key) + size, key))


def _run(numbers: NDArray[np.int64]) -> Sequence[int]:
    return elements_of(numbers, range(len(numbers))) if len(numbers) else ()


def _compose_selections(first: Sequence[Elements], then: Sequence[Elements]) -> list[Elements]:
    """Return the elements that a second selection takes of those of a first, along the dimensions that this leaves."""
    left = iter(then)
    found: list[Elements] = []
    for each in first:
        if isinstance(each, int):
            found.append(each)
            continue
        later = next(left)
        found.append(each[later] if isinstance(later, int) else elements_of(each, later) if len(later) else ())
    return found


def _root(graph: Mapping[Any, Any]) -> tuple[Any, list[str]]:
    """Return the key of xarray's lazy array that a graph indexes; or None, and its other operations."""
    roots, other = list[Any](), set[str]()
    for key, task in graph.items():
        function = _function(task)
        value = getattr(task, "value", task)
        if function is not None:
            name = getattr(function, "__name__", type(function).__name__)
            other |= {name} - _GETTERS
            # Of a list of elements, the index may be another task.
            if name in _GETTERS and isinstance(index := _arguments(task)[1], tuple):
                other |= {"expand_dims" for each in index if each is None}
        elif type(value).__name__ in _LAYERS:
            roots.append(key)
        elif type(task).__name__ != "Alias":
            # Dask takes lists across its blocks by tasks of several kinds.
            other.add("a list of elements" if isinstance(value, tuple) else type(value).__name__)
    if other or len(roots) != 1:
        return None, sorted(other) or [f"{len(roots)} arrays"]
    return roots[0], []


def _function(task: Any) -> Any:  # noqa: ANN401  a task of Dask, or a tuple in versions before 2024.12
    return getattr(task, "func", task[0] if isinstance(task, tuple) and task and callable(task[0]) else None)


def _arguments(task: Any) -> tuple[Any, Any]:  # noqa: ANN401  as above
    """Return the array that a task indexes, and the elements."""
    source, index = (task[1:] if isinstance(task, tuple) else task.args)[:2]
    return source, index


def _trace_elements(array: Any, graph: Mapping[Any, Any], root: Any, shape: Sequence[int]) -> list[Elements]:  # noqa: ANN401
    """Return the elements along each dimension of the root that an array of Dask takes, from its blocks."""
    first = _block(graph, (array.name, *[0] * array.ndim), root, shape)
    found: list[Elements] = []
    axis = 0
    for dimension, elements in enumerate(first):
        if isinstance(elements, int):
            found.append(elements)
            continue
        places = [[0] * array.ndim for _ in range(array.numblocks[axis])]
        for number, place in enumerate(places):
            place[axis] = number
        blocks = [_block(graph, (array.name, *place), root, shape)[dimension] for place in places]
        found.append(_run(np.concatenate([np.atleast_1d(np.asarray(each, dtype=np.int64)) for each in blocks])))
        axis += 1
    return found


def _block(graph: Mapping[Any, Any], key: Any, root: Any, shape: Sequence[int]) -> list[Elements]:  # noqa: ANN401
    """Return the elements along each dimension of the root that a block has."""
    if key == root:
        return [range(size) for size in shape]
    task = graph[key]
    if _function(task) is None:
        return _block(graph, task.target, root, shape)
    source, index = _arguments(task)
    inner = _block(graph, getattr(source, "key", source), root, shape)
    sizes = [len(each) for each in inner if not isinstance(each, int)]
    return _compose_selections(inner, [_elements(part, size) for part, size in zip(index, sizes, strict=True)])


# Each thread waits for one read; the event loop of zarr carries out all of them.
_THREADS = 32
# Modules of stores that have no threads, locks or descriptors.
_FORKABLE = ("zarr.storage._memory",)


@dataclass(frozen=True, slots=True)
class ForeignObjects(OwnObjects):
    """Objects of an array that are read through a zarr store, whose name errors have.

    ``snapshot`` is the version of all objects, of a store that has snapshots and is not written to; empty for others.
    """

    name: str = ""
    snapshot: str = ""

    def url(self, key: str) -> str:
        """Return the name of the store and the key, joined by a colon."""
        return f"{self.name}:{key}"


def foreign_objects(store: Any) -> ForeignObjects:  # noqa: ANN401  a store of zarr's
    """Return objects that are read through ``store``, up to 32 at once. Sends no request yet.

    Reads in a forked process raise: most stores have threads, which a forked process lacks, and would hang.
    """
    kind = type(store).__name__
    source, _ = open_source(f"memory://zarr-{uuid4().hex}/")  # all its reads go to the layer
    # Of Icechunk: values of another snapshot are other values, also for a file of statistics.
    session = getattr(store, "session", None)
    snapshot = getattr(session, "snapshot_id", "")
    name = f"{kind}({snapshot})" if snapshot else kind
    return ForeignObjects(
        source.through(_Layer(store)), name=name, snapshot=snapshot * getattr(session, "read_only", False)
    )


class _Layer:
    """Layer that creates the ``Fetching`` over a zarr store, once per process."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401  a store of zarr's
        self._store, self._pid = store, os.getpid()

    def __call__(self, _beneath: Fetching) -> Fetching:
        kind = type(self._store)
        if self._pid != os.getpid() and kind.__module__ not in _FORKABLE:
            raise Unusable(
                f"the {kind.__name__} was opened before a fork and cannot be read after it: use num_workers=0, which "
                'reads and decodes in threads, or multiprocessing_context="forkserver"'
            )
        return _StoreReads(self._store)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the store: the copy belongs to the unpickling process."""
        return _Layer, (self._store,)


class _Read:
    """Pending read of an object of a zarr store, which has no version: see ``ReadOperation``."""

    __slots__ = ("_buffer", "_data", "_owner", "attempts", "cancelled", "complete", "error", "retries", "span")

    version = ""

    def __init__(self, span: Span, buffer: Buffer | None, owner: Owner) -> None:
        self.span = span
        self.error: PenstockError | None = None
        self.attempts = self.retries = 0
        self.complete = self.cancelled = False
        self._buffer, self._owner = buffer, owner
        self._data = b""

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def look(self) -> None:
        """Do nothing: the store itself retries."""

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def take(self) -> bytes:
        self.check()
        return self._data

    def fill(self, data: bytes) -> None:
        self._data = data
        if self._buffer is not None:
            self._buffer.view()[:] = data

    def end(self, error: PenstockError | None) -> None:
        self.error = error
        self.complete = True
        self._owner.finished(self)


class _StoreReads:
    """``Fetching`` over a zarr store; its threads end when no reads are left."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401  a store of zarr's
        self._read, self._kind = reader_of(store), type(store).__name__
        self._todo: SimpleQueue[_Read] = SimpleQueue()
        self._lock = Lock()
        self._under_way = self._threads = 0

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        return [_Read(span, buffer, owner) for span, buffer in wanted]

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Queue reads for the threads: one thread per running read, up to 32."""
        for read in reads:
            with self._lock:
                self._under_way += 1
                more = self._threads < min(_THREADS, self._under_way)
                self._threads += more
            self._todo.put(cast("_Read", read))
            if more:
                Thread(target=self._work, name="penstock-zarr", daemon=True).start()

    def cancel_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Cancel reads: queued reads do not begin, and reads under way do not fill their buffer."""
        with self._lock:
            for read in reads:
                cast("_Read", read).cancelled = True

    stop_reads = cancel_reads

    def concurrency(self) -> int:
        return _THREADS

    def _work(self) -> None:
        while True:
            with self._lock:
                # Otherwise the queue has a read for each idle thread.
                if self._threads > self._under_way:
                    self._threads -= 1
                    return
            self._carry_out(self._todo.get())
            with self._lock:
                self._under_way -= 1

    def _carry_out(self, read: _Read) -> None:
        where = f"{self._kind}:{read.span.key}"
        error: PenstockError | None = None
        try:
            if read.cancelled:
                raise Cancelled("cancelled", url=where)
            read.attempts = 1
            data = self._taken(read.span, where)
            with self._lock:
                if read.cancelled:
                    raise Cancelled("cancelled", url=where)
                read.fill(data)
        except PenstockError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  stores raise what they like
            error = Transient(f"the store failed with {type(failure).__name__}", url=where)
            error.__cause__ = failure
        read.end(error)

    def _taken(self, span: Span, where: str) -> bytes:
        data = self._read(span.key, span.start, span.stop)
        if data is None:
            raise NotFound("the object does not exist", url=where)
        if span.stop is not None and len(data) != span.stop - span.start:
            raise Truncated(f"received {len(data)} bytes instead of {span.stop - span.start}", url=where)
        return data
