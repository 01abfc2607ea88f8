"""The datasets yield what the connector's do: in processes, batches and with labels."""

from __future__ import annotations

import io
import json
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from penstock.compat import osstorchconnector
from penstock.compat.osstorchconnector import OssIterableDataset, OssMapDataset
from penstock.compat.osstorchconnector.datasets import (
    Access,
    DataObject,
    Transform,
    identity,
    imagenet_manifest_parser,
    of_manifest,
    of_objects,
    of_prefix,
)
from penstock.data.reading.sample import Sample
from penstock.errors import InvalidURL, ManifestError, NotFound, Unsupported
from penstock.values import Span
from tests.compat.test_originals import ORIGINALS

URI = "oss://bucket/pre/"
KEYS = [f"/bucket/pre/{number}.txt" for number in range(4)]
BOTH = pytest.mark.parametrize("kind", [OssMapDataset, OssIterableDataset])


def described(item):
    return item.key, item.label, item.size, len(item.read())


class Keys:
    """A provider of credentials that reads a file, as Alibaba's SDKs have them."""

    def __init__(self, path):
        self.path = path

    def get_credentials(self):
        with open(self.path, encoding="utf-8") as file:
            found = json.load(file)
        self.access_key_id, self.access_key_secret = found["AccessKeyId"], found["AccessKeySecret"]
        return self


@BOTH
def test_a_prefix_yields_items(kind, arguments):
    dataset = kind.from_prefix(URI, **arguments)
    for _ in range(2):
        assert [described(item) for item in dataset] == [(key, "", 12, 12) for key in KEYS]
    assert isinstance(dataset, IterableDataset if kind is OssIterableDataset else Dataset)


@BOTH
def test_objects_and_manifests_yield_items_with_labels(kind, arguments):
    uris = [f"oss:/{key}" for key in KEYS[:2]]
    assert [item.key for item in kind.from_objects(uris, **arguments)] == KEYS[:2]
    where = ("oss://bucket/m/manifest", imagenet_manifest_parser, URI)
    dataset = kind.from_manifest_file(*where, transform=described, **arguments)
    assert list(dataset) == [(KEYS[0], "zero", 12, 12), (KEYS[3], "three", 12, 12)]


def test_a_map_dataset_is_read_by_index(arguments):
    dataset = OssMapDataset.from_prefix(URI, **arguments)
    assert len(dataset) == 4
    with dataset[-1] as item:
        assert (item.key, item.readline()) == (KEYS[3], b"line 3\n")
    assert [item.key for item in dataset.__getitems__([2, 0])] == [KEYS[2], KEYS[0]]
    with pytest.raises(IndexError):
        dataset[4]


@BOTH
def test_forked_workers_share_the_items_out(kind, arguments):
    dataset = kind.from_prefix(URI, transform=described, **arguments)
    assert len(list(dataset)) == 4  # the parent has used its connections
    batches = list(DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context="fork"))
    assert sorted(key for batch in batches for key in batch[0]) == KEYS
    assert all(torch.equal(batch[2], torch.tensor([12] * len(batch[0]))) for batch in batches)


@BOTH
def test_a_dataset_travels_to_spawned_workers_with_its_provider_of_credentials(kind, arguments):
    keys = {name: value for name, value in arguments.items() if name != "cred_path"}
    dataset = kind.from_prefix(URI, transform=described, cred_provider=Keys(arguments["cred_path"]), **keys)
    sent = ForkingPickler.loads(ForkingPickler.dumps(dataset))
    assert [item[0] for item in sent] == KEYS


def test_every_rank_reads_all_as_with_the_connector(arguments, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(list(OssIterableDataset.from_prefix(URI, **arguments))) == 4


@BOTH
def test_an_object_that_is_gone_is_not_found(kind, arguments):
    dataset = kind.from_objects([f"{URI}0.txt", f"{URI}none"], **arguments)
    with pytest.raises(NotFound, match="pre/none"):
        list(dataset)


@BOTH
def test_transform_error_carries_a_note_with_the_object_uri(kind, arguments):
    def broken(_item):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        list(kind.from_prefix(URI, transform=broken, **arguments))
    assert "oss://bucket/pre/0.txt" in "".join(caught.value.__notes__)


@BOTH
def test_local_files_are_read_without_an_endpoint(kind, tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    assert [(item.key, item.read()) for item in kind.from_prefix(f"{tmp_path}/", "")] == [(f"{tmp_path}/a", b"hello")]


def test_shuffling_objects_is_refused_with_an_alternative(arguments):
    with pytest.raises(Unsupported, match="shuffle=True"):
        OssIterableDataset.from_prefix(URI, **arguments).shuffle()


def test_an_item_is_a_file():
    with DataObject("/b/k", b"one\ntwo\n", "label") as item:
        assert (item.key, item.size, item.label) == ("/b/k", 8, "label")
        assert item.read(3) == b"one"
        assert item.seek(-4, 2) == 4
        assert item.readline() == b"two\n"
        assert item.copy().read() == b"one\ntwo\n"
        other = pickle.loads(pickle.dumps(item))
    assert item.closed
    assert (other.key, other.size, other.label, other.getvalue()) == ("/b/k", 8, "label", b"one\ntwo\n")


@pytest.mark.parametrize(
    ("root", "key", "label", "shown"),
    [
        ("oss://b/", "k/1", 0, ("/b/k/1", 0)),
        ("oss://b/", "k", None, ("/b/k", "")),
        ("file:///", "a/b", "x", ("/a/b", "x")),
    ],
)
def test_a_transform_gets_the_connectors_key_and_label(root, key, label, shown):
    item = Transform(identity)(Sample(root, Span(key), b"data", label))
    assert (item.key, item.label) == shown
    assert item.read() == b"data"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a\tb\nc\nx y\tz\tq\n", [("a", "b"), ("c", ""), ("x y", "z")]),
        ("\n a \t b \r\n\n", [("a ", " b")]),
        ("a\u2028b\tc", [("a\u2028b", "c")]),
        ("", []),
    ],
)
def test_the_parser_separates_key_and_label_at_a_tab(text, pairs):
    assert list(imagenet_manifest_parser(io.BytesIO(text.encode()))) == pairs


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


@pytest.mark.parametrize("name", ["OssClient", "new_data_object", "generate_tar_archive"])
def test_omitted_names_raise_unsupported_with_an_alternative(name):
    with pytest.raises(Unsupported, match=r"is not a part of penstock.compat.osstorchconnector: \w+"):
        getattr(osstorchconnector, name)("oss://bucket/a", "x", "https://oss-cn-beijing.aliyuncs.com")


def test_nothing_else_is_exported():
    assert set(osstorchconnector.__all__) == {*ORIGINALS["osstorchconnector"]["modules"][""], "DataObject"}
