"""Rows of a Parquet file that anybody may have made: what it may unpack to is bounded by what it declares."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.errors import ManifestError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["columns", "rows"]

_ROWS = 8192  # at once
_ROWS_PER_BYTE = 1  # keys that differ take more than a byte each
_BYTES_PER_BYTE = 200  # of text that is packed well
_FREE = 1 << 20  # rows, and 64 times the bytes, that any file may have
_JSON = (str, int, float, bool, type(None))


def rows(data: bytes, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the rows with their numbers, from 1.

    Raises:
        ManifestError: No Parquet; a column's name stands twice; a value that is no JSON; or it would unpack to more
            rows or bytes than such a file can hold for good reason. What it declares is believed as to bytes.
        MissingExtra: There is no pyarrow.

    """
    try:
        file = _opened(data, name)
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS):
            for row in batch.to_pylist():
                number += 1
                _check_plain(row, f"{name}, row {number}")
                yield number, row
    except (ManifestError, MissingExtra):
        raise
    except Exception as error:
        raise ManifestError(f"{name}: not a Parquet file that can be read ({error})", url=name) from error


def columns(
    data: bytes, name: str, wanted: Callable[[Sequence[str], str], Mapping[str, str]]
) -> Iterator[dict[str, Sequence[object]]]:
    """Yield some columns, some thousand rows at a time; ``wanted(columns, name)`` says what each is called then.

    Raises:
        ManifestError: As ``rows``; and what ``wanted`` raises.
        MissingExtra: There is no pyarrow.

    """
    try:
        file = _opened(data, name)
        names = wanted(file.schema_arrow.names, name)
        for batch in file.iter_batches(batch_size=_ROWS, columns=[*names.values()]):
            yield {word: batch.column(column).to_pylist() for word, column in names.items()}
    except (ManifestError, MissingExtra):
        raise
    except Exception as error:
        raise ManifestError(f"{name}: not a Parquet file that can be read ({error})", url=name) from error


def _opened(data: bytes, name: str) -> Any:  # noqa: ANN401  pyarrow's
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(f'{name} is Parquet, which needs pyarrow: pip install "penstock[parquet]"') from error
    file = parquet.ParquetFile(pa.BufferReader(data))
    _bounded(file, len(data), name)
    return file


def _bounded(file: Any, size_bytes: int, name: str) -> None:  # noqa: ANN401  pyarrow's
    """Refuse what packs a table into next to nothing, and names that a row as a dict would lose."""
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        raise ManifestError(f"{name}: a column stands twice", url=name)
    meta = file.metadata
    unpacked = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
    if meta.num_rows > _FREE + _ROWS_PER_BYTE * size_bytes or unpacked > 64 * _FREE + _BYTES_PER_BYTE * size_bytes:
        message = f"{name}: {size_bytes} bytes that unpack to {meta.num_rows} rows of {unpacked} bytes: use JSON lines"
        raise ManifestError(message, url=name)


def _check_plain(row: Mapping[str, object], where: str) -> None:
    """Refuse a value that is no JSON, and so no label."""
    for column, value in row.items():
        if not isinstance(value, _JSON):
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: column {column!r} holds what is no JSON ({error})") from error
