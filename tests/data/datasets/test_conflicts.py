"""A dataset that shares out by itself lets no wrapper do it once more: samples would be lost, and nobody would see."""

from __future__ import annotations

from itertools import chain
from traceback import clear_frames
from types import SimpleNamespace

import pytest
import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.datapipes.iter import IterableWrapper

import penstock as ps
from penstock.errors import Unusable
from tests.data.datasets.transforms import number, numbered

accelerate = pytest.importorskip("accelerate.data_loader")

COUNT = 16
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("wrappers") / "data", COUNT)).catalog


def streamed(catalog, rank):
    place = rank if rank == "unsharded" else ps.Place(rank, 2)
    return ps.IterableDataset.from_catalog(catalog, transform=number, place=place)


def batches(catalog, rank):
    return streamed(catalog, rank).batched(4)


def indices(catalog, rank):
    place = rank if rank == "unsharded" else ps.Place(rank, 2)
    return ps.BatchSampler(ps.MapDataset.from_catalog(catalog), 4, place=place)


def by_samples(wrapped, rank, **_):
    return accelerate.IterableDatasetShard(wrapped, batch_size=2, num_processes=2, process_index=rank)


def by_batches(wrapped, rank, **_):
    return accelerate.BatchSamplerShard(wrapped, num_processes=2, process_index=rank)


def injected(wrapped, rank, **_):
    return DistributedSamplerWrapper(wrapped, num_replicas=2, rank=rank, shuffle=False)


def dispatched(wrapped, rank, workers=0):
    loader = accelerate.DataLoaderDispatcher(wrapped, batch_size=None, num_workers=workers)
    loader.state = SimpleNamespace(num_processes=2, process_index=rank)
    return loader


@pytest.mark.parametrize(
    ("of", "wrapper", "workers"),
    [
        (streamed, by_samples, 0),
        (batches, by_samples, 0),
        (indices, by_batches, 0),
        (indices, injected, 0),
        (streamed, dispatched, 0),
        (batches, dispatched, 1),
    ],
)
def test_a_wrapper_that_shares_out_over_ranks_is_refused(catalog, of, wrapper, workers):
    with pytest.raises(Unusable, match=r"place=\"unsharded\"") as caught:
        list(wrapper(of(catalog, 0), 0, workers=workers))
    clear_frames(caught.tb)  # or torch waits five seconds for each worker once the collector finds them


@pytest.mark.parametrize(("of", "wrapper"), [(streamed, by_samples), (batches, by_samples), (indices, by_batches)])
def test_an_unsharded_dataset_is_shared_out_by_its_wrapper(catalog, of, wrapper):
    seen = [
        torch.as_tensor(item).flatten().tolist() for rank in (0, 1) for item in wrapper(of(catalog, "unsharded"), rank)
    ]
    assert sorted(chain(*seen)) == list(range(COUNT))


def test_shard_wrapper_for_a_single_process_causes_no_conflict(catalog):
    alone = accelerate.IterableDatasetShard(streamed(catalog, 1), batch_size=2, num_processes=1, process_index=0)
    assert list(alone) == list(range(1, COUNT, 2))


def test_an_unsharded_dataset_reads_everything_in_every_process(catalog, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(list(streamed(catalog, "unsharded"))) == COUNT
    dataset = ps.MapDataset.from_catalog(catalog, transform=number)
    assert torch.cat(list(ps.DataLoader(dataset, 4, place="unsharded"))).tolist() == list(range(COUNT))
    assert len(ps.DataLoader(dataset, 4)) == 2


def _piped(dataset, workers):
    return DataLoader(IterableWrapper(dataset).sharding_filter(), batch_size=None, num_workers=workers)


def test_a_sharding_filter_over_a_dataset_that_shares_out_by_itself_is_refused(catalog):
    whole = ps.IterableDataset.from_catalog(catalog, transform=number)
    for workers in (0, 1):
        assert sorted(int(each) for each in _piped(whole, workers)) == list(range(COUNT))
    with pytest.raises(Unusable, match="leave sharding_filter out") as caught:
        list(_piped(whole, 2))
    clear_frames(caught.tb)


def test_a_stateful_wrapper_that_iterates_while_it_is_made_is_refused(catalog):
    with pytest.raises(Unusable, match="DataLoaderDispatcher"):
        accelerate.DataLoaderDispatcher(batches(catalog, 0), batch_size=None, use_stateful_dataloader=True)


def test_a_process_that_is_spawned_by_a_wrapper_is_refused_before_it_starts(catalog):
    with pytest.raises(Unusable, match="DataLoaderDispatcher"):
        loader = accelerate.DataLoaderDispatcher(
            batches(catalog, 0), batch_size=None, num_workers=1, multiprocessing_context="spawn"
        )
        loader.state = SimpleNamespace(num_processes=2, process_index=0)
        list(loader)


class Flat(IterableDataset):
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return chain.from_iterable(iter(self.batches))


def test_a_wrapper_that_flattens_batches_may_be_batched_again(catalog):
    wrapped = Flat(batches(catalog, "unsharded"))
    assert torch.cat(list(DataLoader(wrapped, batch_size=2))).tolist() == list(range(COUNT))
    with pytest.raises(Unusable, match="batch_size=None"):
        list(DataLoader(batches(catalog, "unsharded"), batch_size=2))
