from __future__ import annotations

import pickle
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock.compat.s3torchconnector import (
    S3ClientConfig,
    S3Exception,
    S3IterableDataset,
    S3MapDataset,
    S3Reader,
    S3ReaderConstructor,
)
from penstock.errors import InvalidURL, NotFound, Unusable
from tests.compat.s3torchconnector.conftest import OBJECTS
from tests.compat.s3torchconnector.transforms import item, refuse

ITEMS = list(OBJECTS.items())
RANGES = S3ReaderConstructor.range_based(buffer_size=64)


def made(kind, s3, **arguments):
    return kind.from_prefix(s3.url + "train/", region="us-east-1", **arguments)


def keys(batches):
    return [[key for key, _ in batch] for batch in batches]


def test_a_map_dataset_has_objects_by_index(filled):
    dataset = made(S3MapDataset, filled)
    reader = dataset[3]
    assert isinstance(reader, S3Reader)
    assert (len(dataset), reader.bucket, reader.key) == (len(ITEMS), filled.name, ITEMS[3][0])
    assert reader.read() == ITEMS[3][1]
    assert [(each.key, each.read()) for each in dataset] == ITEMS
    assert dataset[-1].key == made(S3MapDataset, filled, transform=None)[-1].key == ITEMS[-1][0]
    assert [each.key for each in dataset[2:4]] == [ITEMS[2][0], ITEMS[3][0]]
    with pytest.raises(IndexError):
        dataset[len(ITEMS)]


@pytest.mark.parametrize("constructor", [None, RANGES], ids=["whole", "ranges"])
@pytest.mark.parametrize("kind", [S3MapDataset, S3IterableDataset])
def test_dataset_yields_transform_results_on_every_iteration(filled, kind, constructor):
    dataset = made(kind, filled, transform=item, reader_constructor=constructor)
    assert list(dataset) == ITEMS
    assert list(dataset) == ITEMS  # again


@pytest.mark.parametrize(
    ("method", "constructor"),
    [("fork", None), ("fork", RANGES), ("spawn", None)],
    ids=["fork whole", "fork ranges", "spawn whole"],
)
def test_map_dataset_workers_follow_the_sampler_order(filled, method, constructor):
    dataset = made(S3MapDataset, filled, transform=item, reader_constructor=constructor)
    assert dataset[0] == ITEMS[0]  # the parent has read before it forks
    order = list(torch.utils.data.RandomSampler(dataset, generator=torch.Generator().manual_seed(1)))
    loader = DataLoader(
        dataset, 3, sampler=order, num_workers=1 + (method == "fork"), collate_fn=list, multiprocessing_context=method
    )
    assert [each for batch in loader for each in batch] == [ITEMS[index] for index in order]


@pytest.mark.parametrize("constructor", [None, RANGES], ids=["whole", "ranges"])
def test_workers_share_the_objects_in_turn_when_asked_to(filled, constructor):
    dataset = made(S3IterableDataset, filled, transform=item, enable_sharding=True, reader_constructor=constructor)
    batches = keys(DataLoader(dataset, 5, num_workers=2, collate_fn=list))
    assert batches == [[key for key, _ in ITEMS[worker::2]] for worker in range(2)]
    every = made(S3IterableDataset, filled, transform=item, reader_constructor=constructor)
    twice = Counter(key for batch in keys(DataLoader(every, 5, num_workers=2, collate_fn=list)) for key in batch)
    assert twice == dict.fromkeys(OBJECTS, 2)  # as the original: each worker yields all


@pytest.mark.parametrize("constructor", [None, RANGES], ids=["whole", "ranges"])
def test_ranks_share_the_objects_in_turn_when_asked_to(filled, monkeypatch, constructor):
    monkeypatch.setenv("WORLD_SIZE", "3")
    dataset = made(S3IterableDataset, filled, transform=item, enable_sharding=True, reader_constructor=constructor)
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        assert [key for key, _ in dataset] == [key for key, _ in ITEMS[rank::3]]
        loaded = keys(DataLoader(dataset, 9, num_workers=2, collate_fn=list))
        assert loaded == [[key for key, _ in ITEMS[rank::3][worker::2]] for worker in range(2)]
    assert len(list(made(S3IterableDataset, filled))) == len(ITEMS)


def test_objects_are_named_one_by_one(filled):
    urls = [filled.url + key for key in ("train/b/1", "train/a/0", "train/b/1")]
    for kind in (S3MapDataset, S3IterableDataset):
        assert [each.key for each in kind.from_objects(urls, region="us-east-1")] == [
            "train/b/1",
            "train/a/0",
            "train/b/1",
        ]
        one = kind.from_objects(urls[0], region="us-east-1", transform=item, reader_constructor=RANGES)
        assert list(one) == [("train/b/1", OBJECTS["train/b/1"])]
        assert list(kind.from_objects(iter(()), region="us-east-1")) == []


def test_region_endpoint_and_configuration_are_the_stores(filled, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    config = S3ClientConfig(force_path_style=True)
    endpoint = filled.server.endpoint
    for kind in (S3MapDataset, S3IterableDataset):
        dataset = made(kind, filled, endpoint=endpoint, s3client_config=config, transform=item)
        assert (dataset.region, dataset.endpoint) == ("us-east-1", endpoint)
        assert list(dataset) == ITEMS


def test_nothing_found_is_an_empty_dataset_and_no_bucket_an_error(s3):
    assert len(made(S3MapDataset, s3)) == 0
    assert list(made(S3IterableDataset, s3)) == []
    with pytest.raises(S3Exception) as caught:
        S3MapDataset.from_prefix("s3://no-such-bucket/x", region="us-east-1")
    assert isinstance(caught.value, ps.PenstockError)


def test_errors_in_workers_are_of_both_names(filled):
    dataset = S3MapDataset.from_objects([filled.url + "none"], region="us-east-1")
    with pytest.raises(S3Exception) as caught:
        list(DataLoader(dataset, 1, num_workers=1, collate_fn=list))
    assert isinstance(caught.value, NotFound)


def test_transform_error_names_the_object_in_its_notes(filled):
    with pytest.raises(ZeroDivisionError) as caught:
        made(S3MapDataset, filled, transform=refuse)[1]
    assert f"{filled.url}train/a/1" in "".join(caught.value.__notes__)


def test_a_dataset_pickles_with_its_listing(filled):
    for kind in (S3MapDataset, S3IterableDataset):
        copy = pickle.loads(pickle.dumps(made(kind, filled, transform=item)))
        assert list(copy) == ITEMS


def test_a_subclass_may_pass_arguments_on(filled):
    class Mine(S3MapDataset):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = 7

        def __getitem__(self, index):
            return index, super().__getitem__(index)

    dataset = made(Mine, filled, transform=item)
    assert (dataset.extra, dataset[2]) == (7, (2, ITEMS[2]))
    assert list(dataset) == list(enumerate(ITEMS))


def test_penstocks_loader_takes_both(filled):
    loader = ps.DataLoader(made(S3MapDataset, filled, transform=item), 4, shuffle=True, collate_fn=list)
    assert sorted(each for batch in loader for each in batch) == ITEMS
    for sharded in (False, True):
        dataset = made(S3IterableDataset, filled, transform=item, enable_sharding=sharded)
        loader = ps.DataLoader(dataset, 4, num_workers=2, collate_fn=list)
        assert [each for batch in loader for each in batch] == ITEMS
    ranges = made(S3MapDataset, filled, transform=item, reader_constructor=RANGES)
    assert [each for batch in ps.DataLoader(ranges, 4, collate_fn=list) for each in batch] == ITEMS
    with pytest.raises(Unusable, match="range-based"):
        ps.DataLoader(made(S3IterableDataset, filled, reader_constructor=RANGES), 4)


@pytest.mark.parametrize("kind", [S3MapDataset, S3IterableDataset])
def test_unsupported_constructors_and_arguments_are_refused_with_advice(kind, filled):
    with pytest.raises(Unusable, match=r"from_prefix or from_objects"):
        kind("us-east-1", lambda _client: [])
    with pytest.raises(Unusable, match=r"ps\.MapDataset"):
        kind.from_catalog("x")
    with pytest.raises(Unusable, match=r"ps\.MapDataset"):
        kind.from_manifest("x")
    with pytest.raises(InvalidURL, match="dataset per bucket"):
        kind.from_objects([filled.url + "a", "s3://another/b"], region="us-east-1")
    with pytest.raises(ValueError, match="s3://"):
        kind.from_objects(["x"], region="us-east-1")
    with pytest.raises(TypeError, match="region"):
        kind.from_prefix(filled.url)
    with pytest.raises(Unusable, match="plain function"):
        made(kind, filled, transform=3)


def test_a_listing_is_made_once_and_workers_have_it(filled):
    dataset = made(S3IterableDataset, filled, transform=item, enable_sharding=True)
    filled.client.put_object(Bucket=filled.name, Key="train/a/00", Body=b"later")
    seen = [key for batch in keys(DataLoader(dataset, 5, num_workers=2, collate_fn=list)) for key in batch]
    assert sorted(seen) == sorted(OBJECTS)


def test_a_replaced_object_is_changed(filled):
    dataset = made(S3MapDataset, filled, transform=item)
    filled.client.put_object(Bucket=filled.name, Key="train/a/0", Body=b"another")
    with pytest.raises(S3Exception, match="train/a/0"):
        dataset[0]
