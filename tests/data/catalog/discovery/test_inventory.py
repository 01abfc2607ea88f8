"""An inventory is read as the listing that it stands for, whichever store wrote it, and is verified."""

import gzip
import json
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.discovery.inventory import Inventory, InventoryFile, parse_inventory_manifest, records
from penstock.errors import ChecksumMismatch, ManifestError, NotFound, Unusable
from tests.data.catalog.discovery.inventories import csv_of, parquet_of
from tests.refusals import refused

KEYS = ["train/é b+c%20.jpg", "train/a/1.jpg", 'train/a/"2",\n.jpg', "train/b/🐶", "train/\uff5a", "trainer", "other"]
OBJECTS = [(key, 10 + at, f"{at:032x}") for at, key in enumerate(KEYS)]


def _read(manifest, url="memory://bucket/", **options):
    return ps.Catalog.from_inventory(manifest, url, **options)


def _wanted(prefix=""):
    found = [each for each in OBJECTS if each[0].startswith(prefix)]
    return sorted(found, key=lambda each: each[0].encode())


def _rows(catalog):
    return [(entry.key, entry.size, entry.etag) for entry in catalog]


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_amazons_is_the_listing_of_a_prefix(inventory, form):
    manifest = inventory.amazon([OBJECTS[3:], OBJECTS[:3], []][: 3 if form == "CSV" else 2], form)
    whole = _read(manifest)
    assert _rows(whole) == _wanted()
    assert (whole.root, whole.base) == ("memory://bucket/", "")
    part = _read(manifest, "memory://bucket/train/")
    assert (_rows(part), part.base) == (_wanted("train/"), "train/")
    assert _rows(_read(manifest, "memory://bucket/train")) == _wanted("train")
    assert len(_read(manifest, "memory://bucket/train/", include="*/*", exclude="b/*")) == 2
    assert len(_read(manifest, "memory://bucket/none/")) == 0


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("csv", {"header_required": True}),
        ("csv", {"header_required": False, "delimiter": "|"}),
        ("csv", {"delimiter": "\t", "header_required": True}),
        ("parquet", {}),
    ],
)
def test_googles_is_the_listing_of_a_prefix_with_generations(inventory, form, options):
    objects = [(key, size, str(1_700_000 + at)) for at, (key, size, _) in enumerate(OBJECTS)]
    catalog = _read(inventory.google([objects[4:], objects[:4]], form, **options))
    assert _rows(catalog) == sorted(objects, key=lambda each: each[0].encode())


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_older_versions_and_delete_markers_and_directory_markers_are_left_out(inventory, form):
    objects = [("a", 1, "x", "old"), ("a", 2, "y"), ("b", 0, "", "marker"), ("c/", 0, "z"), ("d", 0, "z")]
    assert _rows(_read(inventory.amazon([objects], form))) == [("a", 2, "y"), ("d", 0, "z")]


def test_inventory_digest_equals_the_digest_of_a_scan(inventory, tmp_path):
    for at in range(30):
        (tmp_path / f"{at:02}").write_bytes(bytes(at + 1))
    scanned = ps.Catalog.scan(f"{tmp_path}/")
    listed = _read(inventory.amazon([[(f"x/{at:02}", at + 1, "") for at in range(30)]]), "memory://bucket/x/")
    assert listed.digest == scanned.digest


def test_progress_counts_objects(inventory, monkeypatch):
    from penstock.data.catalog import catalog

    counted = []
    monkeypatch.setattr(catalog, "totals", lambda _: counted.append)
    _read(inventory.amazon([OBJECTS[:4], OBJECTS[4:]]))
    assert counted == [4, 7]


def test_changed_or_missing_inventory_files_raise_errors(inventory):
    manifest = inventory.amazon([OBJECTS])
    with ps.open(inventory.place + "data/0", "rb") as file:
        data = file.read()
    inventory.put("data/0", data[:-1] + bytes([data[-1] ^ 1]))
    error = refused(ChecksumMismatch, "the MD5 of", _read, manifest)
    assert error.url == inventory.place + "data/0"
    inventory.put("data/0", data[:-1])
    refused(ChecksumMismatch, "the manifest says", _read, manifest)
    ps.delete(inventory.place + "data/0")
    with pytest.raises(NotFound):
        _read(manifest)
    with ps.open(manifest, "rb") as file:
        text = file.read()
    inventory.put("manifest.json", text + b" ")
    refused(ChecksumMismatch, r"manifest\.checksum", _read, manifest)


@pytest.mark.parametrize("name", ["a_2026-01-02T00:00_0.csv", "a_2026-01-02T00:00_1.csv"])
def test_googles_file_that_was_cut_off_is_refused_wherever_it_was_cut(inventory, name):
    """Such a file has neither a size nor a checksum in the manifest, which says how many rows there are."""
    objects = [(key, size, str(at)) for at, (key, size, _) in enumerate(OBJECTS)]
    manifest = inventory.google([objects[4:], objects[:4]], header_required=True)
    assert len(_read(manifest)) == len(objects)
    with ps.open(inventory.place + name, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    inventory.put(name, b"".join(lines[:-1]))
    refused(ManifestError, "a file is truncated", _read, manifest)
    inventory.put(name, b"".join(lines)[:-20])
    refused(ManifestError, r"cannot read|rows must have", _read, manifest)


def test_without_a_checksum_beside_it_the_manifest_is_read(inventory):
    manifest = inventory.amazon([OBJECTS])
    ps.delete(inventory.place + "manifest.checksum")
    assert len(_read(manifest)) == len(KEYS)


def test_another_bucket_and_orc_are_refused_by_name(inventory):
    refused(Unusable, "'bucket'", _read, inventory.amazon([OBJECTS]), "memory://buckets/")
    refused(Unusable, "Parquet or CSV", _read, inventory.amazon([], "ORC"))


def test_a_key_listed_twice_is_refused(inventory):
    refused(ManifestError, "twice", _read, inventory.amazon([OBJECTS[:2], OBJECTS[:1]]))


# -- manifests of any content


AMAZON = {
    "sourceBucket": "photos",
    "destinationBucket": "arn:aws:s3:::inventories",
    "version": "2016-11-30",
    "creationTimestamp": "1514944800000",
    "fileFormat": "CSV",
    "fileSchema": "Bucket, Key, Size, ETag",
    "files": [{"key": "a/b.csv.gz", "size": 2147483647, "MD5checksum": "F11166069F1990ABEB9C97ACE9CDFABC"}],
}
GOOGLE = {
    "report_config": {
        "csv_options": {"delimiter": ";", "header_required": False},
        "object_metadata_report_options": {
            "metadata_fields": ["project", "name", "timeCreated"],
            "storage_filters": {"bucket": "photos"},
        },
    },
    "records_processed": 2,
    "shard_count": 1,
    "report_shards_file_names": ["x_0.csv"],
}


def _found(manifest):
    return parse_inventory_manifest(json.dumps(manifest).encode(), "s3://i/manifest.json")


def test_amazons():
    found = _found(AMAZON)
    assert (found.bucket, found.form, found.columns) == ("photos", "csv", ("bucket", "key", "size", "etag"))
    assert found.parts == (InventoryFile("a/b.csv.gz", 2147483647, "f11166069f1990abeb9c97ace9cdfabc"),)
    assert found.escaped
    assert _found({**AMAZON, "fileFormat": "Parquet"}).form == "parquet"


def test_googles():
    found = _found(GOOGLE)
    assert (found.bucket, found.form, found.delimiter) == ("photos", "csv", ";")
    assert found.columns == ("project", "name", "timecreated")
    assert found.parts == (InventoryFile("x_0.csv"),)
    assert found.rows == 2
    assert not found.escaped


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {},
        {**AMAZON, "fileFormat": "XML"},
        {**AMAZON, "files": [{"key": "a"}]},
        {**AMAZON, "files": [{"key": "a", "size": -1, "MD5checksum": "0" * 32}]},
        {**AMAZON, "files": [{"key": "a", "size": 1, "MD5checksum": "z"}]},
        {**AMAZON, "files": [{"key": 1, "size": 1, "MD5checksum": "0" * 32}]},
        {**AMAZON, "sourceBucket": ""},
        {**GOOGLE, "shard_count": 2},
        {**GOOGLE, "report_config": []},
        {**GOOGLE, "report_shards_file_names": [{}]},
    ],
)
def test_invalid_inventory_manifest_raises_with_its_url(manifest):
    error = refused(ManifestError, "inventory", _found, manifest)
    assert error.url == "s3://i/manifest.json"


def test_orc_inventory_is_refused_and_parquet_or_csv_is_advised():
    refused(Unusable, "Parquet or CSV", _found, {**AMAZON, "fileFormat": "ORC", "fileSchema": "struct<bucket:string>"})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([AMAZON, GOOGLE]), st.data())
def test_a_manifest_with_anything_in_it_is_read_or_refused(manifest, data):
    changed = {**manifest, data.draw(st.sampled_from([*manifest])): data.draw(_json)}
    with suppress(ManifestError, Unusable):
        _found(changed)


@given(st.binary(max_size=50))
def test_bytes_are_refused(data):
    with pytest.raises(ManifestError):
        parse_inventory_manifest(data, "x")


# -- files of an inventory


PLAIN = Inventory("bucket", "csv", (InventoryFile("a"),), ("key", "size", "etag"))


def _records_of(data, inventory=PLAIN):
    found = [*records(data, inventory, "s3://i/a")]
    return [row for each in found for row in zip(*each[:-1], strict=True)]


def test_many_rows_come_in_blocks():
    rows = [(f"{at:05}", at, "x") for at in range(20_000)]
    assert _records_of(gzip.compress(csv_of(rows))) == rows
    assert len([*records(csv_of(rows), PLAIN, "a")]) == 3


def test_percent_encoded_keys_are_decoded_if_the_inventory_declares_it():
    rows = [("a%2Fb+c", 1, "")]
    assert _records_of(csv_of(rows)) == rows
    escaped = Inventory("bucket", "csv", (), ("key", "size", "etag"), escaped=True)
    assert _records_of(csv_of(rows), escaped) == [("a/b c", 1, "")]


def test_missing_inventory_columns_read_as_unknown_size_and_empty_etag():
    assert _records_of(csv_of([("a",)]), Inventory("b", "csv", (), ("key",))) == [("a", -1, "")]
    assert _records_of(csv_of([("a", "", "")])) == [("a", -1, "")]
    assert _records_of(b"") == []
    assert _records_of(parquet_of(("key",), [("a",)]), Inventory("b", "parquet", ())) == [("a", -1, "")]


def test_objects_that_were_deleted_are_left_out():
    deleted = Inventory("b", "csv", (), ("name", "timedeleted"))
    data = csv_of([("a", ""), ("b", "2026-01-01")])
    assert _records_of(data, deleted) == [("a", -1, "")]
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
        _records_of(data)
    assert caught.value.url == "s3://i/a"


def test_a_file_without_keys_is_refused():
    refused(ManifestError, "no column of keys", _records_of, csv_of([(1,)]), Inventory("b", "csv", (), ("size",)))
    refused(
        ManifestError, "no column of keys", _records_of, parquet_of(("size",), [(1,)]), Inventory("b", "parquet", ())
    )


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 99])
def test_no_parquet_is_refused(data):
    refused(ManifestError, "Parquet", _records_of, data, Inventory("b", "parquet", ()))


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
