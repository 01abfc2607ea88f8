"""Which objects a dataset has."""

from __future__ import annotations

import pytest

from penstock.compat.osstorchconnector.datasets import (
    Access,
    imagenet_manifest_parser,
    of_manifest,
    of_objects,
    of_prefix,
)
from penstock.errors import InvalidURL, ManifestError, NotFound


def test_a_prefix_is_listed(access):
    assert [each.key for each in of_prefix("oss://bucket/pre/", access)] == [f"pre/{number}.txt" for number in range(4)]


def test_a_prefix_of_nothing_is_not_found(access):
    with pytest.raises(NotFound, match="no object's key begins with this prefix"):
        of_prefix("oss://bucket/none/", access)


def test_objects_keep_their_order_and_cost_no_request(server, access):
    before = len(server.seen())
    found = of_objects(iter(["oss://bucket/b", "/bucket/a"]), access)
    assert [each.key for each in found] == ["b", "a"]
    assert [each.key for each in of_objects("oss://bucket/one", access)] == ["one"]
    assert len(server.seen()) == before


def test_objects_of_several_buckets_or_none_are_refused(access):
    with pytest.raises(InvalidURL, match="dataset per bucket"):
        of_objects(["oss://bucket/b", "oss://other/a"], access)
    with pytest.raises(NotFound, match="object_uris is empty"):
        of_objects([], access)


def test_a_manifest_lies_here_or_in_the_store(access, tmp_path):
    local = tmp_path / "manifest"
    local.write_bytes(b"0.txt\tzero\n3.txt\tthree\n")
    for path in (str(local), "oss://bucket/m/manifest"):
        found = of_manifest(path, imagenet_manifest_parser, "oss://bucket/pre/", access)
        assert [(each.key, each.label) for each in found] == [("pre/0.txt", "zero"), ("pre/3.txt", "three")]


def test_base_and_key_are_put_together_as_they_are(access, tmp_path):
    (tmp_path / "m").write_bytes(b"x")
    found = of_manifest(str(tmp_path / "m"), imagenet_manifest_parser, "oss://bucket/pre", access)
    assert [each.key for each in found] == ["prex"]


def test_empty_manifest_and_malformed_manifest_items_are_refused(access, tmp_path):
    (tmp_path / "m").write_bytes(b"\n")
    with pytest.raises(NotFound, match="names no objects"):
        of_manifest(str(tmp_path / "m"), imagenet_manifest_parser, "oss://bucket/", access)
    with pytest.raises(NotFound, match="no-such-file"):
        of_manifest(str(tmp_path / "no-such-file"), imagenet_manifest_parser, "oss://bucket/", access)
    (tmp_path / "m").write_bytes(b"x")
    with pytest.raises((ManifestError, ValueError)):
        of_manifest(str(tmp_path / "m"), lambda _file: [("a", "b", "c")], "oss://bucket/", access)


def test_local_files_need_no_endpoint(tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    found = of_prefix(f"{tmp_path}/", Access(""))
    assert [each.size for each in found] == [5]
