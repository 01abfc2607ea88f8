"""Rows and columns of a Parquet file that anybody may have made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.errors import ManifestError, MissingExtra
from penstock.parquet import open_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["columns", "rows"]

_ROWS = 8192  # at once
_JSON = (str, int, float, bool, type(None))


def rows(data: bytes, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the rows with their numbers, from 1.

    Raises:
        ManifestError: No Parquet; a column's name stands twice; a value that is no JSON; or it would unpack to more
            rows or bytes than such a file can hold for good reason. What it declares is believed as to bytes.
        MissingExtra: There is no pyarrow.

    """
    try:
        file = open_parquet(data, name)
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
        file = open_parquet(data, name)
        names = wanted(file.schema_arrow.names, name)
        for batch in file.iter_batches(batch_size=_ROWS, columns=[*names.values()]):
            yield {word: batch.column(column).to_pylist() for word, column in names.items()}
    except (ManifestError, MissingExtra):
        raise
    except Exception as error:
        raise ManifestError(f"{name}: not a Parquet file that can be read ({error})", url=name) from error


def _check_plain(row: Mapping[str, object], where: str) -> None:
    """Refuse a value that is no JSON, and so no label."""
    for column, value in row.items():
        if not isinstance(value, _JSON):
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ManifestError(f"{where}: column {column!r} holds what is no JSON ({error})") from error
