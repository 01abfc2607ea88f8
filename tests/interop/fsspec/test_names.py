"""A file system leaves out its own scheme, and no other."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidURL
from penstock.interop.fsspec.coroutines import parent, strip_scheme, url_of


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/key", "bucket/key"),
        ("s3://bucket/", "bucket"),
        ("bucket/a//b/", "bucket/a//b"),
        ("gs://bucket/key/", "gs://bucket/key"),
        ("file:///", "file://"),
        ("bucket/a://b", "bucket/a://b"),
        ("s3://bucket/gs://x", "bucket/gs://x"),
        ("", ""),
    ],
)
def test_names_and_urls_lead_to_one_another(path, name):
    assert strip_scheme(path, "s3") == name
    assert strip_scheme(name, "s3") == name
    if name:
        assert strip_scheme(url_of(name, "s3"), "s3") == name


def test_parents_end_at_the_bucket():
    assert [parent(each) for each in ("b/a/c", "b", "gs://b/a", "gs://b")] == ["b/a", "", "gs://b", "gs://"]


def test_a_name_without_a_bucket_is_refused():
    with pytest.raises(InvalidURL, match="buckets are not listed"):
        url_of("", "s3")
