from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.compat.dataflux_pytorch.dataflux_iterable_dataset import Config, DataFluxIterableDataset
from penstock.errors import Unusable
from tests.compat.dataflux_pytorch.conftest import OBJECTS

BYTES = list(OBJECTS.values())


def made(bucket, **arguments):
    return DataFluxIterableDataset("project", bucket.name, Config(prefix="train/"), **arguments)


def test_every_object_comes_in_order(filled):
    dataset = made(filled)
    assert list(dataset) == list(dataset) == BYTES
    assert list(made(filled, data_format_fn=len)) == [*range(100, 107)]
    assert (dataset.bucket_name, dataset.objects[0]) == (filled.name, ("train/0", 100))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_workers_take_a_run_each(filled, workers):
    loader = DataLoader(made(filled, data_format_fn=len), batch_size=7, num_workers=workers, collate_fn=list)
    run = -(-7 // workers)
    assert list(loader) == [list(range(100, 107))[start : start + run] for start in range(0, 7, run)]


def test_every_rank_yields_all_unless_objects_are_chosen(filled, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    dataset = made(filled, data_format_fn=len)
    assert list(dataset) == [*range(100, 107)]
    dataset.objects = dataset.objects[1::2]
    assert list(dataset) == [101, 103, 105]


def test_penstocks_loader_takes_it(filled):
    loader = ps.DataLoader(made(filled, data_format_fn=len), 3, num_workers=2, collate_fn=list)
    assert list(loader) == [[100, 101, 102], [103, 104, 105], [106]]


def test_from_prefix_of_iterable_dataset_raises_unusable():
    with pytest.raises(Unusable, match="has no named constructors"):
        DataFluxIterableDataset.from_prefix("gs://bucket/")
