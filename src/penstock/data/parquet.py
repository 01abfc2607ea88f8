"""Untrusted Parquet files: the bytes that a file may take once unpacked are bounded, whatever its footer declares.

The bound is checked against the headers of the pages, since pyarrow allocates by these. Texts that many rows share
are read as dictionaries, and counted before they are copied for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.unpacking import check_unpacked
from penstock.errors import Damaged, ManifestError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    _ReadValue = Callable[[bytes | memoryview, int, int, int], tuple[Any, int]]

_VALUE_BYTES = 8  # of a number, or of the code of a text
_FIXED_BYTES = 16 << 10  # limit for a text of fixed length
_MOST_NESTED = 8  # nested structures of Thrift; a page's header has three


class Coded(NamedTuple):
    """A column of texts or bytes: the distinct values, and each row's index into them, -1 for none."""

    codes: NDArray[np.int32]
    values: list[Any]


class ColumnPage(NamedTuple):
    """Page of a column: bytes once unpacked, values, place after its header, and fields of ``PageHeader`` by number.

    ``stop`` may be beyond the column.
    """

    unpacked: int
    values: int
    start: int
    stop: int
    header: dict[int, Any]


class Chunk(NamedTuple):
    """Column of a row group in a file; ``unpacked`` bytes and number of ``values`` are those that the footer declares.

    ``path`` is the name of the column in the table, and those below it down to this leaf. ``refused`` is the reason why
    it cannot be read, empty for others; ``codec`` is the number of its compression, 0 for none.
    """

    path: tuple[str, ...]
    start: int
    stop: int
    unpacked: int
    refused: str
    codec: int = 0
    values: int = 0

    @property
    def column(self) -> str:
        """Name of the column in the table; empty without a path."""
        return self.path[0] if self.path else ""


class RowGroup(NamedTuple):
    """Row group: its rows, and its columns."""

    rows: int
    chunks: list[Chunk]


def libraries(name: str) -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``, which reading the file ``name`` needs."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(f'{name} is Parquet, which needs pyarrow: pip install "penstock[parquet]"') from error
    return pa, parquet


def open_parquet(data: bytes, name: str, coded: Sequence[str] | None = None) -> Any:  # noqa: ANN401  pyarrow's
    """Return pyarrow's ``ParquetFile`` of these bytes; ``coded`` columns are read as dictionaries, by default all."""
    pa, parquet = libraries(name)
    file = parquet.ParquetFile(pa.BufferReader(data))
    length = int.from_bytes(data[-8:-4], "little")
    groups = [*row_groups(memoryview(data)[-8 - length : -8])]
    check_rows(file.metadata.num_rows, sum(group.rows for group in groups))
    for group in groups:
        if refused := [chunk for chunk in group.chunks if chunk.refused]:
            column, reason = refused[0].column, refused[0].refused
            raise ManifestError(f"{name}: the column {column!r} cannot be read: {reason}", url=name)
    _check_held_size(file, data, name)
    if coded is None:
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
        found = [each.path for each in leaves if each.physical_type == "BYTE_ARRAY"]
    else:
        found = [each.name for each in file.schema_arrow if each.name in coded and not pa.types.is_nested(each.type)]
    if found:
        file = parquet.ParquetFile(pa.BufferReader(data), read_dictionary=found, metadata=file.metadata)
    return file


def text_bytes(column: Any) -> int:  # noqa: ANN401  pyarrow's
    """Return the bytes of a column's texts, nested ones included, if each row has a separate copy."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_dictionary(kind):
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if not any(fits(kind.value_type) for fits in texts):
            return 0
        lengths = compute.binary_length(column.dictionary).take(column.indices)
        return compute.sum(lengths.cast(pa.int64())).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(text_bytes(column.field(number)) for number in range(kind.num_fields))
    return text_bytes(column.flatten()) if pa.types.is_nested(kind) and not pa.types.is_union(kind) else 0


def decode_column(column: Any) -> list[Any]:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).to_pylist()  # type: ignore[no-any-return]


def coded_columns(
    data: bytes, url: str, texts: Sequence[str], numbers: Sequence[str]
) -> tuple[dict[str, Coded], dict[str, NDArray[np.int64]], int]:
    """Return columns of texts or bytes, columns of integers (0 for a row without a value), and the number of rows.

    A value that many rows share is held once. Requested columns that the file lacks are left out, and other columns are
    not read.
    """
    try:
        file = open_parquet(data, url, texts)
        names = file.schema_arrow.names
        table = file.read(columns=[each for each in (*texts, *numbers) if each in names], use_threads=False)
        found = {name: _code_column(table.column(name), name) for name in texts if name in names}
        counted = {name: _numbers(table.column(name), name) for name in numbers if name in names}
    except MissingExtra:
        raise
    except ManifestError as error:
        raise Damaged(error.message, url=url) from None
    except Exception as error:
        raise Damaged(f"cannot read the Parquet file ({error})", url=url) from error
    return found, counted, table.num_rows


def _check_held_size(file: Any, data: bytes, name: str) -> None:  # noqa: ANN401  pyarrow's
    """Raise ``ManifestError`` for more bytes than may be held, and for repeated names, which a dict would lose."""
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        raise ManifestError(f"{name}: a column occurs twice", url=name)
    unpacked, values = _measure_pages(file, data)
    held = unpacked + _VALUE_BYTES * (values + file.metadata.num_rows * file.metadata.num_columns)
    check_unpacked(held, f"{name}: a file of {len(data)} bytes", kind=ManifestError)


def _measure_pages(file: Any, data: bytes) -> tuple[int, int]:  # noqa: ANN401  pyarrow's
    """Return the bytes that a file's pages unpack to, and the values in columns of lists, in units of eight bytes."""
    meta, schema = file.metadata, file.schema
    packed = unpacked = values = 0
    for number in range(meta.num_columns):
        leaf = schema.column(number)
        width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 8
        if width > _FIXED_BYTES:
            raise ValueError(f"texts of {width} bytes each")
        for group in range(meta.num_row_groups):
            chunk = meta.row_group(group).column(number)
            if not chunk.num_values:
                # pyarrow does not read such a chunk, and its offsets may be invalid.
                continue
            starts = (chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
            start = min(each for each in starts if each is not None)
            stop = start + chunk.total_compressed_size
            packed += stop - start
            if not 0 <= start <= stop <= len(data) or packed > len(data):
                raise ValueError("columns overlap, or are outside of the file")
            for page in pages_of(data, start, stop):
                unpacked += page.unpacked
                values += page.values * -(-max(width, 1) // 8) if leaf.max_repetition_level else 0
    return unpacked, values


def pages_of(data: bytes | memoryview, at: int, stop: int) -> Iterator[ColumnPage]:
    """Yield the pages between two offsets, by their headers."""
    while at < stop:
        header, at = _record(data, at, 0, _value)
        took, packed = header.get(2), header.get(3)
        if not isinstance(took, int) or not isinstance(packed, int) or took < 0 or packed < 0:
            raise ValueError("a page without a size")
        pages = [header.get(kind) for kind in (5, 8)]
        values = sum(each[1] for each in pages if isinstance(each, dict) and isinstance(each.get(1), int))
        yield ColumnPage(took, values, at, at + packed, header)
        at += packed


def check_rows(stated: int, rows: int) -> None:
    """Raise ``ValueError`` if a footer states another number of rows than its row groups have."""
    if stated != rows:
        raise ValueError(f"the footer declares {stated} rows, but its row groups have {rows}")


def row_groups(footer: bytes | memoryview) -> Iterator[RowGroup]:
    """Yield the row groups that a footer describes; pyarrow's accessors would end the process for some footers."""
    at = number = 0
    while (mark := _byte(footer, at)) != 0:
        at += 1
        kind, step = mark & 15, mark >> 4
        if not step:
            step, at = _read_zigzag(footer, at)
            number = 0
        number += step
        if number == 4 and kind == 9:  # noqa: PLR2004  the list of row groups
            count, inner, at = _read_list_header(footer, at)
            for _ in range(count):
                found, at = _any(footer, at, inner, 0)
                yield _row_group(found)
        else:
            _, at = _any(footer, at, kind, 0)


def _row_group(found: Any) -> RowGroup:  # noqa: ANN401  a value of Thrift
    chunks = found.get(1) if isinstance(found, dict) else None
    if not isinstance(chunks, list) or type(found.get(3)) is not int:
        raise ValueError("a row group without columns or rows")
    return RowGroup(found[3], [_parse_chunk(chunk) for chunk in chunks])


def _parse_chunk(chunk: Any) -> Chunk:  # noqa: ANN401  a value of Thrift
    meta = chunk.get(3, {}) if isinstance(chunk, dict) else None
    if not isinstance(meta, dict):
        raise ValueError("a column without a description")  # noqa: TRY004  as for other parts of a file
    refused = "it is encrypted" if 8 in chunk or 9 in chunk else "it is in another file" if 1 in chunk else ""  # noqa: PLR2004
    if refused and 3 not in chunk:  # noqa: PLR2004
        found = chunk.get(8)
        for field in (2, 1):
            found = found.get(field) if isinstance(found, dict) else None
        return Chunk(_parse_column_path(found or []), 0, 0, 0, refused)
    numbers = [meta.get(field) for field in (9, 7, 6)]
    first, packed, unpacked = numbers
    if type(first) is not int or type(packed) is not int or type(unpacked) is not int or packed < 0:
        raise ValueError("a column without its place")
    dictionary = meta.get(11)
    start = min(first, dictionary) if type(dictionary) is int and dictionary > 0 else first
    codec, values = meta.get(4), meta.get(5)
    if type(codec) is not int or type(values) is not int:
        raise ValueError("a column without its compression or its values")
    return Chunk(_parse_column_path(meta.get(3)), start, start + packed, unpacked, refused, codec, values)


def _parse_column_path(found: Any) -> tuple[str, ...]:  # noqa: ANN401  a value of Thrift
    if not isinstance(found, list) or not all(isinstance(each, memoryview) for each in found):
        raise ValueError("a column without a name")
    return tuple(str(each, "utf-8") for each in found)


def _read_list_header(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return the length of a list, the Thrift type of its elements, and where these begin."""
    mark = _byte(data, at)
    count, at = mark >> 4, at + 1
    if count == 15:  # noqa: PLR2004  a longer one
        count, at = read_varint(data, at)
    if count > len(data) - at:
        raise ValueError("a list that is longer than the footer")
    return count, mark & 15, at


def _any(data: bytes | memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a value of any Thrift type: integers, texts as views, lists, structures by field; others become None."""
    if kind in (4, 5, 6):
        return _read_zigzag(data, at)
    if kind == 8:  # noqa: PLR2004  a text
        length, at = read_varint(data, at)
        if length > len(data) - at:
            raise ValueError("a text that is longer than the footer")
        return memoryview(data)[at : at + length], at + length
    if depth > 2 * _MOST_NESTED:
        raise ValueError("values that are nested too deeply")
    if kind == 12:  # noqa: PLR2004  a structure
        return _record(data, at, depth + 1, _any)
    if kind in (9, 10):
        count, inner, at = _read_list_header(data, at)
        found = []
        for _ in range(count):
            # A boolean takes a byte in a list, and none in a structure.
            each, at = (None, at + 1) if inner in (1, 2) else _any(data, at, inner, depth + 1)
            found.append(each)
        return found, at
    plain = {1: 0, 2: 0, 3: 1, 7: 8}
    if kind not in plain:
        raise ValueError("a value of an unknown type")
    return None, at + plain[kind]


def _record(data: bytes | memoryview, at: int, depth: int, read: _ReadValue) -> tuple[dict[int, Any], int]:
    """Read a structure of Thrift's compact protocol, by field, whose values ``read`` reads."""
    fields: dict[int, Any] = {}
    number = 0
    while (mark := _byte(data, at)) != 0:
        at += 1
        step = mark >> 4
        if not step:
            step, at = _read_zigzag(data, at)
            number = 0
        number += step
        fields[number], at = read(data, at, mark & 15, depth)
    return fields, at + 1


def _value(data: bytes | memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a value of a Thrift type: truths (1, 2), integers (4 to 6), structures (12); other types are skipped."""
    if kind in (1, 2):
        return kind == 1, at
    if kind in (4, 5, 6):
        return _read_zigzag(data, at)
    if kind == 12 and depth < _MOST_NESTED:  # noqa: PLR2004  a structure
        return _record(data, at, depth + 1, _value)
    if kind == 8:  # noqa: PLR2004  a text
        length, at = read_varint(data, at)
        return None, at + length
    # Lengths of a byte and a double; a page's header has no lists and maps.
    plain = {3: 1, 7: 8}
    if kind not in plain:
        raise ValueError("a page header with an unknown field")
    return None, at + plain[kind]


def _byte(data: bytes | memoryview, at: int) -> int:
    if at >= len(data):
        raise ValueError("a truncated page header")
    return data[at]


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a number stored as seven bits per byte, and the offset after it."""
    found = 0
    for shift in range(0, 70, 7):
        part = _byte(data, at)
        at += 1
        found |= (part & 127) << shift
        if part < 128:  # noqa: PLR2004  the last one
            return found, at
    raise ValueError("a page header with an overlong number")


def _read_zigzag(data: bytes | memoryview, at: int) -> tuple[int, int]:
    found, at = read_varint(data, at)
    return (found >> 1) ^ -(found & 1), at


def _code_column(column: Any, name: str) -> Coded:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return Coded(np.full(len(column), -1, dtype=np.int32), [])
    fits = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(fit(value) for fit in fits):
        raise ValueError(f"the column {name!r} must be of a text type, got {value}")
    if value is kind:
        column = column.dictionary_encode()
    chunk = column.unify_dictionaries().combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):  # older pyarrow, for a column without rows
        chunk = pa.concat_arrays(chunk.chunks) if chunk.num_chunks else pa.array([], kind)
    codes = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Coded(codes, chunk.dictionary.to_pylist())


def _numbers(column: Any, name: str) -> NDArray[np.int64]:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if not pa.types.is_integer(column.type):
        raise ValueError(f"the column {name!r} must be of an integer type, got {column.type}")
    return column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64, copy=True)  # type: ignore[no-any-return]
