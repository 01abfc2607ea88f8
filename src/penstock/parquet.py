"""Parquet files that anybody may have made: what one may unpack to is bounded by what it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import Damaged, ManifestError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Coded", "coded_columns", "open_parquet"]

_ROWS_PER_BYTE = 1  # keys that differ take more than a byte each
_BYTES_PER_BYTE = 200  # of text that is packed well
_FREE = 1 << 20  # rows, and 64 times the bytes, that any file may have


class Coded(NamedTuple):
    """A column of texts or bytes, each different value once.

    Attributes:
        codes: For each row, the number of its value, int32; -1 where it has none.
        values: The values.

    """

    codes: NDArray[np.int32]
    values: list[Any]


def open_parquet(data: bytes, name: str, coded: Sequence[str] = (), most_bytes: int = 0) -> Any:  # noqa: ANN401  pyarrow's
    """Return pyarrow's ``ParquetFile`` of a file's bytes; ``coded`` columns are read as dictionaries.

    ``most_bytes`` is what it may unpack to; 0: in proportion to its size.

    Raises:
        ManifestError: A column's name stands twice, or the file would unpack to more rows or bytes than such a file can
            hold for good reason. What it declares is believed as to bytes.
        MissingExtra: There is no pyarrow.
        Exception: pyarrow's own: no Parquet.

    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(f'{name} is Parquet, which needs pyarrow: pip install "penstock[parquet]"') from error
    file = parquet.ParquetFile(pa.BufferReader(data))
    if found := [each.name for each in file.schema_arrow if each.name in coded and not pa.types.is_nested(each.type)]:
        file = parquet.ParquetFile(pa.BufferReader(data), read_dictionary=found, metadata=file.metadata)
    _bounded(file, len(data), name, most_bytes)
    return file


def coded_columns(
    data: bytes, url: str, texts: Sequence[str], numbers: Sequence[str], *, most_bytes: int
) -> tuple[dict[str, Coded], dict[str, NDArray[np.int64]], int]:
    """Return columns of texts or bytes, columns of whole numbers (0 where a row has none), and how many rows there are.

    A value that many rows have is held once. Columns that the file lacks are left out, and others are not read.
    ``most_bytes`` is what the file may unpack to.

    Raises:
        Damaged: No Parquet, columns of other types, or more rows or bytes than such a file can hold.
        MissingExtra: There is no pyarrow.

    """
    try:
        file = open_parquet(data, url, texts, most_bytes)
        names = file.schema_arrow.names
        table = file.read(columns=[each for each in (*texts, *numbers) if each in names], use_threads=False)
        found = {name: _coded(table.column(name), name) for name in texts if name in names}
        counted = {name: _numbers(table.column(name), name) for name in numbers if name in names}
    except MissingExtra:
        raise
    except ManifestError as error:
        raise Damaged(error.message, url=url) from None
    except Exception as error:
        raise Damaged(f"not a Parquet file that can be read ({error})", url=url) from error
    return found, counted, table.num_rows


def _bounded(file: Any, size_bytes: int, name: str, most_bytes: int) -> None:  # noqa: ANN401  pyarrow's
    """Refuse what packs a table into next to nothing, and names that a row as a dict would lose."""
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        raise ManifestError(f"{name}: a column stands twice", url=name)
    meta = file.metadata
    unpacked = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
    most_bytes = most_bytes or 64 * _FREE + _BYTES_PER_BYTE * size_bytes
    if meta.num_rows > _FREE + _ROWS_PER_BYTE * size_bytes or unpacked > most_bytes:
        what = f"{size_bytes} bytes that unpack to {meta.num_rows} rows of {unpacked} bytes"
        raise ManifestError(f"{name}: {what}, too many for such a file", url=name)


def _coded(column: Any, name: str) -> Coded:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return Coded(np.full(len(column), -1, dtype=np.int32), [])
    fits = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(fit(value) for fit in fits):
        raise ValueError(f"the column {name!r} is of the type {value}, and not of texts")
    if value is kind:
        column = column.dictionary_encode()
    chunk = column.unify_dictionaries().combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):  # older versions, of a column without rows
        chunk = pa.concat_arrays(chunk.chunks) if chunk.num_chunks else pa.array([], kind)
    codes = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Coded(codes, chunk.dictionary.to_pylist())


def _numbers(column: Any, name: str) -> NDArray[np.int64]:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if not pa.types.is_integer(column.type):
        raise ValueError(f"the column {name!r} is of the type {column.type}, and not of whole numbers")
    return column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64, copy=True)  # type: ignore[no-any-return]
