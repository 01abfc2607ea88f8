"""Penstock's stores for libraries that open files through fsspec: ``s3://`` without s3fs. ``register`` asks for it.

What is lost against Penstock's own calls: one scheme for each ``register``; files are opened to read, to replace
(``wb``) or to create (``xb``), never to append or to change; keys that end in ``/`` or hold an empty part cannot be
named; buckets are neither listed nor made; a directory is a prefix that something lies below, so ``mkdir`` does nothing
and an empty one is not there. What is not lost: errors are Penstock's, reads go in parallel ranges of one version, and
a write is atomic.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fsspec import AbstractFileSystem, register_implementation

from penstock.errors import InvalidURL, NotFound, Unusable
from penstock.options import StoreOptions
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse, scheme_provider
from penstock.source import open_source
from penstock.values import UNKNOWN_SIZE
from penstock.verbs import copy, delete
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from penstock.source import Reader, Source, Writer
    from penstock.values import ObjectMeta, Page

__all__ = ["PenstockFileSystem", "register"]


def register(store: StoreOptions | str | None = None, *, scheme: str = "s3") -> None:
    """Have fsspec open ``s3://`` with Penstock from here on, in this process, also where s3fs is installed.

    ``scheme`` names another of Penstock's schemes instead, a third party's too. ``store``'s options are for every URL;
    default: environment and profile. Call it where the program begins, before anything opens a URL: file systems that
    exist already stay what they are. A process that is spawned registers again.

    Raises:
        UnknownScheme: No provider has ``scheme``.
        ConfigError: ``store`` holds options of another provider.

    """
    kind = _kind_of(scheme)
    if isinstance(store, StoreOptions):
        scheme_provider(scheme).take(store)
    kind.default = store
    register_implementation(scheme, kind, clobber=True)


class PenstockFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec ships no type information
    """A file system of buckets: paths are ``bucket/key``, with or without ``s3://`` before them.

    Nothing is cached: what a method says is what the store says now. Errors are raised, also by ``exists``.
    """

    protocol = "s3"
    cachable = False
    default: ClassVar[StoreOptions | str | None] = None

    def __init__(self, store: StoreOptions | str | None = None) -> None:
        """Open nothing yet."""
        super().__init__()
        self.store = store

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as scheme and options, which refuse where they hold secrets."""
        return _opened, (self.protocol, self.store)

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> dict[str, Any]:  # noqa: ARG003  fsspec's signature
        """Give a file system that a URL opens the registered options, so that they travel with it."""
        return {} if cls.default is None else {"store": cls.default}

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:  # noqa: FBT001, FBT002  fsspec's signature
        """Return what lies right below a path, or the file itself: a request for each 1,000, and one more for a file.

        Raises:
            NotFound: There is neither.

        """
        source, key = self._place(path)
        pages = [*source.pages(_below(key), delimiter="/")]
        found = [each for page in pages for each in _described(source, page)]
        if key and not any(_full(page) for page in pages):
            found = [self.info(path)]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Describe a file or a directory: ``name``, ``size``, ``type``, a file's ``ETag`` and ``LastModified``.

        A request, two where it is no file. Raises ``NotFound``.
        """
        source, key = self._place(path)
        try:
            if key:
                return _file(source, source.head(key))
        except NotFound:
            if not _full(source.page(_below(key))):
                raise
        return _directory(source, key)

    def exists(self, path: str, **_: object) -> bool:
        """Say whether something is there. A store that cannot be asked is an error, and not a no."""
        return self._kind(path) != ""

    def isdir(self, path: str) -> bool:
        """Say whether something lies below, as ``exists`` does."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Say whether it is an object, as ``exists`` does."""
        return self._kind(path) == "file"

    def modified(self, path: str) -> datetime:
        """Return when an object was written, by the store's clock; of a directory the newest below.

        Raises:
            Unusable: The store does not say.

        """
        source, key = self._place(path)
        if self.info(path)["type"] == "directory":
            found = [each.modified for page in source.pages(_below(key)) for each in page.entries]
        else:
            found = [source.head(key).modified]
        written = max((each for each in found if each is not None), default=None)
        if written is None:
            raise Unusable("this store does not say when objects were written", url=self._url(path))
        return datetime.fromtimestamp(written, UTC)

    def mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002  fsspec's
        """Do nothing: a prefix needs no making."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002  fsspec's signature
        """Do nothing."""

    def rmdir(self, path: str) -> None:
        """Do nothing."""

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002
        """Delete files, many at once; with ``recursive`` what lies below. Missing ones are no error.

        Raises:
            InvalidURL: A whole bucket.

        """
        for each in (path,) if isinstance(path, str) else path:
            check_deletable(parse(self._url(each)))
        paths: Iterable[str] = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        delete([self._url(each) for each in paths if "/" in each], store=self.store)

    def rm_file(self, path: str) -> None:
        """Delete a file: one request. A missing one is no error."""
        delete(self._url(path), store=self.store)

    def cp_file(self, path1: str, path2: str, **_: object) -> None:
        """Copy a file: within a bucket on the server's side."""
        copy(self._url(path1), self._url(path2), store=self.store)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        *,
        autocommit: bool = True,
        **_: object,
    ) -> Reader | Writer | _Held:
        if mode == "rb":
            return open_object(self._url(path), store=self.store)
        if mode not in ("wb", "xb"):
            raise Unusable(f"objects are opened 'rb', 'wb' or 'xb', not {mode!r}", url=self._url(path))
        writer = open_object(self._url(path), mode, store=self.store)  # type: ignore[call-overload]  # one of the two
        return writer if autocommit else _Held(writer)

    def _kind(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except NotFound:
            return ""

    def _place(self, path: str) -> tuple[Source, str]:
        return open_source(self._url(path), self.store)

    def _url(self, path: str) -> str:
        bare = self._strip_protocol(path)
        if not bare:
            raise InvalidURL(f"buckets are not listed: name one, {self.protocol}://bucket/…")
        return f"{self.protocol}://{bare}"


@cache
def _kind_of(scheme: str) -> type[PenstockFileSystem]:
    """Return the class of one scheme's file systems: fsspec keeps a scheme with the class."""
    scheme_provider(scheme)
    return (
        PenstockFileSystem
        if scheme == PenstockFileSystem.protocol
        else type(PenstockFileSystem.__name__, (PenstockFileSystem,), {"protocol": scheme})
    )


def _opened(scheme: str, store: StoreOptions | str | None) -> PenstockFileSystem:
    return _kind_of(scheme)(store)


class _Held(io.BufferedIOBase):
    """A file that its file system's transaction publishes: closing it does not."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    @property
    def name(self) -> str:
        return self._writer.name

    @property
    def mode(self) -> str:
        return self._writer.mode

    def writable(self) -> bool:
        self._check_open()
        return True

    def tell(self) -> int:
        self._check_open()
        return self._writer.tell()

    def write(self, data: object, /) -> int:
        self._check_open()
        return self._writer.write(data)

    def commit(self) -> None:
        """Publish."""
        self._writer.close()

    def discard(self) -> None:
        """Publish nothing."""
        self._writer.abort()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            message = f"this file is closed, and is published when the transaction ends: {self.name}"
            raise ValueError(message)


def _full(page: Page) -> bool:
    return bool(page.entries or page.prefixes)


def _described(source: Source, page: Page) -> list[dict[str, Any]]:
    # What ends in "/" was put there by a console that shows folders: it is the directory, and not in it.
    entries = [each for each in page.entries if not each.key.endswith("/")]
    return [_file(source, each) for each in entries] + [_directory(source, each) for each in page.prefixes]


def _file(source: Source, meta: ObjectMeta) -> dict[str, Any]:
    written = None if meta.modified is None else datetime.fromtimestamp(meta.modified, UTC)
    size = None if meta.size == UNKNOWN_SIZE else meta.size
    return _entry(source, meta.key, "file") | {"size": size, "ETag": meta.etag, "LastModified": written}


def _directory(source: Source, prefix: str) -> dict[str, Any]:
    return _entry(source, prefix.rstrip("/"), "directory") | {"size": 0}


def _entry(source: Source, key: str, kind: str) -> dict[str, Any]:
    return {"name": source.url(key).partition("://")[2].rstrip("/"), "type": kind}


def _below(key: str) -> str:
    return f"{key}/" if key else ""
