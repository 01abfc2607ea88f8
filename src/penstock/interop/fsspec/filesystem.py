"""The file system: fsspec's blocking methods over sources.

``Storage`` converts fsspec's keyword arguments to the options of a URL's provider. ``BucketSources`` opens the source
of a URL; ``Looks`` keeps the metadata of a file until pyarrow opens it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.asyn import get_loop
from fsspec.utils import stringify_path

from penstock.copies import Copied, check_copies
from penstock.errors import ConfigError, NotFound, PenstockError, Unsupported, Unusable
from penstock.interop.fsspec import coroutines, files
from penstock.interop.fsspec.coroutines import Coroutines, Listings, parent, strip_scheme, url_of
from penstock.interop.fsspec.files import read_slice_here
from penstock.jobs.trees.find import presign
from penstock.options import StoreOptions
from penstock.options.parts import PART_KINDS
from penstock.options.private import given, hidden
from penstock.options.typed import convert_value, overlaid, suggest_word
from penstock.source import Source
from penstock.stores.urls import option_classes, parse, scheme_store
from penstock.values import as_folder

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from penstock.interop.arrow import Layout, RandomFile, Recent
    from penstock.source import Reader
    from penstock.stores.urls import Location
    from penstock.values import ObjectMeta

_LAYOUTS = 64  # of Parquet files that pyarrow has opened
# Parquet files up to this size are one request: pyarrow opens each file twice, and reads its end separately.
_WHOLE_BYTES = 4 << 20
# True of fsspec 2026.9 on any file system, also with check_files=True.
_NO_BLOCKS = "blockcache:: joins blocks of two versions where a file is replaced: take filecache:: or simplecache::"
_LIMITS = ("use_listings_cache", "listings_expiry_time", "max_paths")


class PenstockFileSystem(Coroutines):
    """A file system over any store: paths are URLs, or ``profile/key``, which is ``penstock://profile/key``.

    Each other scheme has a separate class (``schemes``): in that of ``msc``, ``profile/key`` is ``msc://profile/key``.

    Nothing is cached without ``use_listings_cache=True``: each method returns the store's current state. Errors are
    raised, also by ``exists``. A file system may be used by several threads, and after a fork.

    Args:
        store: Options, or the name of a profile; default: environment and profile.
        asynchronous: Await the coroutines on the caller's loops; the methods without an underscore then block the loop
            on which they are called, if they work at all.
        loop: Loop of the blocking methods, as in fsspec; default: fsspec's.
        batch_size: Most coroutines at a time, as in fsspec.
        **storage_options: Fields of ``ps.S3Options`` and similar classes (``endpoint=``, ``region=``, …), and fsspec's
            options of listings.

    Raises:
        ConfigError: No store has an option, or the option cannot have its value.

    Example:
        >>> from penstock.interop.fsspec import PenstockFileSystem
        >>> files = PenstockFileSystem(region="us-east-1")
        >>> files.ls("s3://bucket/train/", detail=False)[:2]
        ['s3://bucket/train/0', 's3://bucket/train/1']
    """

    protocol: ClassVar[str] = "penstock"
    transaction_type = files.Publication
    # fsspec's cache distinguishes instances by a text, which does not contain the secrets.
    cachable = False
    default: ClassVar[StoreOptions | str | None] = None
    _pid: int

    def __init__(
        self,
        store: StoreOptions | str | None = None,
        *,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        batch_size: int | None = None,
        **storage_options: Any,
    ) -> None:
        limits = {name: storage_options.pop(name) for name in _LIMITS if name in storage_options}
        if not limits.get("use_listings_cache") and (idle := [each for each in limits if each != "use_listings_cache"]):
            raise Unusable(f"{', '.join(idle)}: no listing is kept unless use_listings_cache=True is passed, too")
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size, **limits)
        self._storage = Storage(self._scheme(), type(self).default if store is None else store, storage_options)
        self._limits = limits
        self._places = BucketSources(self._storage)
        self._listings = Listings(self.dircache if limits.get("use_listings_cache") else None)
        self._looks = Looks()
        self._layouts: Recent[Layout] | None = None

    @property
    def store(self) -> StoreOptions | str | None:
        """The options, as ``store=`` takes them."""
        return self._storage.store

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of the blocking methods: fsspec's loop in the current process."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    # -- names -------------------------------------------------------------------------------------------------------

    @classmethod
    def _scheme(cls) -> str:
        return cls.protocol

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return strip_scheme(stringify_path(path), cls._scheme())

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a name."""
        return url_of(self._strip_protocol(name), self._scheme())

    _url = unstrip_protocol

    @classmethod
    def _parent(cls, path: str) -> str:
        return parent(cls._strip_protocol(path))

    def _place(self, path: str) -> tuple[Source, str]:
        return self._places.find(self._url(path))

    # -- descriptions ------------------------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, *, refresh: bool = False, **options: Any) -> list[Any]:
        """Return the entries directly below a path, or the file itself: one request per 1,000, one more for a file.

        Raise ``NotFound`` if neither exists.

        Args:
            path: A directory or a file.
            detail: Return a dict for each entry; False: its name.
            refresh: Ignore a cached listing.
            **options: Those that only tune; others raise ``Unsupported``.
        """
        files.check_options(options)
        name = self._strip_protocol(path)
        found = None if refresh else self._listings.get(name)
        if found is None:
            since = self._listings.since()
            found = coroutines.ls(*self._place(name), self._strip_protocol)
            self._listings.keep(name, found, since)
        return [dict(each) for each in found] if detail else [each["name"] for each in found]

    def info(self, path: str, *, refresh: bool = False, **options: Any) -> dict[str, Any]:
        """Return ``name``, ``size`` and ``type`` of a file or a directory; of a file also ``ETag``, ``LastModified``.

        Costs one request, two if it is not a file. Raise ``NotFound`` if neither exists.

        Args:
            path: A directory or a file.
            refresh: Ignore a cached listing.
            **options: As for ``ls``.
        """
        files.check_options(options)
        name = self._strip_protocol(path)
        if not refresh and (kept := self._listings.find(name)) is not None:
            return dict(kept)
        source, key = self._place(name)
        if asked_by_pyarrow() and key:
            try:
                meta = source.head(key)
            except NotFound:
                return coroutines.below(source, key, self._strip_protocol)
            self._looks.keep(name, meta)
            return coroutines.file(source, meta, self._strip_protocol)
        return coroutines.info(source, key, self._strip_protocol)

    def exists(self, path: str, **options: Any) -> bool:
        """Return whether a file or directory exists; raise an error, not False, if the store cannot answer."""
        files.check_options(options)
        return self._kind(path) != ""

    lexists = exists

    def isdir(self, path: str) -> bool:
        """Return whether the path is a directory; errors are raised as by ``exists``."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Return whether the path is an object; errors are raised as by ``exists``."""
        # pyarrow opens the file next, and ``open`` reports a missing file: see the comment above ``STREAM``.
        return bool(asked_by_pyarrow()) or self._kind(path) == "file"

    def modified(self, path: str) -> datetime:
        """Return when an object, or the newest one below a directory, was written; ``Unusable`` if unknown."""
        source, key = self._place(path)
        written = coroutines.latest(source, key, coroutines.info(source, key, self._strip_protocol))
        if written is None:
            raise Unusable("this store does not report modification times", url=self._url(path))
        return datetime.fromtimestamp(written, UTC)

    def created(self, path: str) -> datetime:
        """Return the same as ``modified``: objects are replaced, never changed, so each write is a creation."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Return a text that differs for each version of a file, by its ETag, else its size and time: one request."""
        found = self.info(path)
        version = found.get("ETag") or (found["size"], found.get("mtime"))
        return sha256(repr((self._url(path), found["type"], version)).encode()).hexdigest()

    def checksum(self, path: str) -> int:
        """Return the same as ``ukey``, as an integer."""
        return int(self.ukey(path), 16)

    def sign(self, path: str, expiration: float = 100, **options: Any) -> str:
        """Return a URL that reads the object, or writes it with ``method="PUT"``, for ``expiration`` seconds.

        If the store requires headers with it (Azure), ``ps.presign`` returns them.
        """
        method = options.pop("method", "GET")
        if options:
            raise Unusable(f"sign takes expiration and method, not {', '.join(options)}", url=self._url(path))
        url = self._url(path)
        return str(presign(url, method=method, expires_s=expiration, store=self._storage.of(url)))

    def invalidate_cache(self, path: str | None = None) -> None:
        """Drop the cached listings of a path, of everything below and of its parents; without a path, all."""
        name = None if path is None else self._strip_protocol(path)
        self._listings.forget(name)
        self._looks.forget(name)
        super().invalidate_cache(path)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return ``file[start:end]``, as in Python slices: one request, and a HEAD if the slice needs the size."""
        files.check_options(options)
        source, key = self._place(path)
        return read_slice_here(source, (key, start, end))

    def pipe_file(self, path: str, value: object, mode: str = "overwrite", **options: Any) -> None:
        """Write a file, atomically; ``mode="create"`` raises ``AlreadyExists`` if it exists.

        ``metadata=`` and ``content_type=`` are stored, as by ``open``; other options raise ``Unsupported``.
        """
        self._pipe_here(path, value, mode, options)

    def cp_file(self, path1: str, path2: str, copies: list[Copied] | None = None, **options: Any) -> None:
        """Copy a file, server-side within a bucket; do nothing for a directory.

        Args:
            path1: The file.
            path2: Its copy.
            copies: List to which the copy is appended, for ``mv``.
            **options: Those that only tune; others raise ``Unsupported``: a copy keeps the metadata of its source.
        """
        files.check_options(options, self._url(path2))
        copied = files.copy_entry(*self._place(path1), *self._place(path2))
        if copies is not None and copied is not None:
            copies.append(copied)
        self.invalidate_cache(path2)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: object = None,
        cache_options: object = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Open a file: ``rb``, ``wb`` (replaces), ``xb`` (creates), or in text mode with ``encoding=``.

        ``cache_type`` and ``block_size`` control the read-ahead (docs/fsspec.md). A write stores ``metadata=`` (also
        ``Metadata=``) and ``content_type=`` (``ContentType=``). A writer publishes only when it is
        closed successfully; in a transaction only when the transaction ends successfully.

        Returns:
            A file.

        Raises:
            NotFound: The file to read does not exist.
            AlreadyExists: Mode ``x``, and the file exists.
            Unusable: Any other mode, ``cache_type`` or ``compression``.
            Unsupported: An option that would be lost.
        """
        if mode == "rb" and (asked := asked_by_pyarrow()):
            options["pyarrow"] = asked, self._looks.take(self._strip_protocol(path))
        compression = files.compressor(path, compression)
        if compression and "b" in mode and "r" not in mode:
            return files.Compressed(super().open(path, mode, block_size, cache_options, **options), compression)
        return super().open(path, mode, block_size, cache_options, compression, **options)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        source, key = self._object(path)
        publishes = options.pop("autocommit", True)
        if mode == "rb":
            files.check_options(options, self._url(path), "pyarrow", "size")
            if "pyarrow" in options:
                return self._open_for_pyarrow(source, key, *options["pyarrow"])
            kind = options.get("cache_type", "readahead")
            if kind == "none" and "size" in options:
                raise Unsupported(_NO_BLOCKS, url=self._url(path))
            return files.open_to_read(partial(self._object, path), kind, options.get("block_size"))
        writer = files.open_to_write(source, key, mode, **files.attributes_of(options, self._url(path)))
        self._listings.wait_for(writer)
        self.invalidate_cache(path)
        return writer if publishes else files.TransactionFile(writer)

    def _open_for_pyarrow(self, source: Source, key: str, asked: str, seen: ObjectMeta | None) -> RandomFile | Reader:
        """Open a file as ``interop.arrow`` does for pyarrow: for random access, or as a stream with read-ahead."""
        from penstock.interop.arrow import RandomFile, Recent

        meta = seen or source.head(key, sums=asked == STREAM)
        if asked == STREAM:
            return source.open_read(key, meta)
        if self._layouts is None:
            self._layouts = Recent(_LAYOUTS)
        return RandomFile(source, meta, self._layouts, whole_bytes=_WHOLE_BYTES)

    def mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Copy files as ``copy`` does, then delete the files that ``path1`` named before the copy.

        If a copy fails, nothing is deleted. Raise ``Unusable``, and delete nothing, if a directory would be moved into
        itself, or if a copy may be its source under another name.
        """
        files.check_options(options)
        if path1 == path2:
            return
        names = self._deletable(path1)
        deep = recursive and maxdepth is not None
        names = self.expand_path(names, recursive=deep, maxdepth=maxdepth)
        for into in [path2] if isinstance(path2, str) else path2:
            if recursive and as_folder(self._strip_protocol(into)).startswith(tuple(map(as_folder, names))):
                raise Unusable("a directory cannot be moved into itself", url=self._url(into))
        copies: list[Copied] = []
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", copies=copies)
        check_copies(copies)
        (self._rm_all if recursive and not deep else self._rm_here)(names)

    def rm_file(self, path: str) -> None:
        """Delete a file: one request. A missing file is not an error."""
        self._rm_here([path])

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Do nothing: a prefix need not be created."""
        files.check_options(options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing."""

    def rmdir(self, path: str) -> None:
        """Do nothing."""

    # -- equality and pickling ---------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PenstockFileSystem) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.protocol, repr(self.store), *self._storage.named))

    def _identity(self) -> tuple[object, ...]:
        return self.protocol, self.store, self._storage.named, self.asynchronous, self._limits

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as scheme and options; with secrets only for worker processes, else raise ``Unusable``."""
        return _rebuild_filesystem, (type(self), self._storage, self.asynchronous, self.batch_size, self._limits)

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """Return the dictionary from which ``from_dict`` makes an equal file system.

        ``include_password=False`` omits secrets. Otherwise options with secrets raise ``Unusable``, because secrets are
        never written into a text.
        """
        kind = type(self)
        options = self._storage.plain(include_secrets=include_password) | self._limits
        if self.asynchronous:
            options["asynchronous"] = True
        return {"cls": f"{kind.__module__}:{kind.__name__}", "protocol": self._scheme(), "args": (), **options}


def _rebuild_filesystem(
    kind: type[PenstockFileSystem], storage: Storage, asynchronous: bool, batch_size: int | None, limits: dict[str, Any]
) -> PenstockFileSystem:
    options: dict[str, Any] = {"asynchronous": asynchronous, "batch_size": batch_size, **limits, **storage.named}
    return kind(storage.store, **options)


class BucketSources:
    """Sources by bucket. Thread-safe; after a fork the sources use the child's engines."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sources: dict[str, Source] = {}

    def find(self, url: str) -> tuple[Source, str]:
        location = parse(url)
        source = self._sources.get(location.root)
        if source is None:
            source = self._sources.setdefault(location.root, Source(location, self._storage.options(location)))
        return source, location.key


# ``pyarrow.fs.FSSpecHandler`` calls ``info`` once, and then ``isfile`` before each of two calls of ``open``: one for
# the schema, one for the data. ``open`` reports a missing file itself, so ``isfile`` makes no request. Both files are
# bound to the version of ``info``, because the offsets that pyarrow reads from the footer belong to that version. If
# the object was replaced meanwhile, reads raise ``Changed``; a new version is never read with old offsets. Other
# callers are not affected.


STREAM = "open_input_stream"  # pyarrow's method that opens a sequential stream
_OPENS = 2
_LASTS_S = 5.0
_MOST = 256


def asked_by_pyarrow() -> str:
    """Return the name of the pyarrow handler's method that called the caller; empty for all other callers."""
    # A thread started by C has no Python caller: f_back is then None, and sys._getframe(2) would raise.
    caller = sys._getframe(1).f_back  # noqa: SLF001  CPython has it
    return caller.f_code.co_name if caller and caller.f_globals.get("__name__") == "pyarrow.fs" else ""


class Looks:
    """Metadata of objects, each for two files that are opened within five seconds."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[ObjectMeta, int, float]] = {}

    def keep(self, name: str, meta: ObjectMeta) -> None:
        self._looks[name] = meta, _OPENS, monotonic() + _LASTS_S
        while len(self._looks) > _MOST:
            self._looks.pop(next(iter(self._looks)), None)

    def take(self, name: str) -> ObjectMeta | None:
        """Return the metadata for a file that is opened now; None if the store must be asked."""
        meta, left, until = self._looks.pop(name, (None, 0, 0.0))
        if meta is None or monotonic() > until:
            return None
        if left > 1:
            self._looks[name] = meta, left - 1, until
        return meta

    def forget(self, name: str | None = None) -> None:
        if name is None:
            self._looks.clear()
        else:
            self._looks.pop(name, None)


# Option names of s3fs, gcsfs and adlfs, and Penstock's names for them.
_ELSEWHERE = {
    "key": "access_key",
    "username": "access_key",
    "secret": "secret_key",
    "password": "secret_key",
    "endpoint_url": "endpoint",
    "anon": "anonymous",
    "account_name": "account",
    "credential": "token",
    "client_kwargs": "endpoint and region",
    "config_kwargs": "transport=ps.TransportOptions(…)",
    "requester_pays": "account",
    "default_block_size": "block_size of open()",
    "default_cache_type": "cache_type of open()",
}


class Storage:
    """Options of one file system: those of ``store=``, overridden by those that were passed by name.

    If all paths belong to one provider, the named options are checked and converted here. If paths may belong to
    several (``penstock://``), names that no provider has are refused here; the others are checked once a path selects
    the provider.
    """

    def __init__(self, scheme: str, store: StoreOptions | str | None, named: Mapping[str, object]) -> None:
        self.store = store
        self.named = dict(named)
        if not named:
            return
        if isinstance(store, str):
            message = f"store={store!r} names a profile: put {', '.join(named)} into the profile"
            raise ConfigError(message)
        kind = scheme_store(scheme)
        if not kind.profiles:
            self.store, self.named = self._over(kind.options), {}
        else:
            for name in named:
                _check_known(name)

    def options(self, location: Location) -> StoreOptions | str | None:
        return self._over(location.store.options) if self.named else self.store

    def of(self, url: str) -> StoreOptions | str | None:
        return self.options(parse(url)) if self.named else self.store

    def _over(self, kind: type[StoreOptions]) -> StoreOptions:
        values: dict[str, Any] = {name: _value(kind, name, value) for name, value in self.named.items()}
        over = kind(**values)
        if not isinstance(self.store, StoreOptions):
            return over
        if type(self.store) is not kind:
            neutral = {each.name for each in fields(StoreOptions)}
            under = kind(**{name: value for name, value in given(self.store).items() if name in neutral})
            return overlaid(under, over)
        return overlaid(self.store, over)

    def secrets(self) -> list[str]:
        """Return the names of options that hold, or may hold, a secret."""
        return [*hidden(self.store), *(name for name, value in self.named.items() if _secret(name, value))]

    def plain(self, *, include_secrets: bool) -> dict[str, Any]:
        """Return the options as JSON values: keywords for a file system with the same options."""
        secrets = self.secrets()
        if secrets and include_secrets:
            message = (
                f"the options hold secrets ({', '.join(secrets)}), not for text: pass include_password=False, "
                "and set them by the environment or a profile where the file system is loaded"
            )
            raise Unusable(message)
        if isinstance(self.store, str):
            return {"store": self.store}
        own = given(self.store) if self.store is not None else {}
        return {
            name: _serialize_option(name, value) for name, value in (own | self.named).items() if name not in secrets
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle for other uses than worker processes; raise ``Unusable`` if the options hold secrets.

        Pickling for worker processes (``ForkingPickler``) does not use this method.
        """
        if secrets := self.secrets():
            message = (
                f"a file system with secrets in its options ({', '.join(secrets)}) is pickled for worker processes "
                "only: set the environment where it is loaded, or name a profile"
            )
            raise Unusable(message)
        return _for_worker(self)


def _for_worker(storage: Storage) -> tuple[Callable[..., Storage], tuple[object, ...]]:
    return _again, (storage.store, storage.named)


def _again(store: StoreOptions | str | None, named: dict[str, object]) -> Storage:
    storage = Storage("", store, {})
    storage.named = named
    return storage


ForkingPickler.register(Storage, _for_worker)


def _check_known(name: str) -> None:
    known = list(dict.fromkeys(each.name for kind in option_classes() for each in fields(kind)))
    if name not in known:
        advice = _advice(name) or suggest_word(name, known, "")
        raise ConfigError(f"no store has an option {name!r}{advice}")


def _advice(name: str) -> str:
    return f": Penstock calls it {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""


def _value(kind: type[StoreOptions], name: str, value: object) -> object:
    """Return a value in the option's type: strings are converted, and dicts become the classes in ``PART_KINDS``."""
    field = next((each for each in fields(kind) if each.name == name), None)
    if field is None:
        if _advice(name):
            raise ConfigError(f"{kind.__name__} has no option {name!r}{_advice(name)}")
        # The class refuses the name, with a suggestion.
        return value
    if name in PART_KINDS and isinstance(value, dict):
        part = PART_KINDS[name]
        own = {each.name: each for each in fields(part)}
        for inner in value:
            if inner not in own:
                raise ConfigError(f"{part.__name__} has no option {inner!r}{suggest_word(inner, list(own), '')}")
        return part(**{inner: _convert_option(own[inner], each) for inner, each in value.items()})
    return _convert_option(field, value)


def _convert_option(field: Any, value: object) -> object:
    return convert_value(field, value, field.name) if isinstance(value, str) else value


def _secret(name: str, value: object) -> bool:
    for kind in option_classes():
        if name in kind.__dataclass_fields__:
            options: object = None
            # The value may be invalid alone, such as half of a pair: then it counts as a secret.
            with suppress(PenstockError):
                options = kind(**{name: value})  # type: ignore[arg-type]
            if options is None or hidden(options):
                return True
    return False


def _serialize_option(name: str, value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {inner: _serialize_option(inner, each) for inner, each in given(value).items()}
    if callable(value):
        raise Unusable(f"{name}= is a function, which text cannot hold: set it where the file system is loaded")
    return dict(value) if hasattr(value, "keys") else list(value) if isinstance(value, tuple) else value  # type: ignore[call-overload]
