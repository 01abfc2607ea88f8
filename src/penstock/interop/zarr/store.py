"""``Store``: the objects below one URL as a zarr store."""

from __future__ import annotations

import re
from asyncio import gather
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as AbstractStore
from zarr.core.buffer import Buffer, default_buffer_prototype

from penstock.engine.buffer import flat
from penstock.engine.contracts.driver import UNKNOWN_BYTES, Delete, List, Put
from penstock.errors import (
    AlreadyExists,
    Forbidden,
    InvalidURL,
    NotFound,
    PenstockError,
    Truncated,
    Unusable,
    public_url,
)
from penstock.interop.awaiting import call, read, read_each, read_version, stat
from penstock.source import Source
from penstock.stores.urls import check_deletable, parse
from penstock.values import UNKNOWN_SIZE, Span, as_folder, span_in, switch

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype

    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta, Page


class _Index(NamedTuple):
    """Index of a shard: the shard's URL and version, and whether the index is at its end."""

    url: str = ""
    version: str = ""
    at_end: bool = False


# zarr reads the index of a shard, and then the chunks that it locates, in the same task.
_last: ContextVar[_Index] = ContextVar("penstock-shard", default=_Index())  # noqa: B039  immutable


class Store(AbstractStore):
    """The objects below a URL as a Zarr store: ``zarr.open(Store("s3://bucket/tas.zarr"))``, ``xarray.open_zarr``.

    A chunk costs one request, even if its size is not known, and zarr sets the number of parallel requests
    (``zarr.config.set({"async.concurrency": 64})``). Only an object that does not exist counts as missing: zarr then
    uses the array's fill value. Any other failure is an error. Nothing is cached. A store may be used from several
    threads and event loops in parallel. It can be pickled for spawned workers; a forked child opens its own
    connections.

    Any method may raise any ``PenstockError``. A missing bucket raises ``Unusable``, so that it is not taken for an
    empty one; writing to a read-only store raises ``ValueError``, as in all zarr stores.

    Args:
        url: The folder of the array or group, of any provider or profile. No request is made.
        store: Options, or the name of a profile that has them; default: environment and profile.
        read_only: Refuse to write and delete.
        forbidden_is_missing: Treat a refusal (403) as a missing object, too. S3 answers 403 for a missing object if
            the caller may not list the bucket, so a public dataset may need this. But then wrong credentials are
            not noticed either, and refused chunks get the fill value.

    Raises:
        InvalidURL: The URL cannot be parsed, or has a query, which names a single object.
        UnknownScheme: No provider has its scheme.
        ConfigError: The settings cannot work, or the options are of another provider.
        Unusable: ``read_only`` or ``forbidden_is_missing`` is neither True nor False.

    Example:
        >>> import zarr
        >>> from penstock.interop.zarr import Store
        >>> array = zarr.create_array(Store("s3://bucket/a.zarr"), shape=4, chunks=2, dtype="i4")
        >>> array[:] = 7
        >>> zarr.open_array(Store("s3://bucket/a.zarr", read_only=True))[2]
        array(7, dtype=int32)
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        store: StoreOptions | str | None = None,
        read_only: bool = False,
        forbidden_is_missing: bool = False,
    ) -> None:
        super().__init__(read_only=switch(read_only, "read_only"))
        location = parse(url)
        if public_url(location.url) != location.url:
            raise InvalidURL("a URL with a query names a single object, not a Store", url=location.url)
        self._location = location.at(location.key.rstrip("/"))
        self._given = store
        self._forbidden = switch(forbidden_is_missing, "forbidden_is_missing")
        self._source = Source(location, store)
        self._root = as_folder(self._location.key)
        self._sizes = ChunkSizes()

    @property
    def url(self) -> str:
        """The URL, without a trailing ``/``."""
        return self._location.url

    @property
    def source(self) -> Source:
        """The source of the objects, with this store's options."""
        return self._source

    @property
    def given(self) -> StoreOptions | str | None:
        """The options or the name of a profile, as given to the constructor; None by default."""
        return self._given

    @property
    def forbidden_is_missing(self) -> bool:
        """Whether a refusal (403) counts as a missing object."""
        return self._forbidden

    @property
    def supports_writes(self) -> bool:
        """Whether the store supports writes: no request."""
        return self._source.supports(Put)

    @property
    def supports_deletes(self) -> bool:
        """Whether the store supports deletion: no request."""
        return self._source.supports(Delete)

    @property
    def supports_listing(self) -> bool:
        """Whether the store supports listing: no request."""
        return self._source.supports(List)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self._identity() == other._identity()

    # Not hashable, as all zarr stores: equality includes ``read_only``.
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Store({self.url!r}{', read_only=True' if self.read_only else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as URL and options; with secrets only for worker processes, else raise ``Unusable``."""
        return self._again(read_only=self.read_only), ()

    def with_read_only(self, read_only: bool = False) -> Store:
        """Return a new Store of the same URL, read-only or writable."""
        return self._again(read_only=read_only)()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return an object, or part of it; None if the object does not exist.

        Costs one request; two for an offset, or for a chunk that is larger than all chunks of its array read before;
        three for a range that goes beyond the object's end.
        """
        request = check_byte_request(byte_range)
        if not self._is_open:
            await self._open()
        try:
            data = await (self._whole(key) if request is None else self._part(key, request))
        except PenstockError as error:
            if not self._is_missing(error):
                raise
            return None
        return _buffer(data, prototype)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of objects, in order, as ``get`` does; all requests are sent in parallel."""
        wanted = [(key, check_byte_request(request)) for key, request in key_ranges]
        await self._ensure_open()
        spans = [self._span(key, request) for key, request in wanted]
        each = iter(await read_each(self._source, [span for span in spans if span is not None]))
        got = [None if span is None else next(each) for span in spans]
        values = [self._value(*ask, found, prototype) for ask, found in zip(wanted, got, strict=True)]
        return [*await gather(*values)]

    async def exists(self, key: str) -> bool:
        """Return whether an object exists: one request; raise an error, not False, if the store cannot answer."""
        await self._ensure_open()
        try:
            await stat(self._source, self._full(key))
        except PenstockError as error:
            if not self._is_missing(error):
                raise
            return False
        return True

    async def getsize(self, key: str) -> int:
        """Return an object's size in bytes: one request; raise ``NotFound`` if it does not exist."""
        await self._ensure_open()
        with self._bucket_checked():
            return (await stat(self._source, self._full(key))).size

    async def getsize_prefix(self, prefix: str) -> int:
        """Return the total size, in bytes, of all objects below a folder: one request per 1,000 objects."""
        sizes = [entry.size async for page in self._pages(_normalize_folder(prefix)) for entry in page.entries]
        if UNKNOWN_SIZE in sizes:
            return await super().getsize_prefix(_normalize_folder(prefix))
        return sum(sizes)

    async def _whole(self, key: str) -> bytes:
        array = array_of(key)
        data = await read(self._source, Span(self._full(key), most=self._sizes.bound(array)))
        self._sizes.add(array, len(data))
        return data

    async def _part(self, key: str, request: ByteRequest) -> bytes:
        span = self._span(key, request)
        if span is None:
            return await self._clipped(key, request)
        try:
            return await self._of_one_version(span)
        except Truncated as error:
            # The connection broke: the object does not end there.
            if error.retries:
                raise
            return await self._clipped(key, request)

    async def _of_one_version(self, span: Span) -> bytes:
        """Read a part of an object: a chunk of a shard in the version of the index that the task has read."""
        index, url = _last.get(), self._source.url(span.key)
        if index.url == url and (span.start > 0 or (index.at_end and not span.start)):
            return await read(self._source, span._replace(etag=index.version))
        data, version = await read_version(self._source, span)
        if span.start <= 0:
            _last.set(_Index(url, version, at_end=span.start < 0))
        return data

    async def _clipped(self, key: str, request: ByteRequest) -> bytes:
        """Read the part of a request within the object; a HEAD returns the size."""
        span = clip_request(request, await stat(self._source, self._full(key)))
        return await read(self._source, span) if span.start != span.stop else b""

    async def _value(
        self, key: str, request: ByteRequest | None, got: bytes | PenstockError | None, prototype: BufferPrototype
    ) -> Buffer | None:
        """Return the value of one of many reads; read again, with a HEAD, if the object's size is needed."""
        if isinstance(got, bytes):
            if request is None:
                self._sizes.add(array_of(key), len(got))
            return _buffer(got, prototype)
        if got is None or isinstance(got, Truncated):
            return await self.get(key, prototype, request)
        if not self._is_missing(got):
            raise got
        return None

    def _span(self, key: str, request: ByteRequest | None) -> Span | None:
        full = self._full(key)
        if request is None:
            return Span(full, most=self._sizes.bound(array_of(key)))
        return direct(full, request, self._source.options.read.split_bytes)

    def _is_missing(self, error: PenstockError) -> bool:
        """Return whether an error means that the object does not exist."""
        if isinstance(error, NotFound):
            _check_bucket(error)
            return error.missing != "target"
        return self._forbidden and isinstance(error, Forbidden)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object, atomically: one request; for an object of several parts one per part and three more.

        Raises:
            ValueError: The store is read-only.
            TypeError: The value is not a ``Buffer`` of zarr's.
            InvalidURL: The store cannot hold an object of this key.
            Unsupported: The store does not support writes; no request was made.
        """
        data = await self._writing(key, value)
        with self._bucket_checked():
            await call(self._put, self._full(key), data)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write an object unless it exists, atomically if the store supports that (docs/stores.md)."""
        data = await self._writing(key, value)
        with self._bucket_checked(), suppress(AlreadyExists):
            await call(self._write, self._full(key), data, create_only=True)

    async def delete(self, key: str) -> None:
        """Delete an object: one request. A missing object is not an error."""
        self._check_writable()
        await self._ensure_open()
        with self._bucket_checked():
            await call(self._source.delete, [self._full(key)])

    async def delete_dir(self, prefix: str) -> None:
        """Delete all objects below a folder: one request each, up to 256 in parallel, and a listing per 1,000 objects.

        Raises:
            ValueError: The store is read-only.
            InvalidURL: The folder is a whole bucket, or the working or home directory or a parent of one of them:
                ``Store("s3://bucket")`` can be neither cleared nor opened with ``mode="w"``.
        """
        self._check_writable()
        folder = self._root + _normalize_folder(prefix)
        check_deletable(self._location.at(folder))
        self._source.require(Delete, folder)
        async for page in self._pages(_normalize_folder(prefix)):
            with self._bucket_checked():
                await call(self._source.delete, [entry.key for entry in page.entries])

    async def _writing(self, key: str, value: Buffer) -> memoryview:
        self._check_writable()
        await self._ensure_open()
        if not isinstance(value, Buffer):
            message = f"value must be a Buffer of zarr, got {type(value).__name__}"  # type: ignore[unreachable]
            raise TypeError(message)
        self._location.at(self._full(key))  # raises InvalidURL
        _last.set(_Index())
        return flat(value.as_numpy_array())

    def _put(self, full: str, data: memoryview) -> None:
        if data.nbytes <= self._source.options.write.part_bytes:
            self._source.put(full, data)
        else:
            self._write(full, data, create_only=False)

    def _write(self, full: str, data: memoryview, *, create_only: bool) -> None:
        with self._source.open_write(full, create_only=create_only) as file:
            file.write(data)

    # -- listing -----------------------------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys: one request per 1,000."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with the string ``prefix``, not only whole components: one request per 1,000."""
        async for page in self._pages(prefix):
            for key in self._keys(page, self._root):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below a folder: one request per 1,000."""
        folder = _normalize_folder(prefix)
        async for page in self._pages(folder, delimiter="/"):
            for key in self._keys(page, self._root + folder):
                yield key
            for each in page.prefixes:
                if name := each.removeprefix(self._root + folder).rstrip("/"):
                    yield name

    async def _pages(self, prefix: str, delimiter: str = "") -> AsyncIterator[Page]:
        await self._ensure_open()
        pages = self._source.pages(self._root + prefix, delimiter=delimiter)
        while True:
            with self._bucket_checked():
                page = await call(next, pages, None)
            if page is None:
                return
            yield page

    @staticmethod
    def _keys(page: Page, root: str) -> Iterator[str]:
        """Return the keys of a page, relative to ``root``, without the directory markers of consoles (``…/``)."""
        return (entry.key.removeprefix(root) for entry in page.entries if not entry.key.endswith("/"))

    # -- shared helpers ----------------------------------------------------------------------------------------------

    def _full(self, key: str) -> str:
        """Return the full key of an object; raise ``InvalidURL`` for an invalid key or one outside this folder."""
        if not key:
            raise InvalidURL("an empty key names no object", url=self.url)
        full = self._root + key
        # Every read comes here, so only the few unusual keys are checked in full.
        if not key.isascii() or ".." in key:
            self._location.at(full)
            if ".." in key.split("/"):
                raise InvalidURL("a key with '..' is not a key of zarr", url=self._source.url(full))
        return full

    def _again(self, *, read_only: bool) -> partial[Store]:
        return partial(
            type(self), self.url, store=self._given, read_only=read_only, forbidden_is_missing=self._forbidden
        )

    def _identity(self) -> tuple[str, StoreOptions | str | None, bool, bool]:
        return self.url, self._given, self.read_only, self._forbidden

    @contextmanager
    def _bucket_checked(self) -> Iterator[None]:
        try:
            yield
        except NotFound as error:
            _check_bucket(error)
            raise


def _buffer(data: bytes, prototype: BufferPrototype | None) -> Buffer:
    return (prototype or default_buffer_prototype()).buffer.from_bytes(data)


def _normalize_folder(prefix: str) -> str:
    return as_folder(prefix.rstrip("/"))


def _check_bucket(error: NotFound) -> None:
    """Raise ``Unusable`` if the bucket is missing: as a missing object, zarr would replace it by the fill value."""
    if error.missing == "bucket":
        raise Unusable(error.message, url=error.url) from error


def check_byte_request(request: ByteRequest | None) -> ByteRequest | None:
    """Return a valid byte request unchanged; return None, the whole object, for an offset of 0."""
    match request:
        case None | OffsetByteRequest(offset=0):
            return None
        case RangeByteRequest(start=start, end=stop) if 0 <= start <= stop:
            return request
        case OffsetByteRequest(offset=length) | SuffixByteRequest(suffix=length) if length >= 0:
            return request
        case RangeByteRequest() | OffsetByteRequest() | SuffixByteRequest():
            message = f"Unexpected byte_range, got {request}: it begins before byte 0, or ends before it begins"
            raise ValueError(message)
    message = f"Unexpected byte_range, got {request}."  # type: ignore[unreachable]  # zarr's own wording
    raise TypeError(message)


def direct(key: str, request: ByteRequest, most_bytes: int) -> Span | None:
    """Return the span of a request; None if the object's size must be known first.

    The size is needed for an offset, for an empty request, and for a request of more than ``most_bytes``, which is read
    in parts of one version.
    """
    match request:
        case RangeByteRequest(start=start, end=stop) if 0 < stop - start <= most_bytes:
            return Span(key, start, stop)
        case SuffixByteRequest(suffix=length) if 0 < length <= most_bytes:
            return Span(key, -length)
    return None


def clip_request(request: ByteRequest, meta: ObjectMeta) -> Span:
    """Return the span of a request in the object that ``meta`` describes, bound to that version.

    Bytes after the object's end are left out, as zarr requires: the span may be empty.
    """
    size = meta.size
    match request:
        case RangeByteRequest(start=start, end=stop):
            low, high = min(start, size), min(stop, size)
        case OffsetByteRequest(offset=offset):
            low, high = min(offset, size), size
        case SuffixByteRequest(suffix=length):
            low, high = max(0, size - length), size
    return span_in(meta, low, high)


# A chunk's key ends in its indices: ``c/0/1`` and ``c.0.1`` in version 3, ``0.1`` and ``0/1`` in version 2 and in
# version 3's ``v2`` encoding; ``c`` alone is the chunk of a scalar (zarr-specs, "Chunk key encoding").
_INDICES = re.compile(r"(?:^|/)(?:c(?:[./][0-9]+)*|[0-9]+(?:[./][0-9]+)*)$").search
# A chunk may exceed the largest one so far by 1/16 of it.
_SPARE = 16


def array_of(key: str) -> str | None:
    """Return the name of the array with the chunk ``key``; None for other objects, such as metadata."""
    found = _INDICES(key)
    return None if found is None else key[: found.start()]


class ChunkSizes:
    """The size of the largest chunk of each array so far.

    May be used by any thread: a lost update only costs a read a second request.
    """

    __slots__ = ("_most",)

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def bound(self, array: str | None) -> int:
        """Return the most bytes to expect of a chunk of ``array``; for None, of any object."""
        return UNKNOWN_BYTES if array is None else self._most.get(array, UNKNOWN_BYTES)

    def add(self, array: str | None, size_bytes: int) -> None:
        if array is not None and size_bytes > self._most.get(array, 0):
            self._most[array] = size_bytes + size_bytes // _SPARE
