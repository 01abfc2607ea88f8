"""Arrays of a dataset, opened from a URL, a mapping or an open array, each with its store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from penstock.data.zarr.arrays import StoredArray
from penstock.data.zarr.format.objects import arrays_of, is_opened, manifests_of, reader_of
from penstock.data.zarr.format.opening import open_arrays, with_names
from penstock.data.zarr.objects.locations import OwnObjects
from penstock.data.zarr.objects.virtual import document_at, of_manifests, records_above, records_at
from penstock.data.zarr.samples.arrangement import dims_of
from penstock.errors import Cancelled, NotFound, PenstockError, Transient, Truncated, Unusable
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.opening import Arrays
    from penstock.data.zarr.objects.virtual import VirtualArrays
    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.fetching import Fetching, PendingRead, ReadOwner
    from penstock.options import StoreOptions
    from penstock.source import Source
    from penstock.values import Span

__all__ = ["opened"]

# CF attributes that name other variables.
_NAMING = ("coordinates", "bounds", "grid_mapping", "ancillary_variables")


class _Manner(NamedTuple):
    """Options for opening arrays: see ``opened``."""

    store: StoreOptions | str | None
    decode_cf: bool | None
    forbidden_is_missing: bool


def opened(
    given: object,
    what: str,
    store: StoreOptions | str | None,
    *,
    decode_cf: bool | None,
    forbidden_is_missing: bool = False,
) -> dict[str, StoredArray]:
    """Return the arrays that an argument stands for, by name; an array passed directly has the name "".

    Args:
        given: The URL of an array or group, an open array or group, or a mapping from names to these.
        what: The name of the argument, for errors.
        store: Options, or the name of a profile.
        decode_cf: Whether to decode values by the CF attributes; None: only arrays that have such attributes.
        forbidden_is_missing: Also treat a refusal (403) as a missing object.

    Raises:
        Unusable: ``given`` has another type, is a group without arrays, or is an open object whose options differ from
            ``store``.
        NotFound: Neither an array nor a group exists.
        Damaged: The metadata is invalid.
        Unsupported: The metadata uses an extension that Penstock does not support.

    """
    return _opened(given, what, _Manner(store, decode_cf, forbidden_is_missing))


def _opened(given: object, what: str, manner: _Manner) -> dict[str, StoredArray]:
    if isinstance(given, str | os.PathLike):
        return _at(given, what, manner)
    # Before mappings: datasets of xarray are mappings, too.
    if is_opened(given):
        return _of_object(given, what, manner)
    if isinstance(given, Mapping):
        if not given:
            raise Unusable(f"{what} is an empty mapping: it names arrays by what they are called in a sample")
        for name in given:
            if not name or not isinstance(name, str):
                raise Unusable(f"{what} maps names to arrays, and {name!r} is no name")
        return {name: _single(name, each, what, manner) for name, each in given.items()}
    raise Unusable(
        f"{what} is the URL of a Zarr array or group, or a mapping from names to URLs, not a {type(given).__name__}"
        + ': of several arrays write {"name": URL, …}' * isinstance(given, list | tuple | set)
    )


def _single(name: object, given: object, what: str, manner: _Manner) -> StoredArray:
    found = _opened(given, f"{what}[{name!r}]", manner)
    if [*found] != [""]:
        raise Unusable(f"{what}[{name!r}] is a group, and one name stands for one array: {', '.join(found)}")
    return found[""]


def _at(url: str | os.PathLike[str], what: str, manner: _Manner) -> dict[str, StoredArray]:
    store, forbidden = manner.store, manner.forbidden_is_missing
    document = document_at(url, store)
    if document is not None:
        return _virtual(document, what, manner)
    source, key = open_source(url, store)
    try:
        layouts = open_arrays(source, as_folder(key), forbidden_is_missing=forbidden)
    except NotFound as error:
        above = None if error.missing == "bucket" else records_above(url, store)
        if above is None:
            raise absent(source, key, url, error) from None
        return _virtual(above, what, manner)
    if layouts.record_size is not None:
        return _virtual(records_at(source, layouts, key, store), what, manner)
    return {
        name: StoredArray.of(
            source,
            layout,
            OwnObjects(
                source,
                document=layouts.documents[layout.name].removeprefix(source.root),
                forbidden_is_missing=forbidden,
            ),
            decode_cf=manner.decode_cf,
        )
        for name, layout in _sampled(layouts, what).items()
    }


def _virtual(found: VirtualArrays, what: str, manner: _Manner) -> dict[str, StoredArray]:
    return {
        name: StoredArray.of(found.source, layout, found.objects(layout), decode_cf=manner.decode_cf)
        for name, layout in _sampled(found.arrays, what).items()
    }


def _sampled(layouts: Arrays, what: str) -> dict[str, Layout]:
    """Return the arrays of a sample: a group's arrays without coordinates, an image's finest, or the named array."""
    if not layouts and not layouts.refused:
        raise NotFound(f"{what} is a group without arrays", url=layouts.url)
    if layouts.whole:
        return {"": layouts[layouts.whole]}
    chosen = layouts if [*layouts] == [""] else _data(layouts)
    for name, error in layouts.refused.items():
        error.add_note(
            f'of a group, name the arrays that a sample has: {what}={{"name": "{layouts.url.rstrip("/")}/…"}}'
        )
        if name not in _coordinates(layouts):
            raise error
    if not chosen:
        raise Unusable(f"this group has coordinates only ({', '.join(layouts)}): name an array", url=layouts.url)
    return chosen


def _of_object(given: object, what: str, manner: _Manner) -> dict[str, StoredArray]:
    """Return the arrays of a zarr or xarray object: by the URL of its store, or through the store if it has no URL."""
    manifests = manifests_of(given)
    if manifests:
        return _virtual(of_manifests(manifests, manner.store), what, manner)
    found = arrays_of(given)
    chosen = _sampled(found.arrays, what)
    if not found.url:
        through = foreign_objects(found.store)
        return {
            name: StoredArray.of(through.source, layout, through, decode_cf=manner.decode_cf)
            for name, layout in chosen.items()
        }
    if found.given is not None and manner.store not in (None, found.given):
        raise Unusable(
            f"{what} is open in a Store with options of its own, and store= has others: pass no store=, and open what "
            "needs other options in a Store(url, store=…), too",
            url=found.url,
        )
    if found.own is not None and manner.store in (None, found.given):
        source, key = found.own, parse(found.url).key
    else:
        source, key = open_source(found.url, manner.store)
    prefix = as_folder(key)
    moved = {name: replace(layout, key=prefix + layout.key) for name, layout in chosen.items()}
    if [*moved] == [""]:
        moved[""] = with_names(source, moved[""])
    forbidden = manner.forbidden_is_missing or found.forbidden_is_missing
    return {
        name: StoredArray.of(
            source,
            layout,
            OwnObjects(source, document=layout.document_key, forbidden_is_missing=forbidden),
            decode_cf=manner.decode_cf,
        )
        for name, layout in moved.items()
    }


def _data(layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """Return a group's arrays without coordinates (named as their own dimension, or by an attribute of others)."""
    named = _coordinates(layouts)
    return {
        name: layout
        for name, layout in layouts.items()
        if dims_of(layout) != (name.rpartition("/")[2],) and name not in named
    }


def _coordinates(layouts: Mapping[str, Layout]) -> set[str]:
    return {word for layout in layouts.values() for word in _named(layout.attributes)}


def _named(attributes: Mapping[str, Any]) -> Iterable[str]:
    for each in _NAMING:
        value = attributes.get(each)
        if isinstance(value, str):
            yield from value.split()


_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_GLOB = re.compile(r"[*?\[]")
_LEVELS = 3  # levels of parent groups to look at


def absent(source: Source, key: str, given: str | os.PathLike[str], error: NotFound) -> NotFound:
    """Return the error for a URL without array or group; the message says what to write instead.

    Sends a HEAD for an object of that name, and opens the groups above: up to three times five requests, and a listing
    where the metadata is not consolidated. Errors of these requests are ignored.
    """
    if error.missing == "bucket":
        return error
    path, hints = key.strip("/"), list[str]()
    text = os.fspath(given)
    folder, _, name = path.rpartition("/")
    if name in _DOCUMENTS:
        hints.append(f"pass the URL of the array or group, without {name}")
    elif _GLOB.search(text):
        hints.append("a URL is literal: several arrays are a mapping from names to URLs")
    else:
        with suppress(PenstockError):
            hints.append(_object(source, path))
        if not any(hints):
            with suppress(PenstockError):
                hints.append(_group(source, folder, name))
    if not any(hints) and "://" not in text and not text.startswith(("/", "./", "../")):
        hints.append(f"{text!r} has no scheme, so it is a path of this machine: write s3://{text} for a bucket")
    return NotFound("; ".join([error.message, *filter(None, hints)]), url=error.url)


def _object(source: Source, path: str) -> str:
    [meta] = source.stat_existing([path])
    if meta is None:
        return ""
    return (
        "an object of that name is there, and no folder: NetCDF, HDF5, GRIB and TIFF files are read by references "
        "(kerchunk, VirtualiZarr), and a Zarr store in a ZIP file through zarr.open"
    )


def _group(source: Source, folder: str, name: str) -> str:
    """Return a hint that names the arrays of the innermost group above; "" without such a group."""
    for _ in range(_LEVELS):
        with suppress(NotFound):
            arrays = open_arrays(source, folder)
            return f"the group {source.url(folder)} has {arrays.named(name)}"
        if not folder:
            return ""
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    return ""


# Each thread waits for one read; the event loop of zarr carries out all of them.
_THREADS = 32
# Modules of stores that have no threads, locks or descriptors.
_FORKABLE = ("zarr.storage._memory",)


@dataclass(frozen=True, slots=True)
class ForeignObjects(OwnObjects):
    """Objects of an array that are read through a zarr store.

    Attributes:
        name: The name of the store, for errors.

    """

    name: str = ""

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
    return ForeignObjects(source.through(layer), name=kind)


class _Layer:
    """Layer that creates the ``Fetching`` over a zarr store, once per process."""

    def __init__(self, store: Any, kind: str) -> None:  # noqa: ANN401  a store of zarr's
        self._store, self._kind = store, kind
        self._pid = os.getpid()

    def __call__(self, _beneath: Fetching) -> Fetching:
        """Return the ``Fetching`` over the zarr store; the source's own ``Fetching`` is never used."""
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
    """Pending read of an object of a zarr store: see ``PendingRead``."""

    __slots__ = ("_buffer", "_data", "_owner", "attempts", "cancelled", "complete", "error", "retries", "span")

    def __init__(self, span: Span, buffer: Buffer | None, owner: ReadOwner) -> None:
        self.span = span
        self.error: PenstockError | None = None
        self.attempts = self.retries = 0
        self.complete = self.cancelled = False
        self._buffer, self._owner = buffer, owner
        self._data = b""

    @property
    def size_bytes(self) -> int:
        """Number of bytes held."""
        return len(self._data)

    def look(self) -> None:
        """Do nothing: the store itself retries."""

    def check(self) -> None:
        """Raise the error of the read, if any."""
        if self.error is not None:
            raise self.error

    def take(self) -> bytes:
        """Return the bytes, or raise the error of the read."""
        self.check()
        return self._data

    def fill(self, data: bytes) -> None:
        """Store the received bytes, and copy them into the buffer, if any."""
        self._data = data
        if self._buffer is not None:
            self._buffer.view()[:] = data

    def end(self, error: PenstockError | None) -> None:
        """Mark the read as complete and notify its owner."""
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

    def prepare_reads(self, wanted: Iterable[tuple[Span, Buffer | None]], owner: ReadOwner) -> list[PendingRead]:
        """Return a pending read for each span, in order."""
        return [_Read(span, buffer, owner) for span, buffer in wanted]

    def send_reads(self, reads: Iterable[PendingRead]) -> None:
        """Queue reads for the threads: as many threads as reads under way, up to 32."""
        for read in reads:
            with self._lock:
                self._under_way += 1
                more = self._threads < min(_THREADS, self._under_way)
                self._threads += more
            self._todo.put(cast("_Read", read))
            if more:
                Thread(target=self._work, name="penstock-zarr", daemon=True).start()

    def cancel_reads(self, reads: Iterable[PendingRead]) -> None:
        """Cancel reads: queued reads do not begin, and reads under way do not fill their buffer."""
        with self._lock:
            for read in reads:
                cast("_Read", read).cancelled = True

    stop_reads = cancel_reads

    def concurrency(self) -> int:
        """Return the number of threads."""
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
                raise Cancelled("called off", url=where)
            read.attempts = 1
            data = self._taken(read.span, where)
            with self._lock:
                if read.cancelled:
                    raise Cancelled("called off", url=where)
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
            raise NotFound("there is no such object", url=where)
        if span.stop is not None and len(data) != span.stop - span.start:
            raise Truncated(f"{len(data)} bytes came instead of {span.stop - span.start}", url=where)
        return data
