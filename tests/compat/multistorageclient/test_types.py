"""Values of Multi-Storage Client."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.types import ObjectMetadata, SyncResult, convert_metadata, directory
from penstock.errors import NotFound, PreconditionFailed, Throttled, Unsupported
from penstock.values import ObjectMeta

META = ObjectMeta("k", 3, "tag", 1e9, "s3://b/k", {"by": "us", "penstockwrite": "x"}, "text/plain")


def test_object_metadata_is_built_from_the_known_fields():
    found = convert_metadata(META, "key")
    assert found == ObjectMetadata(
        "key",
        3,
        datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC),
        content_type="text/plain",
        etag="tag",
        metadata={"by": "us"},
    )
    assert convert_metadata(ObjectMeta("k", 3), "k").last_modified == directory("d/").last_modified


def test_a_description_is_written_and_read():
    for each in (convert_metadata(META, "key"), directory("d/")):
        assert ObjectMetadata.from_dict(each.to_dict()) == each
    assert convert_metadata(META, "key").replace(key="x").key == "x"
    with pytest.raises(ValueError, match="content_length"):
        ObjectMetadata.from_dict({"key": "k"})


def test_a_result_of_nothing_is_zeros():
    assert (SyncResult().total_files_added, SyncResult().dryrun) == (0, None)


@pytest.mark.parametrize(
    ("name", "raised"),
    [("PreconditionFailedError", PreconditionFailed), ("RetryableError", Throttled), ("SyncError", NotFound)],
)
def test_errors_are_caught_by_the_names_of_the_original(name, raised):
    with pytest.raises(getattr(msc.types, name)):
        raise raised("text")


@pytest.mark.parametrize("name", ["Credentials", "StorageProvider", "MetadataProvider", "RetryConfig", "Replica"])
def test_omitted_types_raise_unsupported_with_an_alternative(name):
    with pytest.raises(Unsupported, match=rf"types\.{name} is not a part of penstock.compat.multistorageclient: \w+"):
        getattr(msc.types, name)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(msc.types, "Nothing")  # noqa: B009  as a program imports it
