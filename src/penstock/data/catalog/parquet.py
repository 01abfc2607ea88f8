"""Rows and columns of an untrusted Parquet file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.data.parquet import decoded, most_unpacked, open_parquet, text_bytes
from penstock.errors import ManifestError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

__all__ = ["columns", "rows"]

_ROWS = 8192  # at once
_JSON = (str, int, float, bool, type(None))


def rows(data: bytes, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the rows with their numbers, from 1.

    Raises:
        ManifestError: The file is not Parquet, a column name occurs twice, a value is not JSON, or the file would
            unpack to more rows or bytes than is plausible for its size.
        MissingExtra: pyarrow is not installed.

    """
    try:
        file = open_parquet(data, name)
        number = 0
        for batch in _batches(file, len(data)):
            names = batch.schema.names
            for values in zip(*map(decoded, batch.columns), strict=True):
                row = dict(zip(names, values, strict=True))
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
    """Yield some columns, some thousand rows at a time.

    ``wanted(columns, name)`` takes the column names and returns the chosen ones, by the names under which they are
    yielded.

    Raises:
        ManifestError: As for ``rows``, or raised by ``wanted``.
        MissingExtra: pyarrow is not installed.

    """
    try:
        file = open_parquet(data, name)
        names = wanted(file.schema_arrow.names, name)
        for batch in _batches(file, len(data), [*names.values()]):
            yield {word: decoded(batch.column(column)) for word, column in names.items()}
    except (ManifestError, MissingExtra):
        raise
    except Exception as error:
        raise ManifestError(f"{name}: not a Parquet file that can be read ({error})", url=name) from error


def _batches(file: Any, size_bytes: int, names: Sequence[str] | None = None) -> Iterator[Any]:  # noqa: ANN401  pyarrow's
    """Yield batches; raises ValueError once their texts, counted for each row, exceed what the file may unpack to."""
    left = most_unpacked(size_bytes)
    for batch in file.iter_batches(batch_size=_ROWS, columns=names):
        left -= sum(map(text_bytes, batch.columns))
        if left < 0:
            raise ValueError(f"{size_bytes} bytes that unpack to texts of more than {most_unpacked(size_bytes)}")
        yield batch


def _check_plain(row: Mapping[str, object], where: str) -> None:
    """Raise ``ManifestError`` for a value that is not JSON, as a label must be."""
    for column, value in row.items():
        if not isinstance(value, _JSON):
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: column {column!r} holds what is no JSON ({error})") from error
