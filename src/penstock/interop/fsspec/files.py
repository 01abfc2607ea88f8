"""Blocking functions and classes that open, write, copy, upload and download the files of a file system."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fsspec.caching import caches
from fsspec.transaction import Transaction
from fsspec.utils import isfilelike

from penstock.copies import Copied, copy_object
from penstock.errors import AlreadyExists, NotFound, PenstockError, Unusable
from penstock.source import open_source
from penstock.values import as_folder, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import IO

    from fsspec.callbacks import Callback

    from penstock.source import Reader, Source, Writer
    from penstock.values import ObjectMeta

__all__ = [
    "Held",
    "Publication",
    "block_bytes",
    "copy",
    "download",
    "is_folder",
    "open_to_read",
    "open_to_write",
    "pipe",
    "upload",
]

_PIECE_BYTES = 8 << 20
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 4 << 10, 64 << 20  # a file holds eight blocks


def block_bytes(cache_type: object, block_size: object, size: int) -> int:
    """Return the bytes of a read-ahead block, for an object of ``size`` bytes and fsspec's cache options.

    ``cache_type`` "none" gives 4 KiB, so that larger reads request exactly their bytes; "all" gives the whole object,
    up to 64 MiB. All other types give ``block_size`` to Penstock's own reader, which reads ahead during sequential
    reads; 0 means its default.

    Raises:
        Unusable: fsspec does not have this ``cache_type``, or ``block_size`` is not a number of bytes.

    """
    if cache_type not in caches:
        known = ", ".join(repr(each) for each in caches)
        raise Unusable(f"cache_type={cache_type!r}: fsspec has {known}")
    given = 0 if block_size in (None, "default") else whole(block_size, "block_size", 1)
    wanted = {"none": _LEAST_BLOCK_BYTES, "all": size}.get(str(cache_type), given)
    return max(_LEAST_BLOCK_BYTES, min(wanted, _MOST_BLOCK_BYTES)) if wanted else 0


def open_to_read(
    place: Callable[[], tuple[Source, str]], cache_type: object, block_size: object, meta: ObjectMeta | None = None
) -> Reader:
    """Open the version of ``meta``, or the current one (a HEAD). The file can be pickled if ``place`` can."""
    # Raise for invalid options before the first request.
    block_bytes(cache_type, block_size, 0)
    source, key = place()
    meta = meta or source.head(key, sums=True)
    reader = source.open_read(key, meta, block_bytes=block_bytes(cache_type, block_size, meta.size))
    reader.anew = partial(open_to_read, place, cache_type, block_size, meta)
    return reader


def open_to_write(source: Source, key: str, mode: str) -> Writer:
    """Open a file that replaces (``wb``) or creates (``xb``) an object; ``xb`` costs a HEAD.

    Raises:
        AlreadyExists: The object exists (``xb``). Also raised on close if another writer was faster.
        Unusable: Any other mode.

    """
    if mode not in ("wb", "xb"):
        raise Unusable(f"objects are opened 'rb', 'wb' or 'xb', not {mode!r}", url=source.url(key))
    if mode == "xb" and source.stat_existing([key])[0] is not None:
        raise AlreadyExists("there is an object already", url=source.url(key))
    return source.open_write(key, create_only=mode == "xb")


def pipe(source: Source, key: str, value: object, *, create: bool) -> None:
    """Write an object: one request up to the part size; above it, or with ``create``, through ``open_write``."""
    data = memoryview(value).cast("B") if memoryview(value).nbytes else memoryview(b"")  # type: ignore[arg-type]
    if not create and len(data) <= source.options.write.part_bytes:
        source.put(key, data)
        return
    with source.open_write(key, create_only=create) as writer:
        writer.write(data)


def copy(source: Source, key: str, target: Source, name: str) -> Copied | None:
    """Copy an object, server-side within a bucket; for a directory do nothing, since it is not an object."""
    try:
        return copy_object(source, key, target, name)
    except NotFound:
        _check_directory(source, key)
        return None


def is_folder(local: str) -> bool:
    """Return whether ``local`` is a directory of this machine."""
    return Path(local).is_dir()


def upload(local: str, writer: Writer | Held, callback: Callback) -> None:
    """Upload a local file, atomically."""
    with Path(local).open("rb") as reader, writer:
        callback.set_size(os.fstat(reader.fileno()).st_size)
        while piece := reader.read(_PIECE_BYTES):
            writer.write(piece)
            callback.relative_update(len(piece))


def download(source: Source, key: str, local: str | os.PathLike[str] | IO[bytes], callback: Callback) -> None:
    """Download an object to a local file, atomically, or into an open file; for a directory create a local one.

    Raises:
        NotFound: Neither an object nor a directory exists.

    """
    try:
        meta = source.head(key, sums=True)
    except NotFound:
        _check_directory(source, key)
        if not isfilelike(local):
            Path(local).mkdir(parents=True, exist_ok=True)  # type: ignore[arg-type]  # a path
        return
    callback.set_size(meta.size)
    with source.open_read(key, meta) as reader:
        if isfilelike(local):
            _pour(reader, local, callback)  # type: ignore[arg-type]
            return
        path = Path(local).absolute()  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        here, name = open_source(path)
        with here.open_write(name) as writer:
            _pour(reader, writer, callback)


def _pour(reader: Reader, writer: Writer | IO[bytes], callback: Callback) -> None:
    while piece := reader.read(_PIECE_BYTES):
        writer.write(piece)
        callback.relative_update(len(piece))


def _check_directory(source: Source, key: str) -> None:
    page = source.page(as_folder(key), delimiter="/")
    if not (page.entries or page.prefixes):
        raise NotFound("neither an object nor a prefix of one", url=source.url(key))


class Publication(Transaction):  # type: ignore[misc]  # fsspec ships no type information
    """A transaction that also ends if a file cannot be published; fsspec 2025.12 then left all later writes pending."""

    def complete(self, commit: bool = True) -> None:  # noqa: FBT001, FBT002  fsspec's signature
        """Publish all files, or discard them; after a failure discard the remaining files."""
        system = self.fs
        try:
            super().complete(commit)
        finally:
            while self.files:
                with suppress(PenstockError):
                    self.files.popleft().discard()
            system._intrans = False  # noqa: SLF001  fsspec's name for it
            system._transaction = None  # noqa: SLF001  the same


class Held(io.BufferedIOBase):
    """A file that is published by its file system's transaction, not when it is closed."""

    def __init__(self, writer: Writer) -> None:
        """Write to ``writer``."""
        super().__init__()
        self._writer = writer

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._writer.name

    @property
    def mode(self) -> str:
        """``wb`` or ``xb``."""
        return self._writer.mode

    def writable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        self._check_open()
        return self._writer.tell()

    def write(self, data: object, /) -> int:
        """Write ``data`` and return the number of bytes taken."""
        self._check_open()
        return self._writer.write(data)

    def commit(self) -> None:
        """Publish the object; raise ``Unusable`` if the file is still open, as wrappers may still hold bytes."""
        if not self.closed:
            self.discard()
            raise Unusable("not closed before its transaction ended: nothing is published", url=self.name)
        self._writer.close()

    def discard(self) -> None:
        """Discard the data; publish nothing."""
        self._writer.abort()

    def __enter__(self) -> Self:
        """Return this file."""
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; after an exception discard it, even if the transaction succeeds."""
        if kind is not None:
            self.discard()
        self.close()

    def _dealloc_warn(self, wrapper: object) -> None:
        self._writer._dealloc_warn(wrapper)  # noqa: SLF001  io's name for it

    def _check_open(self) -> None:
        if self.closed:
            message = f"this file is closed, and is published when the transaction ends: {self.name}"
            raise ValueError(message)
