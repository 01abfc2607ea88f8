"""A manifest is understood, or refused with its name, whatever it holds."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.discovery.inventory import InventoryFile, parse_inventory_manifest
from penstock.errors import ManifestError, Unusable
from tests.refusals import refused

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
