"""Parquet files: a sample is a row, and a row group is decoded as a whole, by pyarrow.

Format: Apache Parquet's ``parquet.thrift``. A unit is the wanted columns of a row group, and the footer again, so that
it can be decoded without anything else. pyarrow reads from these ranges as from the whole file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from penstock.data.parquet import check_rows, libraries, pages_of, row_groups, text_bytes
from penstock.data.shards.extensions import extension_of, extension_value, plain_array, plain_type
from penstock.data.shards.format import Ask, Extents, Fields, FieldsFormat, UnitFormat, Units
from penstock.data.shards.pages import byte_views
from penstock.data.unpacking import check_unpacked, most_unpacked
from penstock.errors import Damaged, PenstockError, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.parquet import ColumnPage, RowGroup
    from penstock.data.shards.extensions import Extension
    from penstock.data.shards.format import UnitPiece, Walk

    Get = Callable[[int], Any]

_TAIL_BYTES = 64 << 10  # of the first request, which has most footers as a whole
_MOST_FOOTER_BYTES = 64 << 20
_ROW_BYTES = 32  # of memory for the place of a row, while a file is indexed
_FETCHED = 8  # times the bytes of a row group that was fetched may be held in any case: large groups of plain columns
_PAGE_BYTES = 512  # of memory for the header of a page
_BATCH_BYTES = 256 << 20  # of rows that are decoded before they are counted, at most
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # of values once decoded
_DECIMAL_BYTES = 32
_LEVEL_BYTES = 4  # that the place of a value in lists takes besides
_COPIED = {0, 2, 8}  # encodings whose texts pyarrow can leave in their dictionary: plain, and two of dictionaries
_MEAN_BYTES = 1 << 10  # of byte arrays that are cut one by one: pyarrow is faster at shorter ones
# Parsed footers of the files that are read at a time; those of many row groups take seconds to parse, and 3 times the
# memory of their bytes.
_KEPT_FOOTERS, _KEPT_FOOTER_BYTES = 64, 1 << 20
_KEPT_LONG, _KEPT_LONG_BYTES = 8, 8 << 20
_NOTHING = memoryview(b"")
_ELEMENT = re.compile(r"list<\w+: ")
_IMAGE = {"bytes", "path"}  # fields of a struct that Hugging Face writes for images and audio


class _RowGroup(NamedTuple):
    """A row group with rows: its first row, its rows, the ranges of the wanted columns, and their unpacked bytes."""

    first: int
    rows: int
    ranges: list[tuple[int, int]]
    unpacked: int


@dataclass(frozen=True, slots=True)
class ParquetFormat(FieldsFormat, UnitFormat):
    """Parquet files whose rows are samples: ``sample["label"]``.

    Bytes and Hugging Face's images and audio (a struct of ``bytes`` and ``path``) are bytes, lists of numbers are numpy
    arrays, other values are Python's. Extension types of Arrow: tensors (Arrow's, Hugging Face's ``ArrayXD``, Ray's)
    are arrays of their shape, UUIDs are ``uuid.UUID``, bools of 8 bits are bools, JSON is text; others are refused,
    unless ``fields`` names the column: then values are those of its storage.

    A row group is fetched, the wanted columns of it, and decoded as a whole; it stays in memory until its last row was
    delivered. A window of row groups of 256 MB takes that much times the groups of the window, and as much again ahead:
    files for training have groups of some 10 MB (``row_group_size=``). The file's footer is fetched with
    its first groups.

    Args:
        fields: Names of the columns to take; empty: all. A single name as a str, of a column of bytes or texts: samples
            are its values.
        columns: Name and type of each wanted column, which the files agree on; found by the index.
    """

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    columns: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        FieldsFormat.__post_init__(self)
        pairs: Any = self.columns
        if not isinstance(pairs, (list, tuple)) or not all(
            isinstance(each, (list, tuple)) and [*map(type, each)] == [str, str] for each in pairs
        ):
            raise Unusable(f"columns must be pairs of names and types, got {pairs!r}")
        object.__setattr__(self, "columns", tuple(map(tuple, pairs)))

    def walk(self, size: int) -> Walk:
        if size < 12:  # noqa: PLR2004  two magics and a length
            raise Damaged(f"{size} bytes are not a Parquet file")
        start = max(0, size - _TAIL_BYTES)
        tail = yield Ask(start, size)
        footer = size - _footer_bytes(tail, size)
        if footer < start:
            tail = memoryview(bytes((yield Ask(footer, start))) + tail)
        tail = tail[-(size - footer) :]
        meta = _metadata(tail)
        columns = self._columns(meta)
        try:
            groups = [*_groups(tail, {name for name, _ in columns}, footer)]
            check_rows(meta.num_rows, sum(group.rows for group in groups))
        except ValueError as error:
            raise Damaged(f"the footer of the Parquet file is invalid: {error}") from error
        return _extents(groups, footer, size)._replace(schema=columns)

    def having(self, schema: Any) -> Self:  # noqa: ANN401  see ``ShardFormat.having``
        found: dict[str, str] = dict(schema)
        if not self.columns:
            return replace(self, columns=tuple(found.items()))
        known = dict(self.columns)
        for name in [*known, *found]:
            if known.get(name) != found.get(name):
                kinds = [f"has the type {each[name]}" if name in each else "is missing" for each in (known, found)]
                raise Unusable(
                    f"the column {name!r} {kinds[1]} in this file, and {kinds[0]} in the files before it: pass fields= "
                    "without it, or the files that agree"
                )
        return self

    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401  see ``row``
        *chunks, footer = pieces
        parsed, number = _find_group(footer, first)
        with _decoding(first):
            return _decode_group(parsed, number, first, [name for name, _ in self.columns], chunks, footer)

    def numbers(self, pieces: list[UnitPiece], first: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the columns of a unit, all of numbers, in pieces of its rows: arrays of shape (rows, values of each).

        Raises:
            Damaged: A row has another number of values than the others, or lacks its value.
            Unsupported: A column has no numbers.
        """
        *chunks, footer = pieces
        parsed, number = _find_group(footer, first)
        names = [name for name, _ in self.columns]
        with _decoding(first):
            for batch in _group_batches(parsed, number, names, chunks, footer, _pages(chunks)):
                yield {name: _as_numbers(batch.column(name), name) for name in names}

    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  a ``_Rows``
        values = unit.row(number)
        if not isinstance(self.fields, str):
            return Fields("", values)
        value = values[self.fields]
        if value is None:
            raise Damaged(f"the column {self.fields!r} has no value in row {unit.first + number}: pass fields=(…,)")
        return memoryview(value.encode()) if isinstance(value, str) else value

    def _columns(self, meta: Any) -> list[tuple[str, str]]:  # noqa: ANN401  pyarrow's
        """Return the names of the wanted columns, with their types."""
        schema = meta.schema.to_arrow_schema()
        known = schema.names
        if len(set(known)) < len(known) or not known:
            raise Damaged(f"two columns of the Parquet file have the same name: {', '.join(known)}")
        for name in self.wanted:
            if name not in known:
                raise Unusable(f"unknown column {name!r}; columns are {', '.join(known)}")
        columns = [(name, self._described(schema.field(name))) for name in self.wanted or known]
        if isinstance(self.fields, str) and not _single(schema.field(self.fields)):
            raise Unusable(
                f"the column {self.fields!r} is of the type {columns[0][1]}, neither bytes nor texts: pass "
                f"fields=({self.fields!r},), and take sample[{self.fields!r}]"
            )
        return columns

    def _described(self, field: Any) -> str:  # noqa: ANN401  pyarrow's
        """Return the type of a column, regardless of registered extension types."""
        extension, stored = extension_of(field), _name_type(plain_type(field.type))
        if extension is None:
            return stored
        if not extension.known and field.name not in self.wanted:
            raise Unsupported(
                f"the column {field.name!r} is of the extension type {extension}, which is unsupported: pass fields= "
                f"with the columns to take; for this one, that gives the values of its storage, {stored}"
            )
        return f"{stored} as {extension}"


def _find_group(footer: UnitPiece, first: int) -> tuple[_Footer, int]:
    """Return the parsed footer, and the number of the row group that begins with row ``first``."""
    if _footer_bytes(footer.data, footer.start + len(footer.data)) != len(footer.data):
        raise Damaged("the footer has moved")
    parsed = _parse_footer(bytes(footer.data))
    number = parsed.firsts.get(first)
    if number is None:
        raise Damaged(f"no row group begins with row {first}")
    return parsed, number


@contextmanager
def _decoding(first: int) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise Damaged(f"cannot decode the row group of row {first} ({error})") from error


def _as_numbers(array: Any, name: str) -> NDArray[Any]:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the file")
    array, rows = plain_array(array), len(array)
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        if not pa.types.is_fixed_size_list(array.type):
            sizes = np.diff(array.offsets.to_numpy())
            if (sizes != sizes[:1]).any():
                raise Damaged(f"rows of the column {name!r} have different numbers of values")
        if array.null_count:
            raise Damaged(f"the column {name!r} has rows without a value")
        array = array.flatten()
    if array.null_count:
        raise Damaged(f"the column {name!r} has rows without a value")
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)):
        raise Unsupported(f"the column {name!r} holds {array.type}, and numbers are needed")
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.reshape(rows, -1 if rows else 0)


def _single(field: Any) -> bool:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the file")
    extension, kind = extension_of(field), plain_type(field.type)
    if extension is not None and extension_value(extension, None, "") is not None:
        return False
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _name_type(kind) == "string" or _is_bytes(kind) or _is_image(kind)


def _name_type(kind: Any) -> str:  # noqa: ANN401  pyarrow's
    """Return the name of a type without the width of its offsets, and without the names that writers give to elements.

    Views, which Polars writes, have the plain name.
    """
    return _ELEMENT.sub("list<item: ", str(kind).replace("large_", "").replace("_view", ""))


def _is_bytes(kind: Any) -> bool:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the file")
    return _name_type(kind) == "binary" or pa.types.is_fixed_size_binary(kind)


def _is_image(kind: Any) -> bool:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the file")
    named = pa.types.is_struct(kind) and {each.name for each in kind} == _IMAGE
    return named and _is_bytes(kind.field("bytes").type)


def _footer_bytes(tail: memoryview, size: int) -> int:
    """Return the bytes of the footer, its length and the magic included; ``tail`` is the end of the file."""
    magic = bytes(tail[-4:])
    if magic == b"PARE":
        raise Unsupported("the Parquet file is encrypted: decrypt it first")
    if magic != b"PAR1":
        raise Damaged("the file does not end like a Parquet file")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > min(size - 4, _MOST_FOOTER_BYTES):
        raise Damaged(f"the footer of a Parquet file of {size} bytes declares {length} bytes")
    return length


def _metadata(footer: memoryview) -> Any:  # noqa: ANN401  pyarrow's
    pa, parquet = libraries("the file")
    try:
        return parquet.read_metadata(pa.BufferReader(pa.py_buffer(footer)))
    except Exception as error:
        raise Damaged(f"cannot read the footer of the Parquet file ({error})") from error


def _groups(footer: memoryview, names: Collection[str], start: int) -> Iterator[_RowGroup]:
    """Yield the row groups with rows, given the footer, which begins at byte ``start`` of the file."""
    first = 0
    for number, group in enumerate(row_groups(footer)):
        if group.rows < 0:
            raise Damaged(f"row group {number} of the Parquet file has {group.rows} rows")
        check_unpacked(_ROW_BYTES * (first + group.rows), f"the index of {first + group.rows} rows")
        if not group.rows:
            continue
        chunks = sorted(chunk for chunk in group.chunks if chunk.column in names)
        for chunk in chunks:
            if chunk.refused:
                raise Unsupported(f"the column {chunk.column!r} of the Parquet file cannot be read: {chunk.refused}")
            if not 4 <= chunk.start <= chunk.stop <= start:  # noqa: PLR2004  the magic
                raise Damaged(f"the column {chunk.column!r} is outside of the file in row group {number}")
        ranges = sorted((chunk.start, chunk.stop) for chunk in chunks if chunk.start < chunk.stop)
        if any(later < stop for (_, stop), (later, _) in pairwise(ranges)):
            raise Damaged(f"the columns of row group {number} overlap")
        unpacked = sum(max(chunk.unpacked, 0) for chunk in chunks)
        yield _RowGroup(first, group.rows, ranges, min(unpacked, _most_held(sum(stop - at for at, stop in ranges))))
        first += group.rows


def _most_held(packed: int) -> int:
    """Return the bytes that a row group of ``packed`` bytes may take once decoded."""
    return max(most_unpacked(), _FETCHED * packed)


def _extents(groups: Sequence[_RowGroup], footer: int, size: int) -> Extents:
    ranges = [(*group.ranges, (footer, size)) for group in groups]
    flat = np.array([each for found in ranges for each in found], dtype=np.int64).reshape(-1, 2)
    rows = np.array([group.rows for group in groups], dtype=np.int64)
    ends = np.cumsum([len(found) for found in ranges], dtype=np.int64)
    fetched = np.diff(np.concatenate(([0], np.cumsum(flat[:, 1] - flat[:, 0])))[np.concatenate(([0], ends))])
    units = Units(
        np.array([group.first for group in groups], dtype=np.int64),
        np.array([group.unpacked for group in groups], dtype=np.int64),
        ends,
        flat[:, 0],
        flat[:, 1],
    )
    sizes = np.repeat(np.maximum(fetched // np.maximum(rows, 1), 1), rows)
    return Extents(np.arange(rows.sum(), dtype=np.int64), sizes, units=units)


class _Leaf(NamedTuple):
    """A column of byte arrays: its number among the leaves, and the optional fields from the row down to it."""

    number: int
    levels: int


class _Footer(NamedTuple):
    """A footer, parsed.

    ``firsts`` has the number of the row group that begins with a row, ``leaves`` the columns of bytes or images that
    are not lists, by name.
    """

    meta: Any
    groups: list[RowGroup]
    firsts: dict[int, int]
    leaves: dict[str, _Leaf]
    extensions: dict[str, Extension]


def _parse_footer(footer: bytes) -> _Footer:
    """Return a footer as parsed, once for all row groups of a file that are decoded soon after each other."""
    if len(footer) > _KEPT_LONG_BYTES:
        return _parse(footer)
    return (_kept_short if len(footer) <= _KEPT_FOOTER_BYTES else _kept_long)(footer)


def _parse(footer: bytes) -> _Footer:
    meta, first, firsts = _metadata(memoryview(footer)), 0, dict[int, int]()
    try:
        groups = [*row_groups(footer)]
    except ValueError as error:
        raise Damaged(f"the footer of the Parquet file is invalid: {error}") from error
    for number, group in enumerate(groups):
        if group.rows > 0:
            firsts[first] = number
            first += group.rows
    schema, leaves = meta.schema.to_arrow_schema(), dict[str, _Leaf]()
    wanted: dict[tuple[str, ...], str] = {}
    extensions = {field.name: found for field in schema if (found := extension_of(field)) is not None}
    for field in schema:
        if field.name in extensions:
            continue
        if _is_image(field.type):
            wanted[field.name, "bytes"] = field.name
        elif _is_bytes(field.type):
            wanted[(field.name,)] = field.name
    for number, chunk in enumerate(groups[0].chunks if groups else ()):
        leaf, name = meta.schema.column(number), wanted.get(chunk.path)
        if name is not None and leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level:
            leaves[name] = _Leaf(number, leaf.max_definition_level)
    return _Footer(meta, groups, firsts, leaves, extensions)


_kept_short, _kept_long = lru_cache(_KEPT_FOOTERS)(_parse), lru_cache(_KEPT_LONG)(_parse)


class _Sparse:
    """A file with only some ranges in memory, with the interface that pyarrow reads."""

    def __init__(self, chunks: Sequence[UnitPiece], footer: UnitPiece) -> None:
        self._chunks = {each.start: each.data for each in chunks}
        self._stop = footer.start + len(footer.data)
        self._at = 0
        self.closed = False

    def read(self, size: int = -1) -> memoryview:
        data = self._chunks.get(self._at, _NOTHING)
        # Only columns as a whole, whose pages were counted.
        if size != len(data):
            raise OSError(f"{size} bytes at {self._at} are not a column")
        self._at += size
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._stop)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class _GroupRows:
    """The rows of a row group: columns as views of its bytes, and others in batches as pyarrow has decoded them."""

    def __init__(
        self,
        first: int,
        names: Sequence[str],
        views: dict[str, list[memoryview]],
        extensions: dict[str, Extension],
    ) -> None:
        self.first = first
        self._extensions = extensions
        self._names = names
        self._views = views
        self._starts: list[int] = []
        self._batches: list[list[Get]] = []
        self.count = 0

    def add(self, batch: Any) -> None:  # noqa: ANN401  pyarrow's
        self._starts.append(self.count)
        self._batches.append(
            [
                self._views[name][self.count :].__getitem__
                if name in self._views
                else self._getter(batch.column(name), name)
                for name in self._names
            ]
        )
        self.count += batch.num_rows

    def _getter(self, array: Any, name: str) -> Get:  # noqa: ANN401  pyarrow's
        extension = self._extensions.get(name)
        if extension is None:
            return _getter(array, name, self.first + self.count)
        stored = plain_array(array)
        found = extension_value(extension, stored, f"the column {name!r}")
        return _getter(stored, name, self.first + self.count) if found is None else found

    def finish(self, count: int) -> None:
        """Take all rows from the views, if pyarrow has nothing to decode."""
        if not self._starts and len(self._views) == len(self._names):
            self._starts.append(0)
            self._batches.append([self._views[name].__getitem__ for name in self._names])
            self.count = count

    def row(self, number: int) -> dict[str, Any]:
        at = bisect_right(self._starts, number) - 1 if len(self._starts) > 1 else 0
        index = number - self._starts[at]
        return {name: get(index) for name, get in zip(self._names, self._batches[at], strict=True)}


def _decode_group(
    parsed: _Footer, number: int, first: int, names: Sequence[str], chunks: Sequence[UnitPiece], footer: UnitPiece
) -> _GroupRows:
    """Decode the columns of a row group; check page sizes before, and values during decoding.

    A value of a dictionary, or one that begins as another, may be repeated without limit: rows are decoded in batches,
    and texts in lists stay in their dictionary.
    """
    count = parsed.groups[number].rows
    pages = _pages(chunks)
    views = dict[str, list[memoryview]]()
    data = {each.start: each.data for each in chunks}
    for name in names:
        leaf = parsed.leaves.get(name)
        chunk = parsed.groups[number].chunks[leaf.number] if leaf is not None else None
        if leaf is None or chunk is None or chunk.start not in data:
            continue
        found = pages[chunk.start]
        if sum(page.unpacked for page in found) < _MEAN_BYTES * count:
            continue
        cut = byte_views(data[chunk.start], found, chunk.codec, leaf.levels, count)
        if cut is not None:
            views[name] = cut
    rows, others = _GroupRows(first, names, views, parsed.extensions), [name for name in names if name not in views]
    if others:
        for batch in _group_batches(parsed, number, others, chunks, footer, pages):
            rows.add(batch)
    rows.finish(count)
    if rows.count != count:
        raise Damaged(f"row group {number} has {rows.count} rows, not {count}")
    return rows


def _group_batches(
    parsed: _Footer,
    number: int,
    names: Sequence[str],
    chunks: Sequence[UnitPiece],
    footer: UnitPiece,
    pages: dict[int, list[ColumnPage]],
) -> Iterator[Any]:
    """Yield columns of a row group as record batches of Arrow, whose bytes are bounded."""
    pa, parquet = libraries("the file")
    packed, count, held = sum(len(each.data) for each in chunks), parsed.groups[number].rows, 0
    most, what = _most_held(packed), f"a row group of {packed} bytes"
    each, lists, coded = _decoded_bytes(parsed, number, names, pages)
    check_unpacked(lists, what, most)
    size = count if count * each + lists <= most else min(count, max(1, _BATCH_BYTES // max(each, 1)))
    opened = parquet.ParquetFile(
        pa.PythonFile(_Sparse(chunks, footer), mode="r"),
        metadata=parsed.meta,
        read_dictionary=coded,
        pre_buffer=False,
        page_checksum_verification=True,
    )
    # pyarrow's own threads do not survive a fork.
    for batch in opened.iter_batches(size, row_groups=[number], columns=names, use_threads=False):
        held += batch.nbytes + (sum(map(text_bytes, batch.columns)) if coded else 0)
        check_unpacked(held, what, most)
        yield batch


def _pages(chunks: Sequence[UnitPiece]) -> dict[int, list[ColumnPage]]:
    """Return the pages of each column of a row group, by its first byte."""
    pages: dict[int, list[ColumnPage]] = {}
    packed, held = sum(len(each.data) for each in chunks), 0
    for each in chunks:
        found = pages[each.start] = []
        for page in pages_of(each.data, 0, len(each.data)):
            held += page.unpacked + _PAGE_BYTES
            check_unpacked(held, f"a row group of {packed} bytes", _most_held(packed))
            found.append(page)
    return pages


def _decoded_bytes(
    parsed: _Footer, number: int, names: Collection[str], pages: dict[int, list[ColumnPage]]
) -> tuple[int, int, list[str]]:
    """Return the most decoded bytes of a row without lists, those of all lists, and paths.

    The paths are those of texts in lists that are left in their dictionary.
    """
    row = lists = 0
    coded: list[str] = []
    for at, chunk in enumerate(parsed.groups[number].chunks):
        if chunk.column not in names or chunk.start not in pages:
            continue
        leaf, found = parsed.meta.schema.column(at), pages[chunk.start]
        largest = max((page.unpacked for page in found), default=0)
        width = _DECIMAL_BYTES if leaf.logical_type.type == "DECIMAL" else _WIDTHS.get(leaf.physical_type, 0)
        if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
            width = max(width, leaf.length)
        if not leaf.max_repetition_level:
            row += width or largest
        elif width:
            lists += (width + _LEVEL_BYTES) * sum(page.values for page in found)
        elif all(_encoding(page) in _COPIED for page in found):
            lists += 2 * _LEVEL_BYTES * sum(page.values for page in found)
            coded.append(leaf.path)
        else:
            row += largest
    return row, lists, coded


def _encoding(page: ColumnPage) -> int:
    """Return the number of the encoding of a page of values, or of a dictionary."""
    about: Any = next((page.header[each] for each in (5, 7, 8) if isinstance(page.header.get(each), dict)), {})
    found = about.get(4 if 8 in page.header else 2)  # noqa: PLR2004  data pages of the second kind
    return found if isinstance(found, int) else -1


def _getter(array: Any, name: str, first: int) -> Get:  # noqa: ANN401  pyarrow's
    """Return a function from a row number to its value in a column that begins at row ``first``."""
    pa, _ = libraries("the file")
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _bytes(array)
    if _is_image(kind):
        data, paths = _getter(array.field("bytes"), name, first), array.field("path")
        return lambda row: _image(array, data(row), paths, row, f"{name!r} of row {first + row}")
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not array.null_count:
        # pyarrow's to_numpy() would import pandas first.
        letter = "f" if pa.types.is_floating(kind) else "i" if pa.types.is_signed_integer(kind) else "u"
        dtype = np.dtype(f"{letter}{kind.bit_width // 8}")
        return np.frombuffer(array.buffers()[1] or b"", dtype, array.offset + len(array))[array.offset :].item
    return lambda row: _convert_scalar(array[row])


def _convert_scalar(scalar: Any) -> Any:  # noqa: ANN401  pyarrow's, and Python's
    """Return a value as Python has it: a list of numbers as an array, bytes as a view."""
    import pyarrow as pa

    kind = scalar.type
    if (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) and scalar.is_valid:
        values, inner = scalar.values, kind.value_type
        if (pa.types.is_integer(inner) or pa.types.is_floating(inner)) and not values.null_count:
            return values.to_numpy(zero_copy_only=False)
    value = scalar.as_py()
    return memoryview(value) if isinstance(value, bytes) else value


def _bytes(array: Any) -> Get:  # noqa: ANN401  pyarrow's
    import pyarrow as pa

    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    view = memoryview(data or b"").cast("B").toreadonly()
    ends = np.frombuffer(offsets, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).data
    if not array.null_count:
        return lambda row: view[ends[row] : ends[row + 1]]
    valid = array.is_valid().to_pylist()
    return lambda row: view[ends[row] : ends[row + 1]] if valid[row] else None


def _image(array: Any, data: Any, paths: Any, row: int, named: str) -> Any:  # noqa: ANN401  pyarrow's
    """Return the bytes of an image or a sound that Hugging Face has written; None if the row has none."""
    if data is None and array[row].is_valid:
        raise Damaged(
            f"{named} has no bytes, only the path {paths[row].as_py()!r}: embed the files when writing the "
            "Parquet file (datasets: embed_external_files=True)"
        )
    return data
