"""Readers of one object with the manners of the S3 connector's, and the choice between them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.blocks import moved
from penstock.buffer import flat
from penstock.errors import Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from penstock.datasets.sample import Sample
    from penstock.source import Reader, Source
    from penstock.values import ObjectMeta

__all__ = ["ObjectReader", "ReaderKind", "S3Reader", "S3ReaderConstructor", "SampleReader", "reader_kind"]

_BUFFER_BYTES = 8 << 20  # the original's, of a range-based reader
_GAP_BYTES = 32 << 20  # the original's, of one for distributed checkpoints


class S3Reader(io.BufferedIOBase):
    """A read-only, seekable file over one version of one object: what datasets yield and ``S3Checkpoint`` opens.

    Attributes:
        bucket: The object's bucket.
        key: The object's key.

    """

    bucket: str
    key: str

    def prefetch(self) -> None:
        """Begin to read."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False


class SampleReader(io.BytesIO, S3Reader):
    """An object that a dataset has read whole and verified. It pickles; ``sample`` is what Penstock knows of it."""

    def __init__(self, sample: Sample) -> None:
        """Share the sample's bytes."""
        super().__init__(sample.read())
        self.bucket = sample.url.removesuffix(sample.key).split("/")[2]
        self.key = sample.key
        self.url = sample.url
        self.etag = sample.etag

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; past the end is the end, as the original has it."""
        to = super().seek(offset, whence)
        end = super().seek(0, io.SEEK_END)
        return super().seek(min(to, end))

    def write(self, data: object, /) -> NoReturn:  # noqa: ARG002  the signature is a file's
        """Refuse."""
        raise io.UnsupportedOperation("write")

    def truncate(self, size: int | None = None, /) -> NoReturn:  # noqa: ARG002  the same
        """Refuse."""
        raise io.UnsupportedOperation("truncate")

    writelines = write

    def writable(self) -> bool:
        """Return False."""
        return False


class ObjectReader(S3Reader):
    """An object that is opened with the first read, held to the version that was listed or is there then.

    Opening costs a HEAD where neither size nor version was listed. The errors of a missing or forbidden object are
    raised by the first read, as in the original.
    """

    def __init__(self, source: Source, key: str, meta: ObjectMeta | None = None, buffer_bytes: int = -1) -> None:
        """Open nothing yet. ``buffer_bytes``: of small reads, 0 for none; negative reads ahead as ``ps.open`` does."""
        super().__init__()
        self.bucket = source.root.split("/")[2]
        self.key = key
        self.url = source.url(key)
        self._source = source
        self._meta = meta
        self._buffer_bytes = buffer_bytes
        self._file: Reader | io.BufferedReader | None = None

    def prefetch(self) -> None:
        """Open the object."""
        self._opened()

    def read(self, size: int | None = None, /) -> bytes:
        """Return up to ``size`` bytes; all that is left for None or a negative size."""
        return self._opened().read(size)

    def read1(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes."""
        return self._opened().read1(-1 if size is None else size)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line with its end, or what is left."""
        return self._opened().readline(size)

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401  whatever has memory
        """Fill a writable buffer; returns the bytes read, 0 at the end."""
        return self._opened().readinto(buffer)

    readinto1 = readinto

    def peek(self, size: int = 0, /) -> bytes:
        """Return bytes that come next, without moving."""
        return self._opened().peek(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; past the end is the end, as the original has it."""
        file = self._opened()
        to, end = file.seek(offset, whence), self._meta.size if self._meta else 0
        return to if to <= end else file.seek(end)

    def tell(self) -> int:
        """Return the position."""
        return 0 if self._file is None else self._file.tell()

    def close(self) -> None:
        """Cancel reads in flight."""
        if self._file is not None:
            self._file.close()
        super().close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what names the object: the copy begins at the start."""
        return ObjectReader, (self._source, self.key, self._meta, self._buffer_bytes)

    def _opened(self) -> Reader | io.BufferedReader:
        if self.closed:
            raise ValueError(f"this reader is closed: {self.url}")
        if self._file is None:
            meta = self._meta = self._meta or self._source.head(self.key)
            if self._buffer_bytes < 0:
                self._file = self._source.open_read(self.key, meta)
            else:
                self._file = io.BufferedReader(_Ranges(self._source, meta), max(1, self._buffer_bytes))
        return self._file


class _Ranges(io.RawIOBase):
    """One version of an object, each read one request for just its bytes (several in parallel where they are many)."""

    def __init__(self, source: Source, meta: ObjectMeta) -> None:
        super().__init__()
        self._source = source
        self._meta = meta
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = min(moved(offset, whence, self._at, self._meta.size), self._meta.size)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: object, /) -> int:
        view = flat(buffer)[: self._meta.size - self._at]
        if view:
            self._source.read_into(self._span(len(view)), view)
            self._at += len(view)
        return len(view)

    def readall(self) -> bytes:
        """Return all that is left: the base class would ask for 8 KiB at a time."""
        left = self._meta.size - self._at
        data = self._source.read(self._span(left)) if left else b""
        self._at += left
        return data

    def _span(self, count: int) -> Span:
        stop = self._at + count
        whole = self._at == 0 and stop == self._meta.size
        return Span(self._meta.key, self._at, stop, self._meta.etag, whole=whole)


@dataclass(frozen=True)
class ReaderKind:
    """How objects are read; ``S3ReaderConstructor`` makes it. A value: it pickles.

    Attributes:
        name: ``sequential``, ``range_based`` or ``dcp_optimized``.
        buffer_bytes: Of a range-based reader: what a small read fetches; 0: what it asks for.

    """

    name: str
    buffer_bytes: int = -1

    @property
    def ranges(self) -> bool:
        """Whether objects are read in parts, when they are asked for."""
        return self.name == "range_based"

    def open(self, source: Source, key: str, meta: ObjectMeta | None = None) -> ObjectReader:
        """Return a reader of an object, which is opened with the first read."""
        return ObjectReader(source, key, meta, self.buffer_bytes if self.ranges else -1)


class S3ReaderConstructor:
    """Chooses how objects are read: ``reader_constructor=S3ReaderConstructor.range_based()``."""

    @staticmethod
    def sequential() -> ReaderKind:
        """Read objects whole: a dataset reads them ahead, in parallel, before ``transform`` is called."""
        return ReaderKind("sequential")

    @staticmethod
    def range_based(buffer_size: int | None = None) -> ReaderKind:
        """Read only what is asked for, when it is: for transforms that need little of a large object.

        Nothing is read ahead. A read below ``buffer_size`` (bytes, default 8 MiB) fetches the block of that size that
        it lies in; a longer one, or any with 0, exactly what it asks for.
        """
        if buffer_size is not None and buffer_size < 0:
            raise Unusable(f"buffer_size is 0 or more bytes, not {buffer_size}")
        return ReaderKind("range_based", _BUFFER_BYTES if buffer_size is None else buffer_size)

    @staticmethod
    def dcp_optimized(max_gap_size: float = _GAP_BYTES) -> ReaderKind:
        """Read what a rank loads of a distributed checkpoint: ``S3StorageReader`` does so in any case.

        ``max_gap_size`` changes nothing: Penstock reads each piece into the memory that it belongs in.
        """
        if max_gap_size < 0:
            raise Unusable(f"max_gap_size is 0 or more bytes, not {max_gap_size}")
        return ReaderKind("dcp_optimized")

    @staticmethod
    def default() -> ReaderKind:
        """Return ``sequential()``."""
        return S3ReaderConstructor.sequential()

    @staticmethod
    def get_reader_type_string(constructor: ReaderKind | None) -> str:
        """Return the name of a kind: "sequential", "range_based", "dcp_optimized", or "unknown"."""
        kind: Any = constructor or S3ReaderConstructor.default()
        return kind.name if isinstance(kind, ReaderKind) else "unknown"


def reader_kind(constructor: object) -> ReaderKind:
    """Return the kind that ``reader_constructor=`` names. ``Unusable`` for a constructor of one's own."""
    if constructor is None:
        return S3ReaderConstructor.default()
    if not isinstance(constructor, ReaderKind):
        raise Unusable(f"reader_constructor is one of S3ReaderConstructor's, not {constructor!r}")
    return constructor
