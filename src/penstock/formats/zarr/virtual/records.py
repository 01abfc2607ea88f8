"""kerchunk's references in Parquet: files of so many references each, read when one of them is needed.

The layout is that of fsspec's ``LazyReferenceMapper``: ``.zmetadata`` has all metadata documents and ``record_size``,
and ``ARRAY/refs.N.parq`` the references of chunks N · record_size and following, row by row of the array's chunks.
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

from penstock.errors import Damaged, DatasetChanged, NotFound, PenstockError
from penstock.parquet import coded_columns
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.formats.zarr.layout import Layout
    from penstock.formats.zarr.opening import Arrays
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["METADATA", "Records"]

METADATA = ".zmetadata"
_MOST_FILE_BYTES = 256 << 20  # a hundred times a file of 100,000 references, kerchunk's default
_MOST_UNPACKED_BYTES = 1 << 30
_MOST_HELD_BYTES = 256 << 20  # about twelve million references, of a hundred arrays at 100,000 in a file
_RECORD_BYTES, _ABSENT_BYTES = 1200, 400  # that one takes besides, and a file that is not there: hostile ones are small
_BASE64 = b"base64:"
_lock = Lock()  # of all caches: each keeps it for moments only
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class _Record(NamedTuple):
    """The references of one file: numbers of texts, and ranges.

    ``paths`` and ``raws`` have the number of the row's value in ``urls`` and ``data``; -1: none.
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
        """Return the references in a file; ``Damaged`` where it is none."""
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
        """Return a reference as kerchunk's JSON has it, data as bytes; KeyError: there is none."""
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
    """References by key, as the mapping ``refs`` of a JSON document has them; ``KeyError``: there is none.

    Files that were read are kept, 256 MiB of their references in each process; the oldest go first. For any thread.

    Attributes:
        source: The store of the files.

    """

    def __init__(self, source: Source, prefix: str, arrays: Arrays, size: object) -> None:
        """Read nothing yet; ``size`` is the document's ``record_size``.

        Raises:
            Damaged: That is no size.

        """
        self.source, self._prefix = source, prefix
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise Damaged(f"record_size should be a number from 1, not {str(size)[:40]!r}", url=source.url(prefix))
        self._size = size
        self._layouts = {layout.key: layout for layout in arrays.values()}
        self._held: OrderedDict[str, _Record] = OrderedDict()
        self._held_bytes = 0

    def __getitem__(self, key: str) -> bytes | list[Any]:
        """Return the reference that an array calls ``key``; a HEAD and a GET where its file is not held.

        Raises:
            KeyError: There is none.
            Damaged: Its file holds no references.
            DatasetChanged: There is no such file, and the metadata is gone, too.
            PenstockError: It could not be read.

        """
        file, row = self._place(key)
        record = self._kept(file)
        if record is None:
            [record] = self._read([file], self.source.stat_existing([file]))
        return self._entry(record, row, key)

    def known(self, key: str) -> bytes | list[Any] | None:
        """Return a reference whose file is held; None of any other."""
        try:
            file, row = self._place(key)
            record = self._kept(file)
            return None if record is None else self._entry(record, row, key)
        except (KeyError, Damaged):
            return None

    def prepare(self, keys: Iterable[str]) -> None:
        """Read the files of some references that are not held, all at once; what is wrong is raised for each key."""
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
                return  # asked for again, each by itself

    def _place(self, key: str) -> tuple[str, int]:
        """Return the file that has a key's reference, and its row there."""
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
        """Look whether the references are still there: a file that is not has no references, as fsspec takes it."""
        try:
            self.source.head(self._prefix + METADATA)
        except NotFound as error:
            raise DatasetChanged("the references were deleted while they were read", url=error.url) from error

    def _entry(self, record: _Record, row: int, key: str) -> bytes | list[Any]:
        found = record.at(row)
        if isinstance(found, bytes) and found.startswith(_BASE64):  # as fsspec does
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
        """Leave what this process has read behind."""
        return self.__dict__ | {"_held": OrderedDict(), "_held_bytes": 0}


def _number(layout: Layout, chunk: str) -> int | None:
    """Return the number of the object that an array calls ``chunk`` below its key, row-major; None: it is none."""
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
