"""kerchunk's references in Parquet: each file holds a fixed number of references, and is read on first use.

The layout is that of fsspec's ``LazyReferenceMapper``. ``.zmetadata`` contains all metadata documents and
``record_size``. ``ARRAY/refs.N.parq`` contains the references of ``record_size`` chunks from chunk N · record_size on,
in row-major order of the array's chunks.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections import OrderedDict
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.parquet import coded_columns
from penstock.errors import Damaged, DatasetChanged, NotFound, PenstockError
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.opening import Arrays
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["METADATA", "Records"]

METADATA = ".zmetadata"
# A hundred times a file of 100,000 references, the default of kerchunk.
_MOST_FILE_BYTES = 256 << 20
_MOST_UNPACKED_BYTES = 1 << 30
# About twelve million references, of a hundred arrays with 100,000 in a file.
_MOST_HELD_BYTES = 256 << 20
# Memory that each file takes besides, and that of an absent file: a hostile document may name many small ones.
_RECORD_BYTES, _ABSENT_BYTES = 1200, 400
_BASE64 = b"base64:"
_lock = Lock()  # for all caches: held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class _Record(NamedTuple):
    """References of one file: indices of texts, and byte ranges.

    ``paths`` and ``raws`` hold, for each row, the index of its value in ``urls`` and ``data``; -1: no value.
    """

    paths: NDArray[np.int32]
    urls: list[str]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raws: NDArray[np.int32]
    data: list[bytes]
    size_bytes: int

    @classmethod
    def of(cls, data: bytes, url: str) -> _Record:
        """Parse the references of a file; raise ``Damaged`` if it is not a file of references."""
        texts, numbers, rows = coded_columns(
            data, url, ("path", "raw"), ("offset", "size"), most_bytes=_MOST_UNPACKED_BYTES
        )
        none, zeros = np.full(rows, -1, dtype=np.int32), np.zeros(rows, dtype=np.int64)
        paths, urls = texts.get("path", (none, []))
        raws, values = texts.get("raw", (none, []))
        if not all(isinstance(each, str) for each in urls):
            raise Damaged("the column 'path' of these references has no text", url=url)
        inline = [each.encode() if isinstance(each, str) else each for each in values]
        offsets, sizes = numbers.get("offset", zeros), numbers.get("size", zeros)
        size = _RECORD_BYTES + 24 * rows + sum(map(len, urls)) + sum(map(len, inline)) + 64 * (len(urls) + len(inline))
        return cls(paths, urls, offsets, sizes, raws, inline, size)

    def at(self, row: int) -> bytes | list[Any]:
        """Return a reference as in kerchunk's JSON, with data as bytes; raise KeyError for a missing one."""
        if row >= len(self.paths):
            raise KeyError(row)
        if self.raws[row] >= 0:
            return self.data[int(self.raws[row])]
        path = self.urls[self.paths[row]] if self.paths[row] >= 0 else ""
        offset, size = int(self.offsets[row]), int(self.sizes[row])
        if not path and not size:
            raise KeyError(row)
        return [path] if offset == size == 0 else [path, offset, size]


_CODES, _NUMBERS = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
_EMPTY = _Record(_CODES, [], _NUMBERS, _NUMBERS, _CODES, [], _ABSENT_BYTES)


class Records:
    """References by key, like the mapping ``refs`` of a JSON document; ``KeyError`` for a missing reference.

    Files that were read are cached: up to 256 MiB of references in each process; the oldest are evicted. Thread-safe.

    Attributes:
        source: Store of the files.

    """

    def __init__(self, source: Source, prefix: str, arrays: Arrays, size: object) -> None:
        """Set up without reading; ``size`` is the document's ``record_size``.

        Raises:
            Damaged: ``size`` is not a whole number from 1 on.

        """
        self.source, self._prefix = source, prefix
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise Damaged(f"record_size should be a number from 1, not {str(size)[:40]!r}", url=source.url(prefix))
        self._size = size
        self._layouts = {layout.key: layout for layout in arrays.values()}
        self._held: OrderedDict[str, _Record] = OrderedDict()
        self._held_bytes = 0

    def __getitem__(self, key: str) -> bytes | list[Any]:
        """Return the reference of an array's object ``key``; sends a HEAD and a GET if its file is not cached.

        Raises:
            KeyError: The reference does not exist.
            Damaged: The file does not hold references.
            DatasetChanged: The file does not exist, and the metadata is gone, too.
            PenstockError: The file could not be read.

        """
        file, row = self._place(key)
        record = self._kept(file)
        if record is None:
            [record] = self._read([file], self.source.stat_existing([file]))
        return self._entry(record, row, key)

    def known(self, key: str) -> bytes | list[Any] | None:
        """Return a reference if its file is cached; else None."""
        try:
            file, row = self._place(key)
            record = self._kept(file)
            return None if record is None else self._entry(record, row, key)
        except (KeyError, Damaged):
            return None

    def prepare(self, keys: Iterable[str]) -> None:
        """Read the uncached files of some references, all at once; errors are raised later, for each key."""
        files: dict[str, None] = {}
        for key in keys:
            try:
                file, _ = self._place(key)
            except KeyError:
                continue
            if file not in self._held:
                files[file] = None
        if files:
            try:
                for _ in self._read([*files], self.source.stat_existing([*files])):
                    pass
            except PenstockError:
                return  # requested again, one by one

    def _place(self, key: str) -> tuple[str, int]:
        """Return the file with the reference of a key, and its row in the file."""
        name = key
        while name:
            name = name.rstrip("/").rpartition("/")[0]
            name += "/" * bool(name)
            if (layout := self._layouts.get(name)) is not None:
                number = _number(layout, key[len(name) :])
                if number is None:
                    break
                return f"{self._prefix}{name}refs.{number // self._size}.parq", number % self._size
        raise KeyError(key)

    def _read(self, files: Sequence[str], found: Sequence[ObjectMeta | None]) -> Iterator[_Record]:
        spans: list[Span | None] = []
        for file, meta in zip(files, found, strict=True):
            if meta is not None and meta.size > _MOST_FILE_BYTES:
                message = f"a file of references has {meta.size:,} bytes: Penstock reads up to 256 MiB"
                raise Damaged(message, url=self.source.url(file))
            spans.append(None if meta is None else Span(file, 0, meta.size, meta.etag))
        if None in spans:
            self._verify()
        with self.source.lookahead(iter([span for span in spans if span is not None])) as reads:
            for file, span in zip(files, spans, strict=True):
                record = _EMPTY if span is None else _Record.of(reads.advance().take(), self.source.url(file))
                self._keep(file, record)
                yield record

    def _verify(self) -> None:
        """Check that the metadata still exists: then an absent file has no references, as in fsspec."""
        try:
            self.source.head(self._prefix + METADATA)
        except NotFound as error:
            raise DatasetChanged("the references were deleted while they were read", url=error.url) from error

    def _entry(self, record: _Record, row: int, key: str) -> bytes | list[Any]:
        found = record.at(row)
        if isinstance(found, bytes) and found.startswith(_BASE64):  # as in fsspec
            try:
                return base64.b64decode(found[len(_BASE64) :], validate=True)
            except (binascii.Error, ValueError):
                url = self.source.url(self._prefix)
                raise Damaged(f"the reference {key!r} has data that is no Base64", url=url) from None
        return found

    def _kept(self, file: str) -> _Record | None:
        with _lock:
            record = self._held.get(file)
            if record is not None:
                self._held.move_to_end(file)
            return record

    def _keep(self, file: str, record: _Record) -> None:
        with _lock:
            if file in self._held:
                return
            self._held[file] = record
            self._held_bytes += record.size_bytes
            while self._held_bytes > _MOST_HELD_BYTES and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._held_bytes -= oldest.size_bytes

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the cached files."""
        return self.__dict__ | {"_held": OrderedDict(), "_held_bytes": 0}


def _number(layout: Layout, chunk: str) -> int | None:
    """Return the row-major number of an array's object by its key below the array, ``chunk``; None if not an object."""
    grid = tuple(
        -(-size // (count * ratio))
        for size, count, ratio in zip(layout.shape, layout.chunks, layout.ratios, strict=True)
    )
    parts = chunk.split(layout.separator)[bool(layout.lead) :]
    if not grid and parts in ([], ["0"]):
        return 0
    if len(parts) != len(grid) or not all(part.isdecimal() and len(part) < 20 for part in parts):  # noqa: PLR2004  digits
        return None
    number = 0
    for part, count in zip(map(int, parts), grid, strict=True):
        if part >= count:
            return None
        number = number * count + part
    return number if prod(grid) else None
