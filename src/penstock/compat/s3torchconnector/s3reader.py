"""Readers of one object as in the S3 connector, the constructors that select them, and checkpoints as files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.compat.arguments import WrongArgument, refuse_name
from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.engine.blocks import SizedFile
from penstock.engine.buffer import flat
from penstock.errors import Unsupported, Unusable
from penstock.source import object_at
from penstock.values import span_in
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.data.reading.sample import Sample
    from penstock.source import Reader, Source, Writer
    from penstock.values import ObjectMeta


class S3Checkpoint:
    """Files for ``torch.save`` and ``torch.load``, by URL."""

    def __init__(
        self, region: str | None, endpoint: str | None = None, s3client_config: S3ClientConfig | None = None
    ) -> None:
        self.region = region
        self.endpoint = endpoint
        self._store = store_options(region, endpoint, s3client_config)

    def reader(self, s3_uri: str) -> S3Reader:
        """Return a seekable file over the object. The first read opens it, and raises ``NotFound`` if it is missing."""
        return S3ReaderConstructor.default().open(*object_at(s3_url(s3_uri), self._store))

    def writer(self, s3_uri: str) -> Writer:
        """Return a writable file; the complete object appears on a successful close, and never otherwise."""
        return open_object(s3_url(s3_uri), "wb", store=self._store)


_BUFFER_BYTES = 8 << 20  # the original's default, range-based
_GAP_BYTES = 32 << 20  # the original's default, distributed checkpoints


class S3Reader(io.BufferedIOBase):
    """Read-only, seekable file over one version of one object, from a dataset or from ``S3Checkpoint``.

    Attributes:
        bucket: The object's bucket.
        key: The object's key.
    """

    bucket: str
    key: str

    def read(self, size: int | None = None) -> bytes:
        """Return up to ``size`` bytes; for None or a negative size, all remaining bytes."""
        raise io.UnsupportedOperation("read")

    def readinto(self, buf: Any) -> int:
        """Fill a writable buffer, and return the number of bytes read: 0 at the end."""
        raise io.UnsupportedOperation("readinto")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")

    def prefetch(self) -> None:
        """Do nothing; a subclass may open the object."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


class _Made(S3Reader):
    """Base of readers that ``S3ReaderConstructor`` selects; programs cannot create them by their class."""

    def __init__(self, *_: object, **__: object) -> None:
        message = f"{type(self).__name__} cannot be created directly: datasets and S3Checkpoint return readers"
        raise Unsupported(message)


class SequentialS3Reader(_Made):
    """Reader of whole objects, selected by ``S3ReaderConstructor.sequential()``, the default."""


class RangedS3Reader(_Made):
    """Reader of requested ranges, selected by ``S3ReaderConstructor.range_based()``."""


class DCPOptimizedS3Reader(_Made):
    """Reader of a distributed checkpoint's objects, selected by ``S3ReaderConstructor.dcp_optimized()``."""


class SampleReader(io.BytesIO, SequentialS3Reader):
    """In-memory reader of an object that a dataset has read whole and verified. It can be pickled."""

    def __init__(self, sample: Sample) -> None:
        super().__init__(sample.read())
        self.bucket = sample.url.removesuffix(sample.key).split("/")[2]
        self.key = sample.key
        self.url = sample.url
        self.etag = sample.etag

    def read(self, size: int | None = None) -> bytes:
        return io.BytesIO.read(self, size)

    def readinto(self, buf: Any) -> int:
        return io.BytesIO.readinto(self, buf)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position, at most to the end, as in the original; return it."""
        to = super().seek(offset, whence)
        end = super().seek(0, io.SEEK_END)
        return super().seek(min(to, end))

    def write(self, data: object, /) -> NoReturn:
        raise io.UnsupportedOperation("write")

    def truncate(self, size: int | None = None, /) -> NoReturn:
        raise io.UnsupportedOperation("truncate")

    writelines = write

    def writable(self) -> bool:
        return False


class ObjectReader(S3Reader):
    """Reader that opens the object on the first read, bound to the listed version or else to the current one.

    Opening costs a HEAD unless size and version were listed. As in the original, the first read raises the errors of a
    missing or forbidden object.
    """

    def __init__(self, source: Source, key: str, meta: ObjectMeta | None = None, buffer_bytes: int = -1) -> None:
        """Keep the arguments; nothing is opened yet.

        ``buffer_bytes`` is the buffer of small reads; 0 means no buffer, negative means to read ahead as ``ps.open``.
        """
        self.bucket = source.root.split("/")[2]
        self.key = key
        self.url = source.url(key)
        self._source = source
        self._meta = meta
        self._buffer_bytes = buffer_bytes
        self._file: Reader | io.BufferedReader | None = None

    def prefetch(self) -> None:
        self._opened()

    def read(self, size: int | None = None) -> bytes:
        return self._opened().read(size)

    def read1(self, size: int | None = -1, /) -> bytes:
        return self._opened().read1(-1 if size is None else size)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._opened().readline(size)

    def readinto(self, buf: Any) -> int:
        return self._opened().readinto(buf)

    readinto1 = readinto

    def peek(self, size: int = 0, /) -> bytes:
        return self._opened().peek(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position, at most to the end, as in the original; return it."""
        file = self._opened()
        to, end = file.seek(offset, whence), self._meta.size if self._meta else 0
        return to if to <= end else file.seek(end)

    def tell(self) -> int:
        return 0 if self._file is None else self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the location of the object; the copy starts at the beginning."""
        return type(self), (self._source, self.key, self._meta, self._buffer_bytes)

    def _opened(self) -> Reader | io.BufferedReader:
        if self.closed:
            raise ValueError(f"this reader is closed: {self.url}")
        if self._file is None:
            meta = self._meta = self._meta or self._source.head(self.key, sums=True)
            if self._buffer_bytes < 0:
                self._file = self._source.open_read(self.key, meta)
            else:
                self._file = io.BufferedReader(_Ranges(self._source, meta), max(1, self._buffer_bytes))
        return self._file


class _Sequential(ObjectReader, SequentialS3Reader):
    pass


class _Ranged(ObjectReader, RangedS3Reader):
    pass


class _DCPOptimized(ObjectReader, DCPOptimizedS3Reader):
    pass


_READERS = {"sequential": _Sequential, "range_based": _Ranged, "dcp_optimized": _DCPOptimized}


class _Ranges(SizedFile):
    """Raw file over one version of an object: a read requests exactly its bytes, in parallel parts if they are many."""

    def __init__(self, source: Source, meta: ObjectMeta) -> None:
        super().__init__(meta.size)
        self._source = source
        self._meta = meta

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = min(super().seek(offset, whence), self._size)
        return self._at

    def readinto(self, buffer: object, /) -> int:
        view = flat(buffer)[: self._meta.size - self._at]
        if view:
            self._source.read_into(span_in(self._meta, self._at, self._at + len(view)), view)
            self._at += len(view)
        return len(view)

    def readall(self) -> bytes:
        """Return all remaining bytes in one read; the base class would request 8 KiB at a time."""
        left = self._meta.size - self._at
        data = self._source.read(span_in(self._meta, self._at)) if left else b""
        self._at += left
        return data


@dataclass(frozen=True)
class ReaderKind:
    """Reader constructor, created by ``S3ReaderConstructor``; a value, which can be pickled."""

    name: str
    # Bytes that a small read of a range-based reader fetches; 0: exactly the requested bytes.
    buffer_bytes: int = -1

    @property
    def ranges(self) -> bool:
        return self.name == "range_based"

    def open(self, source: Source, key: str, meta: ObjectMeta | None = None) -> ObjectReader:
        """Return a reader of an object; the first read opens it."""
        return _READERS[self.name](source, key, meta, self.buffer_bytes if self.ranges else -1)

    def __call__(self, bucket: str, key: str, get_object_info: object, get_stream: object) -> NoReturn:
        SequentialS3Reader(bucket, key, get_object_info, get_stream)
        raise AssertionError


class DCPOptimizedConstructor(ReaderKind):
    """Reader constructor for distributed checkpoints, created by ``S3ReaderConstructor.dcp_optimized()``."""

    def __init__(self, max_gap_size: float = _GAP_BYTES) -> None:
        if max_gap_size < 0:
            raise WrongArgument(f"max_gap_size must not be negative, got {max_gap_size}")
        super().__init__("dcp_optimized")

    def set_item_ranges_by_file(self, plan_items: object, storage_data: object, base_path: object) -> None:
        """Do nothing: ``S3StorageReader`` always reads what the plan specifies."""

    def __reduce__(self) -> tuple[object, ...]:
        return DCPOptimizedConstructor, ()


# The original's names, for annotations and isinstance.
S3ReaderConstructorProtocol = ReaderKind
DCPS3ReaderConstructorProtocol = DCPOptimizedConstructor


class S3ReaderConstructor:
    """Factory of reader constructors: ``reader_constructor=S3ReaderConstructor.range_based()``."""

    @staticmethod
    def sequential() -> ReaderKind:
        """Select whole objects: a dataset reads them ahead, in parallel, before it calls ``transform``."""
        return ReaderKind("sequential")

    @staticmethod
    def range_based(buffer_size: int | None = None) -> ReaderKind:
        """Select requested ranges, read on request: for transforms that need little of a large object.

        Nothing is read ahead. A read below ``buffer_size`` (bytes, default 8 MiB) fetches a block of that size. A
        longer read, or any read with 0, fetches exactly the requested bytes.
        """
        if buffer_size is not None and buffer_size < 0:
            raise WrongArgument(f"buffer_size must be 0 or more bytes, got {buffer_size}")
        return ReaderKind("range_based", _BUFFER_BYTES if buffer_size is None else buffer_size)

    @staticmethod
    def dcp_optimized(max_gap_size: float = _GAP_BYTES) -> DCPOptimizedConstructor:
        """Select the parts of a distributed checkpoint that a rank loads; ``S3StorageReader`` always reads them so.

        ``max_gap_size`` has no effect: Penstock reads each piece directly into its destination memory.
        """
        return DCPOptimizedConstructor(max_gap_size)

    @staticmethod
    def default() -> ReaderKind:
        return S3ReaderConstructor.sequential()

    @staticmethod
    def get_reader_type_string(constructor: ReaderKind | None) -> str:
        """Return the name of a constructor: "sequential", "range_based", "dcp_optimized", or "unknown"."""
        kind: Any = constructor or S3ReaderConstructor.default()
        return kind.name if isinstance(kind, ReaderKind) else "unknown"


def reader_kind(constructor: object) -> ReaderKind:
    """Return the constructor that ``reader_constructor=`` selects. Raise ``Unusable`` for a custom constructor."""
    if constructor is None:
        return S3ReaderConstructor.default()
    if not isinstance(constructor, ReaderKind):
        raise Unusable(f"reader_constructor must be one of S3ReaderConstructor's, got {constructor!r}")
    return constructor


_ABSENT = dict.fromkeys(
    ("GetStreamCallable", "ItemRange", "RangeGroup"), "leave it out: S3StorageReader plans the ranges of a checkpoint"
)


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ABSENT)
