"""What infos of filesystems say, under each of their names."""

from datetime import UTC, datetime

import pytest

from penstock.stores.fsspec.driver import is_file, parse_info
from penstock.values import UNKNOWN_SIZE

NOW = datetime(2026, 11, 22, 10, 58, tzinfo=UTC)


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"ETag": '"abc"', "LastModified": NOW}, "abc"),
        ({"etag": "abc", "generation": "7"}, "abc"),
        ({"generation": 7}, "7"),
        ({"ETag": None, "blob_id": "f00"}, "f00"),
        ({"mtime": 12.5}, "12.5-9"),
        ({"created": NOW.replace(tzinfo=None)}, f"{NOW.timestamp()!r}-9"),
        ({"updated": "2026-11-22T10:58:00Z"}, f"{NOW.timestamp()!r}-9"),
        ({"modified": "Sun, 22 Nov 2026 10:58:00 GMT"}, f"{NOW.timestamp()!r}-9"),
        ({"updated": "yesterday"}, ""),
        ({"ino": 5}, "5-9"),
        ({}, ""),
    ],
)
def test_etag_is_derived_from_version_fields_or_modification_time(info, version):
    assert parse_info("k", {"size": 9, **info}).etag == version


def test_known_size_time_and_content_type_are_reported():
    found = parse_info("k", {"size": 9, "LastModified": NOW, "ContentType": "image/png"})
    assert (found.key, found.size, found.modified, found.content_type) == ("k", 9, NOW.timestamp(), "image/png")
    for size in (None, -1, "9", True):
        assert parse_info("k", {"size": size}).size == UNKNOWN_SIZE


def test_directory_entry_does_not_count_as_file():
    assert is_file({"type": "file"})
    assert is_file({})
    assert not is_file({"type": "directory"})
