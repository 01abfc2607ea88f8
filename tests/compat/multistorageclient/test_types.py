"""Values of Multi-Storage Client."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.compat.multistorageclient.types import ObjectMetadata, SyncResult, described, directory
from penstock.values import ObjectMeta

META = ObjectMeta("k", 3, "tag", 1e9, "s3://b/k", {"by": "us", "penstockwrite": "x"}, "text/plain")


def test_what_is_known_of_an_object_is_described():
    found = described(META, "key")
    assert found == ObjectMetadata(
        "key",
        3,
        datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC),
        content_type="text/plain",
        etag="tag",
        metadata={"by": "us"},
    )
    assert described(ObjectMeta("k", 3), "k").last_modified == directory("d/").last_modified


def test_a_description_is_written_and_read():
    for each in (described(META, "key"), directory("d/")):
        assert ObjectMetadata.from_dict(each.to_dict()) == each
    assert described(META, "key").replace(key="x").key == "x"
    with pytest.raises(ValueError, match="content_length"):
        ObjectMetadata.from_dict({"key": "k"})


def test_a_result_of_nothing_is_zeros():
    assert (SyncResult().total_files_added, SyncResult().dryrun) == (0, None)
