"""Arrays that a program has already opened with zarr or xarray: their layouts, and reads through their store."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from operator import itemgetter
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

from penstock.data.zarr.arrays.stored import OwnObjects
from penstock.data.zarr.format.cf import ATTRIBUTES
from penstock.data.zarr.format.metadata import Arrays
from penstock.data.zarr.format.tracing import Traced, trace_variable
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.errors import Cancelled, NotFound, PenstockError, Transient, Truncated, Unusable
from penstock.source import open_source
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.tracing import Elements
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, Owner, ReadOperation
    from penstock.source import Source

    Manifest: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]


class Opened(NamedTuple):
    """Arrays of one zarr store.

    Attributes:
        arrays: Layouts by path or variable name, "" for an array that was passed directly; ``key`` is relative to the
            root of the store.
        store: A ``zarr.abc.store.Store``; None if no array could be traced to a store.
        url: URL of the root of the store, if Penstock can read it too: a folder, or Penstock's own store; else "".
        own: Source of Penstock's own store, with the options of that store; None for other stores.
        given: These options, or the name of a profile; None if the store was created without.
        chosen: Elements that a selection of xarray takes, by name of the array and dimension.
        decodes: Whether a variable of xarray decodes values by CF, by name.
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


def is_opened(value: object) -> bool:
    """Return whether a value is an array or group of zarr, or a dataset, array or variable of xarray."""
    return _classify_object(value) != ""


def arrays_of(value: object) -> Opened:
    """Return the layouts of an open array or group of zarr, or of an object that xarray opened from one.

    No request for an array; for a group, zarr's requests to list its members. Coordinates of an xarray dataset are left
    out. Variables that cannot be traced to an array (loaded or computed) have no layout: their lookup raises an error
    that says what to pass instead.
    """
    kind = _classify_object(value)
    if not kind:
        raise Unusable(f"neither an array or group of zarr nor a dataset or array of xarray: {type(value).__name__}")
    arrays, stores, described = Arrays(), list[Any](), dict[str, Any]()
    chosen: dict[str, dict[str, Elements]] = {}
    decodes = dict[str, bool]()
    # In order of names: zarr lists a group in the order of responses, which differs between processes.
    for name, array, view in sorted(_iterate_arrays(value, kind), key=itemgetter(0)):
        if isinstance(array, PenstockError):
            arrays.refused[name] = array
            continue
        if _classify_object(array) == "group":
            described[name] = array.attrs
            continue
        document = {**array.metadata.to_dict()}
        where = array.store_path
        arrays.put(name, as_folder(where.path), document, document.get("attributes") or {}, str(where))
        if view is not None and name in arrays:
            arrays[name], chosen[name] = view.of(arrays[name])
            decodes[name] = view.decodes
        if not any(where.store == each for each in stores):
            stores.append(where.store)
    for name, attributes in described.items():
        arrays.describe(name, dict(attributes))
    if len(stores) > 1:
        raise Unusable(f"these variables lie in {len(stores)} stores of zarr: pass a mapping from names to their URLs")
    if kind == "array" and "" in arrays.refused:
        raise arrays.refused[""]
    return _in_store(arrays, stores[0] if stores else None)._replace(chosen=chosen, decodes=decodes)


class _View(NamedTuple):
    """Dimensions of a variable of xarray, its elements along each dimension of the array, and whether it decodes."""

    dims: tuple[str, ...]
    elements: tuple[Elements, ...]
    decodes: bool

    def of(self, layout: Layout) -> tuple[Layout, dict[str, Elements]]:
        """Return the layout with the names of xarray, which may be others, and the elements that a selection takes."""
        left = iter(self.dims)
        pairs = zip(dims_of(layout), self.elements, strict=True)
        layout = replace(layout, dims=tuple(name if isinstance(each, int) else next(left) for name, each in pairs))
        known = zip(dims_of(layout), self.elements, layout.shape, strict=True)
        return layout, {name: each for name, each, size in known if each != range(size)}


def manifests_of(value: object) -> dict[str, Manifest]:
    """Return metadata and manifest, by name, of the virtual variables of an xarray object that VirtualiZarr made.

    Empty without virtual variables; raises if there are virtual variables and a data variable that is not.
    """
    kind = _classify_object(value)
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
    layer = type(variable._data)  # noqa: SLF001  as in _traced
    return layer.__name__ == "ManifestArray" and layer.__module__.partition(".")[0] == "virtualizarr"


def _manifest(variable: Any) -> Manifest:  # noqa: ANN401  a variable of xarray
    """Return metadata and manifest of a variable, with the names and attributes that xarray took out of the array."""
    layer = variable._data  # noqa: SLF001  as in _traced
    encoded = {name: value for name, value in variable.encoding.items() if name in ATTRIBUTES}
    moved = {"dimension_names": list(variable.dims), "attributes": encoded | dict(variable.attrs)}
    return layer.metadata.to_dict() | moved, layer.manifest.dict()


def _classify_object(value: object) -> str:
    """Return ``group`` or ``array``; empty for other objects. Does not import zarr or xarray."""
    kinds = {"Dataset": "group", "Group": "group", "Array": "array", "DataArray": "array", "Variable": "array"}
    for each in type(value).__mro__:
        if each.__module__.partition(".")[0] in {"zarr", "xarray"} and each.__name__ in kinds:
            return kinds[each.__name__]
    return ""


def _iterate_arrays(value: Any, kind: str) -> Iterator[tuple[str, Any, _View | None]]:  # noqa: ANN401  of either library
    """Yield names, arrays of zarr (or errors), and the view of xarray (or None).

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
        if isinstance(found, Traced):
            yield str(name), found.array, _View(tuple(map(str, variable.dims)), found.chosen, found.decodes)
        else:
            yield str(name), found, None


def _in_store(arrays: Arrays, store: Any) -> Opened:  # noqa: ANN401  a store of zarr's, or None
    """Return arrays with the root URL of their store, if Penstock can read the same objects; else without URL."""
    module = type(store).__module__
    arrays.url = str(store or "")
    if module.startswith("penstock."):
        return Opened(arrays, store, store.url, store.source, store.given, store.forbidden_is_missing)
    is_local = module.startswith("zarr.") and type(store).__name__ == "LocalStore"
    return Opened(arrays, store, str(store.root) if is_local else "")


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

    In a forked process reads raise ``Unusable``: most stores have threads, which a forked process lacks, and would
    hang.
    """
    kind = type(store).__name__
    layer = _Layer(store, kind)
    source, _ = open_source(f"memory://zarr-{uuid4().hex}/")  # all its reads go to the layer
    # Of Icechunk: values of another snapshot are other values, also for a file of statistics.
    session = getattr(store, "session", None)
    snapshot = getattr(session, "snapshot_id", "")
    name = f"{kind}({snapshot})" if snapshot else kind
    return ForeignObjects(source.through(layer), name=name, snapshot=snapshot * getattr(session, "read_only", False))


class _Layer:
    """Layer that creates the ``Fetching`` over a zarr store, once per process."""

    def __init__(self, store: Any, kind: str) -> None:  # noqa: ANN401  a store of zarr's
        self._store, self._kind = store, kind
        self._pid = os.getpid()

    def __call__(self, _beneath: Fetching) -> Fetching:
        if self._pid != os.getpid() and type(self._store).__module__ not in _FORKABLE:
            raise Unusable(
                f"the {self._kind} was opened before a fork and cannot be read after it: use num_workers=0, which "
                'reads and decodes in threads, or multiprocessing_context="forkserver"'
            )
        return _StoreReads(self._store, self._kind)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the store: the copy belongs to the process that unpickles it, not to one before a fork."""
        return _Layer, (self._store, self._kind)


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

    def __init__(self, store: Any, kind: str) -> None:  # noqa: ANN401  a store of zarr's
        self._read, self._kind = reader_of(store), kind
        self._todo: SimpleQueue[_Read] = SimpleQueue()
        self._lock = Lock()
        self._under_way = self._threads = 0

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: Owner) -> list[ReadOperation]:
        return [_Read(span, buffer, owner) for span, buffer in wanted]

    def send_reads(self, reads: Iterable[ReadOperation]) -> None:
        """Queue reads for the threads: as many threads as reads under way, up to 32."""
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
            raise Truncated(f"{len(data)} bytes came instead of {span.stop - span.start}", url=where)
        return data
