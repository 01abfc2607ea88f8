from __future__ import annotations

import pytest

from penstock.catalog.catalog import Catalog, Entry
from penstock.compat.dataflux_pytorch.listing import Config, Objects, data_format_default, listed
from penstock.errors import NotFound, Unusable
from tests.compat.dataflux_pytorch.conftest import OBJECTS


def test_objects_are_a_list_in_manners():
    pairs = [("b", 3), ("a", 2), ("c", 0)]
    objects = Objects(Catalog.build("gs://bucket/", "", [Entry(*each) for each in pairs]))
    assert objects == pairs
    assert (len(objects), objects[0], objects[-1], objects[1:]) == (3, ("b", 3), ("c", 0), pairs[1:])
    assert ("a", 2) in objects
    assert list(reversed(objects)) == pairs[::-1]
    assert objects != pairs[:2]
    assert "3 objects" in repr(objects)
    with pytest.raises(IndexError):
        objects[3]


def test_a_bucket_is_listed_without_what_was_composed(filled):
    def names(prefix):
        return [each.key for each in listed(filled.name, Config(prefix=prefix), None)[0]]

    assert names(None) == names("") == ["other", *OBJECTS]
    assert names("train/") == names("tr") == list(OBJECTS)
    assert names("data") == names("none") == []


def test_errors_are_told(gcs):
    with pytest.raises(NotFound):
        listed("no-such-bucket", Config(), None)
    with pytest.raises(Unusable, match="config"):
        listed(gcs.name, {"prefix": "x"}, None)


def test_composing_is_off_when_disabled():
    assert Config(disable_compose=True).max_composite_object_size == 0
    assert Config().max_composite_object_size == 100_000_000
    assert data_format_default(b"x") == b"x"
