"""One source for each bucket, whatever the URL."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidURL
from penstock.interop.fsspec.filesystem import BucketSources
from penstock.interop.fsspec.storage import Storage


def test_a_bucket_has_one_source():
    places = BucketSources(Storage("penstock", None, {}))
    one, key = places.find("memory://a/x/y")
    other, _ = places.find("memory://a/z")
    assert one is other
    assert key == "x/y"
    assert places.find("memory://b/x")[0] is not one
    with pytest.raises(InvalidURL):
        places.find("s3://bucket:80/key")
