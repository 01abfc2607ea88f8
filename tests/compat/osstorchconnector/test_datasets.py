"""The datasets yield what the connector's do: in processes, batches and with labels."""

from __future__ import annotations

import json
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from penstock.compat.osstorchconnector import OssIterableDataset, OssMapDataset, imagenet_manifest_parser
from penstock.errors import NotFound, Unsupported

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
