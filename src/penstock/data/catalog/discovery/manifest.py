"""Manifests: files that list the objects of a dataset, as lines, CSV, JSON lines or Parquet.

Rows and columns of an untrusted Parquet file.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from reprlib import Repr
from typing import TYPE_CHECKING, BinaryIO

from penstock.data.catalog.rows import Entry
from penstock.data.parquet import decode_column, open_parquet, text_bytes
from penstock.data.unpacking import check_unpacked, most_unpacked
from penstock.errors import ManifestError, MissingExtra
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from penstock.stores.store import Store
    from penstock.stores.urls import Location

Parser = Callable[[BinaryIO], Iterable[object]]  # keys or (key, label)
_Rows = Iterator[tuple[int, Mapping[str, object]]]

_KEY_COLUMNS = ("key", "url", "path")
# Hugging Face's names, in metadata.csv, .jsonl and .parquet: of one object, and of one of several.
_FILE_NAME, _OF_FIELD = "file_name", "_file_name"
_INT64 = 1 << 63
# JSON takes up to 40 times that in memory.
_LINE_BYTES = 16 << 20
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


# Messages quote values of a file, which may be long and deeply nested.
_texts = Repr()
_texts.maxstring = 200
_short = _texts.repr


def read_manifest(data: bytes, name: str, base: Location, parser: Parser | None = None) -> Iterator[Entry]:
    r"""Yield the entries of a manifest in its order, repeats included; an empty manifest has no entries.

    Keys are full keys, as ``resolve_key`` returns them. A manifest in a bucket can name local files only below a local
    ``base``. The format follows from the suffix of ``name``, or from the content if the suffix is unknown. Text is
    UTF-8, with or without a byte order mark. Lines end in ``\n`` or ``\r\n``; blank lines are skipped, and comments do
    not exist.

    - ``.txt``, and any content of no other format: ``key`` or ``key label``. Spaces and tabs around both are stripped,
      so a key that contains some needs another format. The label is the whole rest of the line, a string.
    - ``.csv``, and ``.tsv`` with tabs: a header names the columns: one of ``key``, ``url``, ``path`` (without these,
      ``file_name``), and optionally ``size``, ``label``, ``etag``, ``offset`` (lower case). An empty cell is an absent
      value; all others are strings.
    - ``.jsonl``, ``.ndjson``: one object per line with these names. A label is any JSON value.
    - ``.parquet``: a table with these columns; needs the extra ``parquet``.

    Without a ``label`` column, the label is a dict of the columns with other names (None when there are none). With a
    ``label`` column, columns with other names are ignored.

    Relative keys refer to ``base``; a URL as ``name`` also tells where the file is. ``parser`` reads the file and
    yields ``key`` or ``(key, label)``; its exceptions are passed on.
    """
    form, where = (_items(parser), "item") if parser else _choose_parser(data, name)
    resolve = _resolver(name, base)
    for number, row in form(data, name):
        try:
            yield _entry(row, lambda key: resolve(key, base))
        except ValueError as error:
            raise ManifestError(f"{name}, {where} {number}: {error}", url=name) from error


def _resolver(name: str, base: Location) -> Callable[[str, Location], str]:
    foreign = base.local and "://" in name and not name.startswith(base.root)
    return _resolve_name if foreign else resolve_key


def manifest_fields(data: bytes, name: str) -> tuple[str, ...]:
    """Return the fields that a manifest's columns ``*_file_name`` name; () if each row names one object."""
    form, _ = _choose_parser(data, name, several=True)
    _, row = next(iter(form(data, name)), (0, {}))
    if any(column in row for column in (*_KEY_COLUMNS, _FILE_NAME)):
        return ()
    return tuple(column.removesuffix(_OF_FIELD) for column in row if column.endswith(_OF_FIELD))


def read_groups(
    data: bytes, name: str, base: Location, fields: Sequence[str], missing: str
) -> Iterator[tuple[object, dict[str, str | None]]]:
    """Yield the label of each row, and the full key of its object of each field; None for a missing one.

    A field's object is in the column of its name, or in ``<field>_file_name``. The manifest is CSV, JSON lines or
    Parquet; otherwise like ``read_manifest``. Rows without any object are left out.
    """
    form, where = _choose_parser(data, name, several=True)
    resolve = _resolver(name, base)
    for number, row in form(data, name):
        columns = {field: field if field in row else f"{field}{_OF_FIELD}" for field in fields}
        try:
            found: dict[str, str | None] = {}
            for field, column in columns.items():
                text = row.get(column)
                found[field] = None if text is None else resolve(_check_key(text), base)
            absent = [field for field, key in found.items() if key is None]
            if absent and missing == "error":
                raise ValueError(f"no {absent[0]}, in a column {absent[0]} or {absent[0]}{_OF_FIELD}")
        except ValueError as error:
            raise ManifestError(f"{name}, {where} {number}: {error}", url=name) from error
        if not absent or (missing == "none" and len(absent) < len(found)):
            used = {*columns.values()}
            yield _label({column: value for column, value in row.items() if column not in used}), found


def resolve_key(text: str, base: Location) -> str:
    """Return the full key for a manifest's text: a URL within ``base``'s bucket, or a key relative to ``base``.

    If ``base`` belongs to a profile, a URL of the profile's store, below the profile's own URL, counts as within it.

    A relative key is joined to ``base.key`` as to a directory, whether or not that ends in ``/``. With a local base, a
    path that begins with ``/`` is absolute. Nothing is unescaped or normalised: for an object store, ``..``, ``//`` and
    ``%20`` are ordinary characters.
    """
    match = _URL.match(text)
    if match is None:
        absolute = base.local and text.startswith("/")
        return _storable(text.lstrip("/") if absolute else as_folder(base.key) + text, base.store)
    scheme, rest = match.groups()
    bucket, key = base.store.split(rest)
    if (scheme.lower(), bucket) != (base.scheme, base.bucket):
        found = base.relative(text)
        if found is None:
            raise ManifestError(f"{_short(text)} is not in {base.root}: make a dataset per bucket")
        key = found
    return _storable(key, base.store)


def _resolve_name(text: str, base: Location) -> str:
    """Return the full key for the text of a manifest in a bucket, which may only name files below a local ``base``."""
    if _URL.match(text) or text.startswith("/") or ".." in text.split("/"):
        raise ManifestError(f"{_short(text)}: a manifest in a bucket may list local files only below base=")
    return resolve_key(text, base)


def _storable(key: str, store: Store) -> str:
    if not key:
        raise ManifestError("the manifest names no object")
    if "\0" in key:
        raise ManifestError(f"{_short(key)} contains a NUL (text must be UTF-8)")
    most = store.limits.key_bytes
    if len(key) > most // 4 and len(key.encode()) > most:
        raise ManifestError(f"{_short(key)} takes more than {most} bytes")
    if fault := store.key_fault(key):
        raise ManifestError(f"{_short(key)} cannot be a key: {fault}")
    return key


def _choose_parser(data: bytes, name: str, *, several: bool = False) -> tuple[Callable[[bytes, str], _Rows], str]:
    known: dict[str, Callable[[bytes, str], _Rows]] = {
        ".txt": _parse_text_lines, ".csv": _csv, ".tsv": _tsv, ".jsonl": _json, ".ndjson": _json, ".parquet": rows
    }  # fmt: skip
    form = known.get(PurePosixPath(name).suffix.lower()) or _guess(data)
    if several and form in (_csv, _tsv):
        return partial(form, several=True), "line"
    return form, "row" if form is rows else "line"


def _guess(data: bytes) -> Callable[[bytes, str], _Rows]:
    if data.startswith(b"PAR1"):
        return rows
    first = data.removeprefix(codecs.BOM_UTF8).lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    if first.startswith("{"):
        return _json
    names = (*_KEY_COLUMNS, _FILE_NAME)
    for separator, form in ((",", _csv), ("\t", _tsv)):
        columns = [column.strip() for column in first.split(separator)]
        if len(columns) > 1 and any(column in names or column.endswith(_OF_FIELD) for column in columns):
            return form
    return _parse_text_lines


def _entry(row: Mapping[str, object], resolve: Callable[[str], str]) -> Entry:
    """Return the entry of a row; raises ValueError (UnicodeEncodeError is a subclass) for invalid values."""
    named = [column for column in _KEY_COLUMNS if row.get(column) is not None]
    named = named or [column for column in (_FILE_NAME,) if row.get(column) is not None]
    if len(named) != 1:
        raise ValueError(f"needs one of {', '.join(_KEY_COLUMNS)}; it has {', '.join(named) or 'none'}")
    key, size, etag = _check_key(row[named[0]]), row.get("size"), row.get("etag")
    if etag is not None and not isinstance(etag, str):
        raise ValueError(f"an etag must be a string, got {_short(etag)}")
    version = (etag or "").strip('"')
    version.encode()
    length, offset = _bytes(size, "a size"), _bytes(row.get("offset"), "an offset")
    if offset >= 0 and not 0 <= length < _INT64 - offset:
        raise ValueError(f"a range from byte {offset} on needs its size, and must end below 2^63")
    return Entry(resolve(key), length, _label(row), version, offset)


def _check_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ValueError(f"a key must be a string that is not empty, got {_short(key)}")
    # JSON can hold lone surrogates, which UTF-8 cannot: this raises.
    key.encode()
    return key


def _bytes(value: object, what: str) -> int:
    """Return a number of bytes; -1 for None."""
    if value is None:
        return -1
    size = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _INT64:
        raise ValueError(f"{what} must be a whole number of bytes, got {_short(value)}")
    return size


def _label(row: Mapping[str, object]) -> object:
    if "label" in row:
        return row["label"]
    used: tuple[str, ...] = (*_KEY_COLUMNS, "size", "etag", "offset")
    if not any(row.get(column) is not None for column in _KEY_COLUMNS):
        used = (*used, _FILE_NAME)
    return {column: value for column, value in row.items() if column not in used} or None


def _lines(data: bytes, name: str) -> Iterator[str]:
    # Split the bytes, so at \n only: str.splitlines would also split keys at U+2028 and similar characters.
    for number, line in enumerate(io.BytesIO(data.removeprefix(codecs.BOM_UTF8)), 1):
        if len(line) > _LINE_BYTES:
            raise ManifestError(f"{name}, line {number}: has {len(line)} bytes, more than {_LINE_BYTES}", url=name)
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ManifestError(f"{name}, line {number}: not UTF-8 ({error})", url=name) from error


def _parse_text_lines(data: bytes, name: str) -> _Rows:
    for number, line in enumerate(_lines(data, name), 1):
        text = line.strip(" \t\r\n")
        if text:
            key, *label = re.split(r"[ \t]+", text, maxsplit=1)
            yield number, {"key": key, "label": label[0] if label else None}


def _csv(data: bytes, name: str, *, several: bool = False, separator: str = ",") -> _Rows:
    reader = csv.reader(_lines(data, name), delimiter=separator, strict=True)
    columns: list[str] = []
    try:
        for cells in filter(any, reader):
            if columns:
                yield reader.line_num, _under(columns, cells)
            else:
                columns = _header(cells, several=several)
    except ManifestError:
        raise
    except (csv.Error, ValueError) as error:
        raise ManifestError(f"{name}, line {reader.line_num}: {error}", url=name) from error


_tsv = partial(_csv, separator="\t")


def _header(cells: list[str], *, several: bool) -> list[str]:
    columns = [cell.strip() for cell in cells]
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column occurs twice in the header {_short(cells)}")
    keys = sum(column in _KEY_COLUMNS for column in columns) or columns.count(_FILE_NAME)
    if keys != 1 and not several:
        raise ValueError(f"the header must name one of {', '.join(_KEY_COLUMNS)}, got {_short(cells)}")
    return columns


def _under(columns: list[str], cells: list[str]) -> Mapping[str, object]:
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} cells for {len(columns)} columns: quote values that contain the separator")
    return {column: cell or None for column, cell in zip(columns, cells, strict=True)}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return row


_LINE = json.JSONDecoder(object_pairs_hook=_once)


def _json(data: bytes, name: str) -> _Rows:
    for number, line in enumerate(_lines(data, name), 1):
        if not line.strip():
            continue
        try:
            row = _LINE.decode(line)
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{name}, line {number}: not JSON ({error})", url=name) from error
        if not isinstance(row, dict):
            raise ManifestError(f"{name}, line {number}: expected a JSON object, got {line.strip()[:80]}", url=name)
        yield number, row


def _items(parser: Parser) -> Callable[[bytes, str], _Rows]:
    def form(data: bytes, name: str) -> _Rows:
        items: object = parser(io.BytesIO(data))
        if not isinstance(items, Iterable):
            raise ManifestError(f"{name}: the parser must return an iterable, got {_short(items)}", url=name)
        for number, item in enumerate(items, 1):
            if isinstance(item, str):
                yield number, {"key": item, "label": None}
            elif isinstance(item, tuple) and len(item) == 2:  # noqa: PLR2004  a pair
                yield number, {"key": item[0], "label": item[1]}
            else:
                raise ManifestError(
                    f"{name}, item {number}: the parser must give a key or (key, label), got {_short(item)}", url=name
                )

    return form


_ROWS = 8192  # at once
_JSON = (str, int, float, bool, type(None))


def rows(data: bytes, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the rows with their numbers, from 1."""
    number = 0
    for found in columns(data, name, lambda names, _: dict(zip(names, names, strict=True))):
        for values in zip(*found.values(), strict=True):
            row = dict(zip(found, values, strict=True))
            number += 1
            _check_plain(row, f"{name}, row {number}")
            yield number, row


def columns(
    data: bytes, name: str, wanted: Callable[[Sequence[str], str], Mapping[str, str]]
) -> Iterator[dict[str, Sequence[object]]]:
    """Yield some columns, some thousand rows at a time.

    ``wanted(columns, name)`` returns the chosen column names, by the names under which they are yielded.
    """
    try:
        file = open_parquet(data, name)
        names = wanted(file.schema_arrow.names, name)
        for batch in _batches(file, name, [*names.values()]):
            yield {word: decode_column(batch.column(column)) for word, column in names.items()}
    except (ManifestError, MissingExtra):
        raise
    except Exception as error:
        raise ManifestError(f"{name}: cannot read the Parquet file ({error})", url=name) from error


def _batches(file: Any, name: str, names: Sequence[str] | None = None) -> Iterator[Any]:  # noqa: ANN401  pyarrow's
    """Yield batches; raise ManifestError once their texts, summed over rows, exceed the memory limit."""
    most, held = most_unpacked(), 0
    for batch in file.iter_batches(batch_size=_ROWS, columns=names):
        held += sum(map(text_bytes, batch.columns))
        check_unpacked(held, f"{name}: the texts of a Parquet file", most, ManifestError)
        yield batch


def _check_plain(row: Mapping[str, object], where: str) -> None:
    """Raise ``ManifestError`` for a value that is not JSON, as a label must be."""
    for column, value in row.items():
        if not isinstance(value, _JSON):
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: column {column!r} holds a value that is not JSON ({error})") from error
