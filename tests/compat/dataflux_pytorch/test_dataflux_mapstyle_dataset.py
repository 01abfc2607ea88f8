from __future__ import annotations

import pickle

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.compat.dataflux_pytorch import dataflux_mapstyle_dataset
from penstock.compat.dataflux_pytorch.dataflux_mapstyle_dataset import Config, DataFluxMapStyleDataset
from penstock.errors import Changed, Unusable
from tests.compat.dataflux_pytorch.conftest import OBJECTS

BYTES = list(OBJECTS.values())


def made(bucket, **arguments):
    return DataFluxMapStyleDataset("project", bucket.name, Config(prefix="train/"), **arguments)


def test_a_dataset_has_bytes_by_index(filled):
    dataset = made(filled)
    assert (dataset.project_name, dataset.bucket_name, dataset.config.prefix) == ("project", filled.name, "train/")
    assert dataset.objects == [(name, len(data)) for name, data in OBJECTS.items()]
    assert (len(dataset), type(dataset[2]), dataset[2], dataset[-1]) == (7, bytes, BYTES[2], BYTES[-1])
    assert list(dataset) == BYTES
    assert dataset.__getitems__([3, 1]) == [BYTES[3], BYTES[1]]


def test_data_format_fn_is_applied_to_every_item_read(filled):
    dataset = made(filled, data_format_fn=len)
    assert dataset.data_format_fn is len
    assert list(dataset) == [len(each) for each in BYTES]
    for workers in (0, 2):
        batches = DataLoader(dataset, 3, num_workers=workers, collate_fn=list)
        assert list(batches) == [[100, 101, 102], [103, 104, 105], [106]]
    assert sorted(each for batch in ps.DataLoader(dataset, 3, shuffle=True, collate_fn=list) for each in batch) == [
        *range(100, 107)
    ]


def test_objects_may_be_chosen(filled):
    dataset = made(filled)
    dataset.objects = [each for each in dataset.objects if each[1] % 2]
    assert list(dataset) == BYTES[1::2]
    assert len(dataset) == 3


def test_a_dataset_pickles_without_its_client(filled, client):
    dataset = made(filled, storage_client=client)
    assert dataset.storage_client is client
    assert list(dataset) == BYTES
    assert list(DataLoader(dataset, 4, num_workers=2, collate_fn=list)) == [BYTES[:4], BYTES[4:]]
    assert dataset.__getstate__()["storage_client"] is None
    with pytest.raises(Unusable, match="worker processes"):  # a secret goes to no file
        pickle.dumps(dataset)


def test_nothing_is_written_to_the_bucket(filled):
    before = filled.objects
    list(DataLoader(made(filled), 7, collate_fn=list))
    assert filled.objects == before


def test_a_replaced_object_is_changed(filled):
    dataset = made(filled)
    filled.put("train/0", b"another")
    with pytest.raises(Changed, match="train/0"):
        dataset[0]


def test_every_setting_is_taken():
    config = Config(
        sort_listing_results=True,
        max_composite_object_size=7,
        num_processes=2,
        prefix="x",
        max_listing_retries=1,
        threads_per_process=4,
    )
    assert (config.threads_per_process, config.num_processes, config.max_composite_object_size) == (4, 2, 7)
    assert dataflux_mapstyle_dataset.data_format_default(b"x") == b"x"


def test_unsupported_constructors_and_format_functions_raise_unusable(filled):
    for name in ("from_prefix", "from_objects", "from_manifest", "from_catalog"):
        with pytest.raises(Unusable, match="has no named constructors"):
            getattr(DataFluxMapStyleDataset, name)("gs://bucket/")
    with pytest.raises(Unusable, match="plain function"):
        made(filled, data_format_fn=3)
