"""The sample that a dataset yields: one object's bytes and metadata, readable like a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Self

from penstock.display import panel, picture, size, table
from penstock.errors import Unusable, public_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from penstock.data.shards.format import Fields
    from penstock.values import Span

    _State = tuple[str, str, object, str, dict[str, Any], bool, str, bytes]

__all__ = ["FieldSample", "Sample"]


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
        source: Name of its source in a ``ps.Mix``; empty otherwise.

    Example:
        >>> sample = ps.MapDataset.from_prefix("s3://bucket/train/", labels="folder")[0]
        >>> sample.key, sample.label, sample.read(4)
        ('train/0/0000.png', 0, b'\x89PNG')
    """

    # An index into ``dataset.classes``, or any JSON value that a manifest gives.
    label: Any

    __slots__ = ("_bytes", "_file", "columns", "etag", "key", "label", "repeat", "source", "url")

    def __init__(
        self,
        root: str,
        span: Span,
        data: bytes | memoryview,
        label: object = None,
        # By position, too: calls with keywords take 0.16 µs longer, and every sample comes here.
        columns: dict[str, Any] | None = None,
        repeat: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.key = span.key
        self.url = root + span.key
        self.label = label
        self.etag = span.etag
        self.columns = {} if columns is None else columns
        self.repeat = repeat
        self.source = ""
        self._bytes: bytes | memoryview = data
        self._file: io.BytesIO | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields; () for a sample that is one object, or one field of a shard's sample."""
        return ()

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401  as the format of the shard has it
        """Return the value of a field: a ``Sample`` for bytes, or any other value that the shard's format has.

        Raises:
            KeyError: The sample has no such field.
        """
        raise KeyError(f"cannot take {field!r}: a sample of one object has no fields; use read() or data")

    def __contains__(self, field: object) -> bool:
        return field in self.fields

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
        self._opened().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._opened())

    def __repr__(self) -> str:
        return f"<Sample {public_url(self.url)} ({self.size:,} bytes)>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("label", self.label), ("source", self.source)]
        rows += [("ETag", self.etag), *self.columns.items()]
        if self.repeat:
            rows.append(("repeat", "fills up the batch"))
        shown = [row for row in rows if row[1] not in (None, "")]
        return panel(repr(self)[1:-1], table(shown), *self._content())

    def _content(self) -> Iterator[str]:
        yield picture(self.data)

    def __getstate__(self) -> _State:
        """Return the state without the position."""
        return self.key, self.url, self.label, self.etag, self.columns, self.repeat, self.source, bytes(self._bytes)

    def __setstate__(self, state: _State) -> None:
        self.key, self.url, self.label, self.etag, self.columns, self.repeat, self.source, self._bytes = state
        self._file = None

    def _opened(self) -> io.BytesIO:
        if self._file is None:
            # BytesIO shares bytes until one side writes, and neither side does; a part of a shard's block it copies.
            self._file = io.BytesIO(self._bytes)
        return self._file


_BYTES = (memoryview, Sample)
_new = object.__new__


class FieldSample(Sample):
    """A sample of several fields: objects, the members of an archive with the same key, or the columns of a row.

    ``sample["jpg"]`` is a ``Sample`` again, with the bytes of this field: ``PIL.Image.open(sample["jpg"])``. A field
    that the sample lacks is None (``missing="none"``). Fields of a shard share the memory of the block that was read. A
    sample that is kept for long keeps it, about 1 MiB: keep ``bytes(sample["jpg"].data)`` instead.

    Args:
        root: URL of the bucket.
        span: The bytes of the shard that were read; or the first object.
        fields: Name of the sample, and the value of each field, a memoryview for bytes.

    Attributes:
        key: Name of the sample within its shard; for a sample of several objects, the key that they share.
        url: URL of the shard, or of the first object.

    Example:
        >>> sample = ps.MapDataset.from_shards("s3://bucket/shards/")[0]
        >>> sample.fields, sample["cls"].read(), sample["png"].size
        (('png', 'cls'), b'0', 140)
    """

    __slots__ = ("_values",)

    def __init__(
        self,
        root: str,
        span: Span,
        fields: Fields,
        label: object = None,
        columns: dict[str, Any] | None = None,
        repeat: bool = False,  # noqa: FBT001, FBT002  see the base class
    ) -> None:
        # As in the base class, without the call: each sample of a shard comes here.
        self.key, self._values = fields
        self.url = root + span.key
        self.label = label
        self.etag = span.etag
        self.columns = {} if columns is None else columns
        self.repeat = repeat
        self.source = ""
        self._bytes = b""
        self._file = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in the order of the shard, or of ``fields=``."""
        return (*self._values,)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields, so that ``dict(sample)`` and ``{**sample}`` are the fields with their values.

        Example:
            >>> dict(ps.MapDataset.from_shards("s3://bucket/shards/")[0])["cls"].read()
            b'0'
        """
        return self.fields

    def __contains__(self, field: object) -> bool:
        return field in self._values

    def __getitem__(self, field: str) -> Any:  # noqa: ANN401  as the format of the shard has it
        try:
            value = self._values[field]
        except KeyError:
            raise KeyError(f"no field {field!r}; fields of {self.key!r} are {', '.join(self._values)}") from None
        if type(value) is memoryview:
            value = self._values[field] = self._part(field, value)
        return value

    def _part(self, field: str, value: memoryview) -> Sample:
        part = _new(Sample)
        part.key = f"{self.key}.{field}" if self.key else field
        part.url = self.url
        part.label = self.label
        part.etag = self.etag
        part.columns = self.columns
        part.repeat = self.repeat
        part.source = self.source
        part._bytes = value  # noqa: SLF001  a Sample's
        part._file = None  # noqa: SLF001  a Sample's
        return part

    @property
    def data(self) -> memoryview:
        """Raise ``Unusable``: a sample of several fields has no single content.

        Raises:
            Unusable: Always; the text names the fields.
        """
        raise Unusable(f"the sample {self.key!r} has several fields, {', '.join(self._values)}: take one, sample[…]")

    @property
    def size(self) -> int:
        """Number of bytes of all fields that are bytes."""
        found = self._values.values()
        return sum(each.nbytes if type(each) is memoryview else each.size for each in found if isinstance(each, _BYTES))

    def __repr__(self) -> str:
        return f"<Sample {self.key!r} of {', '.join(self._values)} in {public_url(self.url)}>"

    def _content(self) -> Iterator[str]:
        values = {name: self[name] for name in self._values}
        rows = ((name, size(each.size) if isinstance(each, Sample) else repr(each)) for name, each in values.items())
        yield table(rows, ("field", "value"))
        for each in values.values():
            if type(each) is Sample:
                yield picture(each.data)

    def __getstate__(self) -> Any:  # noqa: ANN401  the state of a sample, and its fields
        """Return the state, with copies of bytes."""
        values = {name: bytes(each) if type(each) is memoryview else each for name, each in self._values.items()}
        return self.key, self.url, self.label, self.etag, self.columns, self.repeat, self.source, values

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401  as __getstate__ returns it
        super().__setstate__((*state[:-1], b""))
        self._values = {name: memoryview(each) if type(each) is bytes else each for name, each in state[-1].items()}

    def _opened(self) -> io.BytesIO:
        return io.BytesIO(self.data)
