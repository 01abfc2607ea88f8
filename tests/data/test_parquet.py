"""Columns of Parquet files of unknown origin: each different value once, odd types and bombs refused."""

import io
import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

from penstock.data.parquet import coded_columns, open_parquet, row_groups
from penstock.data.unpacking import UNPACKED_VARIABLE
from penstock.errors import Damaged, ManifestError
from tests.refusals import refused

URL = "s3://bucket/refs.0.parq"


def file_of(columns, **options):
    sink = io.BytesIO()
    parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), sink, **options)
    return sink.getvalue()


def encrypted(column, *, plaintext):
    """Return properties of files whose column is encrypted; ``plaintext`` is said of their footers."""

    class Vault(encryption.KmsClient):
        def wrap_key(self, key, _):
            return key

    settings = encryption.EncryptionConfiguration(
        footer_key="k", column_keys={"k": [column]}, plaintext_footer=plaintext, double_wrapping=False
    )
    factory = encryption.CryptoFactory(lambda _: Vault())
    return factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)


def read(data):
    return coded_columns(data, URL, ("path", "raw"), ("offset", "size"))


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
        ({"path": [1, 2]}, "'path' must be of a text type, got int64"),
        ({"path": [["a"]]}, "'path' must be of a text type"),
        ({"offset": [1.5]}, "'offset' must be of an integer type, got double"),
        ({"offset": ["1"]}, "'offset' must be of an integer type"),
        ({"size": pa.array([1 << 63], pa.uint64())}, "cannot read the Parquet file"),
    ],
    ids=["numbers", "lists", "fractions", "texts", "large"],
)
def test_columns_of_other_types_are_damage(columns, words):
    refused(Damaged, words, read, file_of(columns))


def test_invalid_parquet_file_raises_damaged():
    for data in (b"", b"PAR1", b"PAR1 and then nothing PAR1", file_of({"path": ["a"] * 9})[:-9]):
        refused(Damaged, r"s3://bucket/refs\.0\.parq", read, data)


def test_more_bytes_than_may_be_held_are_refused(monkeypatch):
    data = file_of({"raw": [b"%d" % n * 1000 for n in range(2000)]}, compression="zstd")
    zeros = file_of({"offset": np.zeros(1 << 22, dtype="i8")}, compression="zstd")
    assert len(read(data)[0]["raw"].values) == 2000
    assert len(read(zeros)[1]["offset"]) == 1 << 22
    monkeypatch.setenv(UNPACKED_VARIABLE, "1MiB")
    for each in (data, zeros):
        refused(Damaged, "must take at most 1048576 bytes once unpacked", read, each)


def test_name_that_occurs_twice_is_refused():
    with pytest.raises(ManifestError, match="a column occurs twice"):
        open_parquet(file_of(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["path", "path"])), URL)


def test_a_value_of_many_rows_is_held_once(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "16MiB")
    raw = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, dtype="i4")), pa.array([b"x" * 100_000]))
    texts, _, rows = read(file_of({"raw": raw}, compression="zstd"))
    assert (rows, len(texts["raw"].values)) == (500_000, 1)  # 50 GB otherwise


def test_row_groups_of_a_footer_are_those_that_pyarrow_tells():
    table = {"a": [*range(50)], "b": [["x"] * 3] * 50, "c": [{"d": 1.5, "e": b"y"}] * 50}
    data = file_of(table, row_group_size=20, use_dictionary=True)
    length = int.from_bytes(data[-8:-4], "little")
    found = [*row_groups(data[-8 - length : -8])]
    meta = parquet.ParquetFile(io.BytesIO(data)).metadata
    assert [each.rows for each in found] == [20, 20, 10]
    for number, group in enumerate(found):
        chunks = [meta.row_group(number).column(leaf) for leaf in range(meta.num_columns)]
        assert [each.column for each in group.chunks] == ["a", "b", "c", "c"]
        assert [(each.start, each.stop - each.start, each.unpacked) for each in group.chunks] == [
            (
                min(each.dictionary_page_offset, each.data_page_offset),
                each.total_compressed_size,
                each.total_uncompressed_size,
            )
            for each in chunks
        ]
        assert {each.refused for each in group.chunks} == {""}


def test_footers_that_are_damaged_anywhere_raise_value_errors_only(seed):
    draw = random.Random(seed)
    data = file_of({"a": [*range(50)], "t": ["x", "y"] * 25}, row_group_size=20)
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    for _ in range(2000):
        damaged = bytearray(footer)
        for _ in range(draw.choice((1, 4))):
            damaged[draw.randrange(len(footer))] = draw.randrange(256)
        with suppress(ValueError):
            assert all(group.rows is not None for group in row_groups(bytes(damaged)))


def test_encrypted_column_is_refused_by_name():
    data = file_of({"path": ["a"], "size": [1]}, encryption_properties=encrypted("path", plaintext=True))
    refused(ManifestError, "the column 'path' cannot be read: it is encrypted", open_parquet, data, URL)
