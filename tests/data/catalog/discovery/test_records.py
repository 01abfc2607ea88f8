"""A file of an inventory is read to its last row, or refused."""

import gzip
import tracemalloc

import pytest

from penstock.data.catalog.discovery.inventory import Inventory, InventoryFile, records
from penstock.errors import ManifestError
from tests.data.catalog.discovery.inventories import csv_of, parquet_of
from tests.refusals import refused

PLAIN = Inventory("bucket", "csv", (InventoryFile("a"),), ("key", "size", "etag"))


def _read(data, inventory=PLAIN):
    found = [*records(data, inventory, "s3://i/a")]
    return [row for each in found for row in zip(*each[:-1], strict=True)]


def test_many_rows_come_in_blocks():
    rows = [(f"{at:05}", at, "x") for at in range(20_000)]
    assert _read(gzip.compress(csv_of(rows))) == rows
    assert len([*records(csv_of(rows), PLAIN, "a")]) == 3


def test_percent_encoded_keys_are_decoded_if_the_inventory_declares_it():
    rows = [("a%2Fb+c", 1, "")]
    assert _read(csv_of(rows)) == rows
    escaped = Inventory("bucket", "csv", (), ("key", "size", "etag"), escaped=True)
    assert _read(csv_of(rows), escaped) == [("a/b c", 1, "")]


def test_missing_inventory_columns_read_as_unknown_size_and_empty_etag():
    assert _read(csv_of([("a",)]), Inventory("b", "csv", (), ("key",))) == [("a", -1, "")]
    assert _read(csv_of([("a", "", "")])) == [("a", -1, "")]
    assert _read(b"") == []
    assert _read(parquet_of(("key",), [("a",)]), Inventory("b", "parquet", ())) == [("a", -1, "")]


def test_objects_that_were_deleted_are_left_out():
    deleted = Inventory("b", "csv", (), ("name", "timedeleted"))
    data = csv_of([("a", ""), ("b", "2026-01-01")])
    assert _read(data, deleted) == [("a", -1, "")]
    assert [count for *_, count in records(data, deleted, "a")] == [2], "rows count whether their objects are there"


@pytest.mark.parametrize(
    "data",
    [
        csv_of([("a", 1)]),
        csv_of([("a", -1, "")]),
        csv_of([("a", "1e3", "")]),
        csv_of([("a", 1 << 63, "")]),
        csv_of([("", 1, "")]),
        b'"a","1',
        b"\xff,1,x\n",
        gzip.compress(csv_of([("a", 1, "")]), mtime=0)[:-9],
        b"\x1f\x8b" + bytes(9),
        b"a,1,x\x00\n" + b"b" * 200_000 + b",1,x\n",
    ],
)
def test_invalid_inventory_data_raises_with_the_file_url(data):
    with pytest.raises(ManifestError) as caught:
        _read(data)
    assert caught.value.url == "s3://i/a"


def test_a_file_without_keys_is_refused():
    refused(ManifestError, "no column of keys", _read, csv_of([(1,)]), Inventory("b", "csv", (), ("size",)))
    refused(ManifestError, "no column of keys", _read, parquet_of(("size",), [(1,)]), Inventory("b", "parquet", ()))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 99])
def test_no_parquet_is_refused(data):
    refused(ManifestError, "Parquet", _read, data, Inventory("b", "parquet", ()))


@pytest.mark.parametrize(
    "unpacked",
    [
        b"a" * (40 << 20),
        b'"' + b"a\n" * (20 << 20),
        b"," * (40 << 20),
        (b"a" + b"," * 1000 + b"\n") * 8000,
        b"a,1,\n" * (1 << 19),
        b"\n" * (1 << 20),
    ],
    ids=["line", "quoted", "cells", "wide", "rows", "empty"],
)
def test_a_file_that_unpacks_to_too_much_is_refused_in_little_memory(unpacked, monkeypatch):
    """One line without end took 1.5 GiB."""
    monkeypatch.setenv("PENSTOCK_UNPACKED_SIZE", "512K")
    packed = gzip.compress(unpacked, 9)
    del unpacked
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError, match="s3://i/a"):
            for _ in records(packed, PLAIN, "s3://i/a"):
                pass
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()
