"""Files of a file system: how they are opened, and whole ones from here to there; functions that block."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fsspec.caching import caches
from fsspec.transaction import Transaction
from fsspec.utils import isfilelike

from penstock.errors import AlreadyExists, NotFound, PenstockError, Unusable
from penstock.protocols.driver import Copy
from penstock.source import open_source
from penstock.values import as_folder, whole

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO

    from fsspec.callbacks import Callback

    from penstock.source import Reader, Source, Writer

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
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 4 << 10, 64 << 20  # eight are held


def block_bytes(cache_type: object, block_size: object, size: int) -> int:
    """Return what one read-ahead block of an object of ``size`` bytes holds, for fsspec's ``cache_type`` and its size.

    ``none``: 4 KiB, so that larger reads are requests of just their bytes; ``all``: the whole object, up to 64 MiB. All
    other kinds are Penstock's own, which reads ahead where reading is sequential; 0 stands for its usual blocks.

    Raises:
        Unusable: There is no such kind, or ``block_size`` is no number of bytes.

    """
    if cache_type not in caches:
        known = ", ".join(repr(each) for each in caches)
        raise Unusable(f"cache_type={cache_type!r}: fsspec has {known}")
    given = 0 if block_size in (None, "default") else whole(block_size, "block_size", 1)
    wanted = {"none": _LEAST_BLOCK_BYTES, "all": size}.get(str(cache_type), given)
    return max(_LEAST_BLOCK_BYTES, min(wanted, _MOST_BLOCK_BYTES)) if wanted else 0


def open_to_read(source: Source, key: str, cache_type: object, block_size: object) -> Reader:
    """Open a file of its present version: a HEAD."""
    block_bytes(cache_type, block_size, 0)  # what is wrong is told before a request
    meta = source.head(key)
    return source.open_read(key, meta, block_bytes=block_bytes(cache_type, block_size, meta.size))


def open_to_write(source: Source, key: str, mode: str) -> Writer:
    """Open a file to replace (``wb``) or to create (``xb``), which looks first: a HEAD.

    Raises:
        AlreadyExists: ``xb``, and there is one; also where another writer was faster, when it is closed.
        Unusable: Another mode.

    """
    if mode not in ("wb", "xb"):
        raise Unusable(f"objects are opened 'rb', 'wb' or 'xb', not {mode!r}", url=source.url(key))
    if mode == "xb" and source.stat_existing([key])[0] is not None:
        raise AlreadyExists("there is an object already", url=source.url(key))
    return source.open_write(key, create_only=mode == "xb")


def pipe(source: Source, key: str, value: object, *, create: bool) -> None:
    """Write an object: one request up to the size of a part, and not to be created only; else as a file is written."""
    data = memoryview(value).cast("B") if memoryview(value).nbytes else memoryview(b"")  # type: ignore[arg-type]
    if not create and len(data) <= source.options.write.part_bytes:
        source.put(key, data)
        return
    with source.open_write(key, create_only=create) as writer:
        writer.write(data)


def copy(source: Source, key: str, target: Source, name: str) -> None:
    """Copy an object, within a bucket on the server's side; of a directory, which is not an object, nothing is made."""
    if source.address(key) == target.address(name):
        raise Unusable("this would copy the object onto itself", url=target.url(name))
    try:
        if source.root == target.root and source.supports(Copy):
            source.copy(key, name)
            return
        meta = source.head(key)
    except NotFound:
        _check_directory(source, key)
        return
    into = target.open_write(name, metadata=meta.metadata, content_type=meta.content_type)
    with source.open_read(key, meta) as reader, into as writer:
        while piece := reader.read(_PIECE_BYTES):
            writer.write(piece)


def is_folder(local: str) -> bool:
    """Say whether this is a directory of this machine."""
    return Path(local).is_dir()


def upload(local: str, writer: Writer | Held, callback: Callback) -> None:
    """Write a local file, atomically as every file."""
    with Path(local).open("rb") as reader, writer:
        callback.set_size(os.fstat(reader.fileno()).st_size)
        while piece := reader.read(_PIECE_BYTES):
            writer.write(piece)
            callback.relative_update(len(piece))


def download(source: Source, key: str, local: str | os.PathLike[str] | IO[bytes], callback: Callback) -> None:
    """Write an object to a local file, atomically, or into an open one; of a directory make a directory.

    Raises:
        NotFound: There is neither an object nor a directory.

    """
    try:
        meta = source.head(key)
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
    """A transaction that ends where a file cannot be published, too: in fsspec 2025.12 all later writes waited."""

    def complete(self, commit: bool = True) -> None:  # noqa: FBT001, FBT002  fsspec's signature
        """Publish all files, or none; after a failure none of those that are left."""
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
    """A file that its file system's transaction publishes: closing it does not."""

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
        """Return how many bytes were written."""
        self._check_open()
        return self._writer.tell()

    def write(self, data: object, /) -> int:
        """Write."""
        self._check_open()
        return self._writer.write(data)

    def commit(self) -> None:
        """Publish. Raises ``Unusable`` where it was not closed: what is above it may hold bytes back."""
        if not self.closed:
            self.discard()
            raise Unusable("not closed before its transaction ended: nothing is published", url=self.name)
        self._writer.close()

    def discard(self) -> None:
        """Publish nothing."""
        self._writer.abort()

    def __enter__(self) -> Self:
        """Return itself."""
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an exception publish nothing, also when the transaction ends well."""
        if kind is not None:
            self.discard()
        self.close()

    def _dealloc_warn(self, wrapper: object) -> None:
        self._writer._dealloc_warn(wrapper)  # noqa: SLF001  io's name for it

    def _check_open(self) -> None:
        if self.closed:
            message = f"this file is closed, and is published when the transaction ends: {self.name}"
            raise ValueError(message)
