"""Parquet manifests are read row by row; odd columns, damage and bombs are refused with the row or the file named."""

import io
import random
import sys
from contextlib import suppress

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.data.catalog.discovery.manifest import read_manifest
from penstock.data.catalog.rows import Entry
from penstock.data.unpacking import UNPACKED_VARIABLE
from penstock.errors import ManifestError, MissingExtra
from penstock.stores.urls import parse
from tests.refusals import refused

BUCKET = parse("s3://bucket/")
measured = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")


def _read(text, name="manifest", parser=None):
    return list(read_manifest(text if isinstance(text, bytes) else text.encode(), name, BUCKET, parser))


def _file(table, **options):
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def test_a_table_with_the_same_columns():
    data = _file(pa.table({"key": ["a", "b"], "size": [1, None], "label": [[1, 2], None]}))
    assert _read(data, "m.parquet") == _read(data, "no-suffix") == [Entry("a", 1, [1, 2]), Entry("b")]


def test_invalid_parquet_row_or_file_is_named():
    row = _file(pa.table({"key": ["a", None]}))
    refused(ManifestError, r"m\.parquet, row 2: needs one of", _read, row, "m.parquet")
    refused(ManifestError, "cannot read the Parquet file", _read, b"PAR1 and then nothing", "m.parquet")


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(MissingExtra, r"penstock\[parquet\]", _read, b"PAR1", "m.parquet")


def test_odd_columns():
    for column, why in [
        (pa.array([b"a"]), "row 1: .*not JSON"),
        (pa.array([1]), "row 1: a key must be a string"),
        (pa.array([None], pa.string()), "row 1: needs one of"),
        (pa.array([["a"]]), "row 1: a key must be a string"),
        (pa.array([{"a": "b"}]), "row 1: a key must be a string"),
        (pa.array(["a\0"]), "row 1: .*NUL"),
        (pa.array([""]), "row 1: a key must be a string"),
    ]:
        refused(ManifestError, f"m.parquet, {why}", _read, _file(pa.table({"key": column})), "m.parquet")
    for name, column, why in [
        ("size", pa.array([1.5]), "whole number"),
        ("size", pa.array([1 << 63], pa.uint64()), "whole number"),
        ("etag", pa.array([b"e"]), "not JSON"),
        ("label", pa.array([10**18], pa.timestamp("us")), "m.parquet"),
        ("label", pa.array([{"a": b"b"}]), "not JSON"),
    ]:
        refused(ManifestError, why, _read, _file(pa.table({"key": ["a"], name: column})), "m.parquet")


def test_dictionaries_nulls_and_nested_labels_are_read():
    table = pa.table(
        {"key": pa.array(["a", "b"]).dictionary_encode(), "size": [None, 5], "label": [{"boxes": [1]}, None]}
    )
    assert _read(_file(table), "m.parquet") == [Entry("a", label={"boxes": [1]}), Entry("b", 5)]


def test_a_name_that_stands_twice():
    table = pa.table([["a"], ["b"]], names=["key", "key"])
    refused(ManifestError, "occurs twice", _read, _file(table), "m.parquet")


def test_bombs(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "8MiB")
    many = pa.table({"key": pa.DictionaryArray.from_arrays(pa.array(bytes(3_000_000), pa.int8()), ["a"])})
    long = pa.table({"key": ["a"], "label": ["x" * (65 << 20)]})
    for table in (many, long):
        data = _file(table, compression="zstd")
        assert len(data) < 100_000
        refused(ManifestError, "at most 8388608 bytes once unpacked", _read, data, "m.parquet")


def test_a_file_that_changed_is_refused_or_read_in_full(seed):
    # Parquet has no checksums of its own by default: what decodes may differ, but is never raised raw.
    data = _file(pa.table({"key": [f"{i}" for i in range(200)], "label": [*range(200)]}))
    draw = random.Random(seed)
    for _ in range(400):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        with suppress(ManifestError):
            _read(bytes(damaged), "m.parquet")
    for stop in range(0, len(data), 97):
        with pytest.raises(ManifestError):
            _read(data[:stop], "m.parquet")


def _varint(number, length):
    """Return a number as Thrift writes it, in as many bytes as asked for."""
    parts = [(number >> shift) & 127 for shift in range(0, 7 * length, 7)]
    return bytes([each | 128 for each in parts[:-1]] + parts[-1:])


@pytest.fixture(autouse=True)
def _bound(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "128MiB")


def _refused_in_little_memory(data):
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = _resident("VmRSS")
    refused(ManifestError, r"m\.parquet.*(unpack|held)", _read, data, "m.parquet")
    assert _resident("VmHWM") - before < 256 << 20


def _resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))


@measured
@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_many_rows_share_is_counted_for_each(nested):
    """1.7 kB took 3.4 GB."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * (4 << 20)])
    label = pa.ListArray.from_arrays(pa.array([0, 400]), texts) if nested else texts
    table = pa.table({"key": [f"a{number}" for number in range(len(label))], "label": label})
    _refused_in_little_memory(_file(table, compression="zstd", dictionary_pagesize_limit=64 << 20))


@measured
def test_pages_are_believed_before_a_footer_that_lies():
    size = 300 << 20
    table = pa.table({"key": ["a"], "label": ["x" * size]})
    data = _file(table, compression="zstd", use_dictionary=False, write_statistics=False)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    head, tail = data[:-footer], data[-footer:]
    for stored in range(size, size + 200):
        true = _varint(2 * stored, 5)
        tail = tail.replace(true, _varint(2 * 1000, 5))
    assert tail != data[-footer:]
    _refused_in_little_memory(head + tail)


@measured
def test_a_row_of_more_values_than_may_be_held_is_refused(monkeypatch):
    monkeypatch.setenv(UNPACKED_VARIABLE, "64MiB")
    values = pa.array(memoryview(bytes(12 << 20)), pa.int8())
    table = pa.table({"key": ["a"], "label": pa.ListArray.from_arrays(pa.array([0, len(values)]), values)})
    _refused_in_little_memory(_file(table, compression="zstd"))
