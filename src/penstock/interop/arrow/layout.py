"""Byte ranges of a Parquet file's columns, and those that a reader of some columns needs next; pure arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Layout"]


class _Column(Protocol):
    data_page_offset: int
    dictionary_page_offset: int | None
    total_compressed_size: int


class _Group(Protocol):
    num_columns: int

    def column(self, number: int, /) -> _Column: ...


class _Metadata(Protocol):
    num_row_groups: int

    def row_group(self, number: int, /) -> _Group: ...


class Layout:
    """The column chunks of each row group, in byte order; read from the metadata when needed."""

    def __init__(self, metadata: _Metadata) -> None:
        """Take the metadata of a file's footer (``pyarrow.parquet.FileMetaData``)."""
        self._metadata = metadata
        self._count = metadata.num_row_groups
        self._chunks: dict[int, list[tuple[int, int, int]]] = {}
        self._runs: dict[tuple[int, int, int], tuple[int, int]] = {}
        # Only of the first column: a footer of 1,000 columns and 1,000 row groups has a million column chunks.
        groups = [metadata.row_group(number) for number in range(self._count)] if self._count > 1 else []
        self._starts = [_range(group, 0)[0] for group in groups if group.num_columns]

    def place(self, start: int, stop: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the row group and the columns whose consecutive chunks are ``[start, stop)``.

        None if the range is anything else, or if the file has only one row group.
        """
        at = bisect_right(self._starts, start) - 1
        held = [each for each in self._ranges(at) if start <= each[0] and each[1] <= stop] if at >= 0 else []
        if not held or (held[0][0], held[-1][1]) != (start, stop):
            return None
        return at, tuple(column for *_, column in held)

    def ahead(self, first: int, runs: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
        """Yield the byte range of each run of columns (as ``place`` returns them), from row group ``first`` on."""
        for number in range(max(0, first), self._count):
            for columns in runs:
                start, stop = self._run(number, columns)
                # A row group may store its columns in a different order.
                if start < stop:
                    yield start, stop

    def _run(self, number: int, columns: tuple[int, ...]) -> tuple[int, int]:
        key = number, columns[0], columns[-1]
        found = self._runs.get(key)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._runs[key] = _range(group, columns[0])[0], _range(group, columns[-1])[1]
        return found

    def _ranges(self, number: int) -> list[tuple[int, int, int]]:
        found = self._chunks.get(number)
        if found is None:
            group = self._metadata.row_group(number)
            found = self._chunks[number] = sorted(_range(group, column) for column in range(group.num_columns))
        return found


def _range(group: _Group, number: int) -> tuple[int, int, int]:
    column = group.column(number)
    start = column.data_page_offset
    if column.dictionary_page_offset:  # None; some writers store 0
        start = min(start, column.dictionary_page_offset)
    return start, start + column.total_compressed_size, number
