"""The file system: fsspec's methods over sources, blocking ones here and coroutines in ``coroutines``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.asyn import get_loop
from fsspec.utils import stringify_path

from penstock.bulk.presign import presign
from penstock.errors import NotFound, Unsupported, Unusable
from penstock.interop.fsspec import entries, files
from penstock.interop.fsspec.compressed import Compressed, compressor
from penstock.interop.fsspec.coroutines import Coroutines
from penstock.interop.fsspec.listings import Listings, check_limits
from penstock.interop.fsspec.looks import STREAM, Looks, asked_by_pyarrow
from penstock.interop.fsspec.names import parent, stripped, url_of
from penstock.interop.fsspec.places import Places
from penstock.interop.fsspec.reads import read_slice_here
from penstock.interop.fsspec.storage import Storage
from penstock.interop.recent import Recent
from penstock.values import as_folder

if TYPE_CHECKING:
    import asyncio

    from penstock.interop.arrow.files import RandomFile
    from penstock.interop.arrow.layout import Layout
    from penstock.options import StoreOptions
    from penstock.source import Reader, Source
    from penstock.values import ObjectMeta

__all__ = ["PenstockFileSystem"]

_LAYOUTS = 64  # of Parquet files that pyarrow has opened
_WHOLE_BYTES = 4 << 20  # Parquet files up to here are one request: pyarrow opens each twice, and reads its end alone
_NO_BLOCKS = (  # as fsspec 2026.9 does, on any file system, with check_files=True, too
    "blockcache:: joins blocks of two versions where a file is replaced: take filecache:: or simplecache::"
)
_LIMITS = ("use_listings_cache", "listings_expiry_time", "max_paths")


class PenstockFileSystem(Coroutines):
    """A file system over any store: paths are URLs, or ``profile/key``, which is ``penstock://profile/key``.

    ``store`` and ``storage_options`` are options of the store, as ``ps.S3Options`` and its like have them
    (``endpoint=``, ``region=``, …). With ``asynchronous=True`` its coroutines are awaited on the caller's loops; its
    methods without an underscore then block the loop that they are called on, where they work at all.

    Nothing is kept, unless ``use_listings_cache=True`` asks for it: what a method says is what the store says now.
    Errors are raised, also by ``exists``. It may be used by several threads, and after a fork.

    Raises:
        ConfigError: An option that no store has, or a value that it cannot have.

    """

    protocol: ClassVar[str | tuple[str, ...]] = ("penstock", "msc")
    transaction_type = files.Publication
    cachable = False  # fsspec would tell two instances apart by a text, in which secrets are not shown
    default: ClassVar[StoreOptions | str | None] = None
    _pid: int

    def __init__(
        self,
        store: StoreOptions | str | None = None,
        *,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        batch_size: int | None = None,
        **storage_options: Any,  # noqa: ANN401  options of any store
    ) -> None:
        """Open nothing yet."""
        limits = {name: storage_options.pop(name) for name in _LIMITS if name in storage_options}
        check_limits(limits)
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size, **limits)
        self._storage = Storage(self._scheme(), type(self).default if store is None else store, storage_options)
        self._limits = limits
        self._places = Places(self._storage)
        self._listings = Listings(self.dircache if limits.get("use_listings_cache") else None)
        self._looks = Looks()
        self._layouts: Recent[Layout] = Recent(_LAYOUTS)

    @property
    def store(self) -> StoreOptions | str | None:
        """The options, as ``store=`` takes them."""
        return self._storage.store

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that blocking methods use: fsspec's, of the process that asks."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    # -- names -------------------------------------------------------------------------------------------------------

    @classmethod
    def _scheme(cls) -> str:
        return cls.protocol if isinstance(cls.protocol, str) else cls.protocol[0]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:  # noqa: ANN401  a path or a list of paths, as fsspec has it
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return stripped(stringify_path(path), cls._scheme())

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a name."""
        return url_of(self._strip_protocol(name), self._scheme())

    @classmethod
    def _parent(cls, path: str) -> str:
        return parent(cls._strip_protocol(path))

    def _url(self, path: str) -> str:
        return url_of(self._strip_protocol(path), self._scheme())

    def _place(self, path: str) -> tuple[Source, str]:
        return self._places.find(self._url(path))

    # -- descriptions ------------------------------------------------------------------------------------------------

    def ls(
        self,
        path: str,
        detail: bool = True,  # noqa: FBT001, FBT002  fsspec's signature
        *,
        refresh: bool = False,
        **_: object,
    ) -> list[Any]:
        """Return what lies right below a path, or the file itself: a request for each 1,000, and one more for a file.

        ``refresh`` takes no listing that is kept.

        Raises:
            NotFound: There is neither.

        """
        name = self._strip_protocol(path)
        found = None if refresh else self._listings.get(name)
        if found is None:
            since = self._listings.since()
            found = entries.ls(*self._place(name), self._strip_protocol)
            self._listings.keep(name, found, since)
        return [dict(each) for each in found] if detail else [each["name"] for each in found]

    def info(self, path: str, *, refresh: bool = False, **_: object) -> dict[str, Any]:
        """Describe a file or a directory: ``name``, ``size``, ``type``, a file's ``ETag`` and ``LastModified``.

        A request, two where it is no file. Raises ``NotFound``.
        """
        name = self._strip_protocol(path)
        if not refresh and (kept := self._listings.find(name)) is not None:
            return dict(kept)
        source, key = self._place(name)
        if asked_by_pyarrow(1) and key:
            try:
                meta = source.head(key)
            except NotFound:
                return entries.below(source, key, self._strip_protocol, raising=True)
            self._looks.keep(name, meta)
            return entries.file(source, meta, self._strip_protocol)
        return entries.info(source, key, self._strip_protocol)

    def exists(self, path: str, **_: object) -> bool:
        """Say whether something is there. A store that cannot be asked is an error, and not a no."""
        return self._kind(path) != ""

    def isdir(self, path: str) -> bool:
        """Say whether something lies below, as ``exists`` does."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Say whether it is an object, as ``exists`` does."""
        return bool(asked_by_pyarrow(1)) or self._kind(path) == "file"  # pyarrow opens it next: see looks

    def modified(self, path: str) -> datetime:
        """Return when an object was written, by the store's clock; of a directory the newest below.

        Raises:
            Unusable: The store does not say.

        """
        source, key = self._place(path)
        written = entries.latest(source, key, entries.info(source, key, self._strip_protocol))
        if written is None:
            raise Unusable("this store does not say when objects were written", url=self._url(path))
        return datetime.fromtimestamp(written, UTC)

    def created(self, path: str) -> datetime:
        """Return when an object was written: objects are replaced, never changed, so that is when it was created."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Return a text that differs for each version of a file: by its ETag, else by its size and time. A request."""
        found = self.info(path)
        version = found.get("ETag") or (found["size"], found.get("mtime"))
        return sha256(repr((self._url(path), found["type"], version)).encode()).hexdigest()

    def checksum(self, path: str) -> int:
        """Return what ``ukey`` does, as a whole number."""
        return int(self.ukey(path), 16)

    def sign(self, path: str, expiration: float = 100, **options: Any) -> str:  # noqa: ANN401  method= only
        """Return an address at which the object may be read for ``expiration`` seconds without credentials.

        ``method="PUT"`` makes one to write to; where a store wants headers with it (Azure), ``ps.presign`` tells them.
        """
        method = options.pop("method", "GET")
        if options:
            raise Unusable(f"sign takes expiration and method, not {', '.join(options)}", url=self._url(path))
        url = self._url(path)
        return str(presign(url, method=method, expires_s=expiration, store=self._storage.of(url)))

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget kept listings of a path, of all below and of what it lies in; or all."""
        name = None if path is None else self._strip_protocol(path)
        self._listings.forget(name)
        self._looks.forget(name)
        super().invalidate_cache(path)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return ``file[start:end]``, as Python slices: one request, and a HEAD where the slice needs the size."""
        source, key = self._place(path)
        return read_slice_here(source, (key, start, end))

    def pipe_file(self, path: str, value: object, mode: str = "overwrite", **_: object) -> None:
        """Write a file, atomically; ``mode="create"`` raises ``AlreadyExists`` where there is one."""
        self._pipe_here(path, value, mode)

    def cp_file(self, path1: str, path2: str, **_: object) -> None:
        """Copy a file: within a bucket on the server's side. Of a directory nothing is made."""
        files.copy(*self._place(path1), *self._place(path2))
        self.invalidate_cache(path2)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: object = None,
        cache_options: object = None,
        compression: str | None = None,
        **options: Any,  # noqa: ANN401  fsspec's signature
    ) -> Any:  # noqa: ANN401  the same
        """Open a file: ``rb``, ``wb`` (replaces), ``xb`` (creates), or in text mode with ``encoding=``.

        ``cache_type`` and ``block_size`` say how a file is read ahead (docs/fsspec.md). A writer publishes when it is
        closed well and never otherwise; in a transaction when that ends well.

        Raises:
            NotFound: There is no such file to read.
            AlreadyExists: ``x``, and there is one.
            Unusable: Another mode, ``cache_type`` or ``compression``.

        """
        if mode == "rb" and (asked := asked_by_pyarrow(1)):
            options["pyarrow"] = asked, self._looks.take(self._strip_protocol(path))
        compression = compressor(path, compression)
        if compression and "b" in mode and "r" not in mode:
            return Compressed(super().open(path, mode, block_size, cache_options, **options), compression)
        return super().open(path, mode, block_size, cache_options, compression, **options)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:  # noqa: ANN401  fsspec's signature
        source, key = self._object(path)
        if mode == "rb":
            if "pyarrow" in options:
                return self._open_for_pyarrow(source, key, *options["pyarrow"])
            kind = options.get("cache_type", "readahead")
            if kind == "none" and "size" in options:
                raise Unsupported(_NO_BLOCKS, url=self._url(path))
            return files.open_to_read(source, key, kind, options.get("block_size"))
        writer = files.open_to_write(source, key, mode)
        self._listings.wait_for(writer)
        self.invalidate_cache(path)
        return writer if options.get("autocommit", True) else files.Held(writer)

    def _open_for_pyarrow(self, source: Source, key: str, asked: str, seen: ObjectMeta | None) -> RandomFile | Reader:
        """Open the file that pyarrow's own handler of ours would read from; what is read from front to back, ahead."""
        from penstock.interop.arrow.files import RandomFile

        meta = seen or source.head(key)
        if asked == STREAM:
            return source.open_read(key, meta)
        return RandomFile(source, meta, self._layouts, whole_bytes=_WHOLE_BYTES)

    def mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,  # noqa: FBT001, FBT002  fsspec's signature
        maxdepth: int | None = None,
        **_: object,
    ) -> None:
        """Copy files, as ``copy`` does, and delete what ``path1`` named before; nothing, where one of the two fails.

        Raises:
            Unusable: A directory would be moved into itself, and be deleted then.

        """
        if path1 == path2:
            return
        names = self._deletable(path1)
        deep = recursive and maxdepth is not None
        names = self.expand_path(names, recursive=deep, maxdepth=maxdepth)
        for into in [path2] if isinstance(path2, str) else path2:
            if recursive and as_folder(self._strip_protocol(into)).startswith(tuple(map(as_folder, names))):
                raise Unusable("a directory cannot be moved into itself", url=self._url(into))
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise")
        (self._rm_all if recursive and not deep else self._rm_here)(names)

    def rm_file(self, path: str) -> None:
        """Delete a file: one request. A missing one is no error."""
        self._rm_here([path])

    def mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002  fsspec's
        """Do nothing: a prefix needs no making."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002  fsspec's signature
        """Do nothing."""

    def rmdir(self, path: str) -> None:
        """Do nothing."""

    # -- travel ------------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Say whether the other one is of the same scheme and options, secrets included."""
        return isinstance(other, PenstockFileSystem) and self._identity() == other._identity()

    def __hash__(self) -> int:
        """Hash the scheme and the names of options."""
        return hash((self.protocol, repr(self.store), *self._storage.named))

    def _identity(self) -> tuple[object, ...]:
        return self.protocol, self.store, self._storage.named, self.asynchronous, self._limits

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as scheme and options; options with secrets for worker processes only: ``Unusable``."""
        return _again, (type(self), self._storage, self.asynchronous, self.batch_size, self._limits)

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """Return what ``from_dict`` makes an equal file system of.

        ``include_password=False`` leaves secrets out; with them in it the options go into no text: ``Unusable``.
        """
        kind = type(self)
        options = self._storage.plain(include_secrets=include_password) | self._limits
        if self.asynchronous:
            options["asynchronous"] = True
        return {"cls": f"{kind.__module__}:{kind.__name__}", "protocol": self._scheme(), "args": (), **options}


def _again(
    kind: type[PenstockFileSystem],
    storage: Storage,
    asynchronous: bool,  # noqa: FBT001  as pickles pass it
    batch_size: int | None,
    limits: dict[str, Any],
) -> PenstockFileSystem:
    options: dict[str, Any] = {"asynchronous": asynchronous, "batch_size": batch_size, **limits, **storage.named}
    return kind(storage.store, **options)
