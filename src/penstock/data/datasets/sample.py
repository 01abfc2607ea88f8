"""The sample that a dataset yields: one object's bytes and metadata, readable like a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import public_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from penstock.values import Span

    _State = tuple[str, str, object, str, dict[str, Any], bool, bytes]

__all__ = ["Sample"]


class Sample:
    r"""A whole, verified object in memory: ``PIL.Image.open(sample)`` and ``torch.load(sample)`` work directly.

    A sample can be pickled (so it may cross a worker's queue untransformed) and holds no connection. ``close`` and
    ``with`` exist for code that expects a file; ``data`` stays readable after them.

    Args:
        root: URL of the bucket.
        span: The object below ``root`` that was read.
        data: The bytes of the object.

    Attributes:
        key: Full key within the bucket.
        url: ``scheme://bucket/key``.
        size: Number of bytes; ``len(data)``.
        label: Number of its class (``dataset.classes``), or the JSON value that a manifest gives; None without a label.
        columns: Values of the catalog's columns for this object, by name; {} without columns.
        etag: The version that was read; empty if the store or manifest gives none.
        repeat: Whether the sample is a repeat within this epoch that only fills up a batch.

    Example:
        >>> sample = ps.MapDataset.from_prefix("s3://bucket/train/", labels="folder")[0]
        >>> sample.key, sample.label, sample.read(4)
        ('train/0/0000.png', 0, b'\x89PNG')

    """

    # An index into ``dataset.classes``, or any JSON value that a manifest gives.
    label: Any

    __slots__ = ("_bytes", "_file", "columns", "etag", "key", "label", "repeat", "url")

    def __init__(
        self,
        root: str,
        span: Span,
        data: bytes,
        label: object = None,
        *,
        columns: dict[str, Any] | None = None,
        repeat: bool = False,
    ) -> None:
        """Wrap ``data``, which was read from the object that ``span`` names below ``root``."""
        self.key = span.key
        self.url = root + span.key
        self.label = label
        self.etag = span.etag
        self.columns = {} if columns is None else columns
        self.repeat = repeat
        self._bytes = data
        self._file: io.BytesIO | None = None

    @property
    def data(self) -> memoryview:
        """The bytes, read-only and not copied."""
        return memoryview(self._bytes)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self._bytes)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return bytes from the position.

        Args:
            size: Most bytes; negative or None: all remaining bytes.

        """
        return self._opened().read(size)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        """Fill a buffer from the position.

        Args:
            buffer: Writable memory.

        Returns:
            Number of bytes read; 0 at the end.

        """
        return self._opened().readinto(buffer)

    def read1(self, size: int | None = -1, /) -> bytes:
        """Return the same bytes as ``read``.

        Args:
            size: As for ``read``.

        """
        return self._opened().read1(size)

    readinto1 = readinto

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line with its line break, or the remaining bytes.

        Args:
            size: Most bytes; negative or None: no limit.

        """
        return self._opened().readline(size)

    def readlines(self, hint: int | None = None, /) -> list[bytes]:
        """Return the remaining lines, or enough of them to hold ``hint`` bytes.

        Args:
            hint: Number of bytes; None or 0: all lines.

        """
        return self._opened().readlines(hint)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position.

        Args:
            offset: Bytes from the place that ``whence`` names.
            whence: 0: the beginning; 1: the position; 2: the end.

        Returns:
            The new position, from the beginning.

        """
        return self._opened().seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._opened().tell()

    def readable(self) -> bool:
        """Return True."""
        return self._opened().readable()

    def seekable(self) -> bool:
        """Return True."""
        return self._opened().seekable()

    def writable(self) -> bool:
        """Return False."""
        return False

    def isatty(self) -> bool:
        """Return False."""
        return self._opened().isatty()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._file is not None and self._file.closed

    def close(self) -> None:
        """Close the file; the data stays."""
        self._opened().close()

    def flush(self) -> None:
        """Do nothing; file wrappers call it."""

    def __enter__(self) -> Self:
        """Return itself."""
        self._opened().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines."""
        return iter(self._opened())

    def __repr__(self) -> str:
        """Return the URL and the size of the object."""
        return f"<Sample {public_url(self.url)} ({self.size:,} bytes)>"

    def __getstate__(self) -> _State:
        """Return the state without the position."""
        return self.key, self.url, self.label, self.etag, self.columns, self.repeat, self._bytes

    def __setstate__(self, state: _State) -> None:
        """Restore the sample, with the position at the start."""
        self.key, self.url, self.label, self.etag, self.columns, self.repeat, self._bytes = state
        self._file = None

    def _opened(self) -> io.BytesIO:
        if self._file is None:
            # BytesIO shares the bytes until one side writes; neither side does.
            self._file = io.BytesIO(self._bytes)
        return self._file
