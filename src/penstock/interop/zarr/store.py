"""``Store``: the objects below one URL, as zarr asks for them."""

from __future__ import annotations

from asyncio import gather
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from zarr.abc.store import Store as AbstractStore
from zarr.core.buffer import Buffer, default_buffer_prototype

from penstock.buffer import flat
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
from penstock.interop.awaiting import call, read, read_each, stat
from penstock.interop.zarr.ranges import checked, clipped, direct
from penstock.interop.zarr.sizes import ChunkSizes, array_of
from penstock.protocols.driver import Delete, List, Put
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse
from penstock.source import Source
from penstock.values import UNKNOWN_SIZE, Span, as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype

    from penstock.options import StoreOptions
    from penstock.values import Page

__all__ = ["Store"]


class Store(AbstractStore):
    """The objects below a URL as a Zarr store: ``zarr.open(Store("s3://bucket/tas.zarr"))``, ``xarray.open_zarr``.

    A chunk is one request, also where its size is not known, and many are under way at once: as many as zarr asks for
    (``zarr.config.set({"async.concurrency": 64})``). Only an object that is not there counts as missing, which zarr
    fills with the array's fill value; any other failure is an error. Nothing is cached. Use one from any thread and any
    event loop, several at once; it is pickled for spawned workers, and a forked child makes its own connections.

    Any method may raise any ``PenstockError``. A bucket that is not there is ``Unusable``, lest it be taken for an
    empty one; writing to a store that is read-only is ``ValueError``, as in all stores of zarr.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        store: StoreOptions | str | None = None,
        read_only: bool = False,
        forbidden_is_missing: bool = False,
    ) -> None:
        """Open nothing yet: no request is made.

        Args:
            url: The folder of the array or group, of any provider or profile.
            store: Options, or the name of a profile that has them; default: environment and profile.
            read_only: Refuse to write and delete.
            forbidden_is_missing: Take a refusal (403) for a missing object, too. S3 answers so to those who may not
                list a bucket, so a public dataset may need it; but then wrong credentials are not noticed either, and
                their chunks are filled.

        Raises:
            InvalidURL: The URL cannot be parsed, or names one object by a query.
            UnknownScheme: No provider has its scheme.
            ConfigError: Settings that cannot work; options of another provider.

        """
        super().__init__(read_only=read_only)
        location = parse(url)
        if public_url(location.url) != location.url:
            raise InvalidURL("a URL with a query names one object, and a Store holds many", url=location.url)
        self._location = location.at(location.key.rstrip("/"))
        self._given = store
        self._forbidden = forbidden_is_missing
        self._source = Source(location, store)
        self._root = as_folder(self._location.key)
        self._sizes = ChunkSizes()

    @property
    def url(self) -> str:
        """The URL, without ``/`` at its end."""
        return self._location.url

    @property
    def supports_writes(self) -> bool:
        """Whether the store takes objects: no request."""
        return self._source.supports(Put)

    @property
    def supports_deletes(self) -> bool:
        """Whether the store deletes objects: no request."""
        return self._source.supports(Delete)

    @property
    def supports_listing(self) -> bool:
        """Whether the store lists objects: no request."""
        return self._source.supports(List)

    def __eq__(self, other: object) -> bool:
        """Compare URLs, options and whether it may write."""
        return isinstance(other, Store) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]  # as all stores of zarr: read-only is one of the things compared

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    def __repr__(self) -> str:
        """Show the URL, and that it is read-only, and no options."""
        return f"Store({self.url!r}{', read_only=True' if self.read_only else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as URL and options; with secrets in them for workers only: ``Unusable``."""
        return self._again(read_only=self.read_only), ()

    def with_read_only(self, read_only: bool = False) -> Store:  # noqa: FBT001, FBT002  zarr's signature
        """Return another Store of the same URL that may write, or may not."""
        return self._again(read_only=read_only)()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return an object, or part of it; None where there is no such object.

        One request. Two where an offset is asked for, or a chunk is larger than all of its array that were read before,
        and three where a range goes beyond the object's end.
        """
        request = checked(byte_range)
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
        """Return parts of objects, in order, as ``get`` does: all requests are sent at once."""
        wanted = [(key, checked(request)) for key, request in key_ranges]
        await self._ensure_open()
        spans = [self._span(key, request) for key, request in wanted]
        each = iter(await read_each(self._source, [span for span in spans if span is not None]))
        got = [None if span is None else next(each) for span in spans]
        values = [self._value(*ask, found, prototype) for ask, found in zip(wanted, got, strict=True)]
        return [*await gather(*values)]

    async def exists(self, key: str) -> bool:
        """Say whether there is such an object: one request. A store that cannot be asked is an error, and not a no."""
        await self._ensure_open()
        try:
            await stat(self._source, self._full(key))
        except PenstockError as error:
            if not self._is_missing(error):
                raise
            return False
        return True

    async def getsize(self, key: str) -> int:
        """Return an object's size in bytes: one request. Raises ``NotFound``."""
        await self._ensure_open()
        with self._bucket_checked():
            return (await stat(self._source, self._full(key))).size

    async def getsize_prefix(self, prefix: str) -> int:
        """Return the bytes of all objects below a folder: one request for each 1,000 of them."""
        sizes = [entry.size async for page in self._pages(_folder(prefix)) for entry in page.entries]
        if UNKNOWN_SIZE in sizes:
            return await super().getsize_prefix(_folder(prefix))
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
            return await read(self._source, span)
        except Truncated as error:
            if error.retries:  # the connection broke, and the object does not end there
                raise
            return await self._clipped(key, request)

    async def _clipped(self, key: str, request: ByteRequest) -> bytes:
        """Read what there is of a request, by the object's size."""
        span = clipped(request, await stat(self._source, self._full(key)))
        return await read(self._source, span) if span.start != span.stop else b""

    async def _value(
        self, key: str, request: ByteRequest | None, got: bytes | PenstockError | None, prototype: BufferPrototype
    ) -> Buffer | None:
        """Return what one of many reads brought; what needs the object's size is asked for here."""
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
        """Say whether an error means that there is no such object."""
        if isinstance(error, NotFound):
            _check_bucket(error)
            return True
        return self._forbidden and isinstance(error, Forbidden)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object, atomically: one request, and for one of several parts one for each and three more.

        Raises:
            ValueError: The store is read-only.
            TypeError: The value is no ``Buffer`` of zarr's.
            InvalidURL: The store holds no object of this key.
            Unsupported: The store takes no objects; no request was made.

        """
        data = await self._writing(key, value)
        with self._bucket_checked():
            await call(self._put, self._full(key), data)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write an object unless there is one, atomically where the store has such a write (docs/stores.md)."""
        data = await self._writing(key, value)
        with self._bucket_checked(), suppress(AlreadyExists):
            await call(self._write, self._full(key), data, create_only=True)

    async def delete(self, key: str) -> None:
        """Delete an object: one request. A missing one is no error."""
        self._check_writable()
        await self._ensure_open()
        with self._bucket_checked():
            await call(self._source.delete, [self._full(key)])

    async def delete_dir(self, prefix: str) -> None:
        """Delete all objects below a folder: a request for each, up to 256 at once, and one for each 1,000 of them.

        Raises:
            ValueError: The store is read-only.
            InvalidURL: That is a whole bucket, or a directory that this process lives in: ``Store("s3://bucket")``
                cannot be cleared, nor opened with ``mode="w"``.

        """
        self._check_writable()
        folder = self._root + _folder(prefix)
        check_deletable(self._location.at(folder))
        self._source.require(Delete, folder)
        async for page in self._pages(_folder(prefix)):
            with self._bucket_checked():
                await call(self._source.delete, [entry.key for entry in page.entries])

    async def _writing(self, key: str, value: Buffer) -> memoryview:
        self._check_writable()
        await self._ensure_open()
        if not isinstance(value, Buffer):
            message = f"a Buffer of zarr's is written, not {type(value).__name__}"  # type: ignore[unreachable]
            raise TypeError(message)
        self._location.at(self._full(key))  # InvalidURL
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
        """Yield all keys: one request for each 1,000."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with ``prefix``, a string as in every object store: one request for each 1,000."""
        async for page in self._pages(prefix):
            for key in self._keys(page, self._root):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names right below a folder: one request for each 1,000."""
        folder = _folder(prefix)
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
        """Yield keys without what consoles leave, objects that end in ``/`` to show a folder."""
        return (entry.key.removeprefix(root) for entry in page.entries if not entry.key.endswith("/"))

    # -- what all of them use ----------------------------------------------------------------------------------------

    def _full(self, key: str) -> str:
        """Return the full key of an object; ``InvalidURL`` for one that no store holds, or that lies elsewhere."""
        if not key:
            raise InvalidURL("an empty key names no object", url=self.url)
        full = self._root + key
        if not key.isascii() or ".." in key:  # few are looked at closer: each read comes here
            self._location.at(full)
            if ".." in key.split("/"):
                raise InvalidURL("a key with '..' in it names no object of zarr's", url=self._source.url(full))
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


def _folder(prefix: str) -> str:
    return as_folder(prefix.rstrip("/"))


def _check_bucket(error: NotFound) -> None:
    """Refuse to take a missing bucket for a missing object: zarr would fill an array that it cannot see."""
    if error.missing == "bucket":
        raise Unusable(error.message, url=error.url) from error
