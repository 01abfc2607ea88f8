"""Columns of Parquet files of unknown origin: each different value once, odd types and bombs refused."""

import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.data.parquet import coded_columns, open_parquet
from penstock.errors import Damaged, ManifestError

URL = "s3://bucket/refs.0.parq"


def file_of(columns, **options):
    sink = io.BytesIO()
    parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), sink, **options)
    return sink.getvalue()


def read(data, most_bytes=1 << 20):
    return coded_columns(data, URL, ("path", "raw"), ("offset", "size"), most_bytes=most_bytes)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 100], ids=lambda rows: f"groups-of-{rows}")
def test_columns_are_codes_and_numbers(kind, rows):
    paths = pa.array(["b", None, "a", "b"], pa.string()).cast(kind)
    data = file_of(
        {"path": paths, "offset": [1, None, 3, 4], "raw": pa.nulls(4), "other": [1.5] * 4}, row_group_size=rows
    )
    texts, numbers, count = read(data)
    path, raw = texts["path"], texts["raw"]
    assert [path.values[code] if code >= 0 else None for code in path.codes] == ["b", None, "a", "b"]
    assert path.codes.dtype == np.int32
    assert sorted(path.values) == ["a", "b"]
    assert (raw.codes.tolist(), raw.values, count) == ([-1] * 4, [], 4)
    assert numbers["offset"].tolist() == [1, 0, 3, 4]
    assert numbers.keys() == {"offset"}


def test_a_file_without_rows_has_none():
    texts, numbers, rows = read(file_of({"path": pa.array([], pa.string()), "size": pa.array([], pa.int64())}))
    assert (texts["path"].codes.size, texts["path"].values, numbers["size"].size, rows) == (0, [], 0, 0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"path": [1, 2]}, "'path' is of the type int64"),
        ({"path": [["a"]]}, "'path' is of the type"),
        ({"offset": [1.5]}, "'offset' is of the type double"),
        ({"offset": ["1"]}, "'offset' is of the type"),
        ({"size": pa.array([1 << 63], pa.uint64())}, "cannot read the Parquet file"),
    ],
    ids=["numbers", "lists", "fractions", "texts", "large"],
)
def test_columns_of_other_types_are_damage(columns, words):
    with pytest.raises(Damaged, match=words):
        read(file_of(columns))


def test_invalid_parquet_file_raises_damaged():
    for data in (b"", b"PAR1", b"PAR1 and then nothing PAR1", file_of({"path": ["a"] * 9})[:-9]):
        with pytest.raises(Damaged, match=r"s3://bucket/refs\.0\.parq"):
            read(data)


def test_more_than_such_a_file_unpacks_to_is_refused():
    data = file_of({"raw": [b"%d" % n * 1000 for n in range(2000)]}, compression="zstd")
    with pytest.raises(Damaged, match="too many for its size"):
        read(data)
    assert len(read(data, 1 << 30)[0]["raw"].values) == 2000
    with pytest.raises(Damaged, match="too many for its size"):
        read(file_of({"offset": np.zeros(1 << 22, dtype="i8")}, compression="zstd"))
    with pytest.raises(ManifestError, match="a column occurs twice"):
        open_parquet(file_of(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["path", "path"])), URL)


def test_a_value_of_many_rows_is_held_once():
    raw = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, dtype="i4")), pa.array([b"x" * 100_000]))
    texts, _, rows = read(file_of({"raw": raw}, compression="zstd"))
    assert (rows, len(texts["raw"].values)) == (500_000, 1)  # 50 GB otherwise
