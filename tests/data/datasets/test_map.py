"""Samples by index: one, a slice, a batch at once, in any process."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import NotFound
from penstock.events import Event, RangeRead, subscribe
from tests.data.datasets.transforms import key_and_bytes, number, numbered

METHODS = ["fork", "spawn", "forkserver"]


class Own(ps.MapDataset):
    """A dataset with its own way of reading."""

    def __getitem__(self, index):
        return super().__getitem__(index)


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", 30)


def test_indices_as_lists_have_them(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    assert (len(dataset), dataset[0], dataset[29], dataset[-1], dataset[-30]) == (30, 0, 29, 29, 0)
    assert dataset[torch.tensor(4)] == dataset[np.int64(4)] == 4
    for beyond in (30, -31):
        for read in (dataset, dataset[:], ps.concat(dataset[:10], dataset[10:]), Own(dataset.catalog)[:]):
            with pytest.raises(IndexError, match=f"sample {beyond} does not exist: there are 30, from 0"):
                read[beyond]
        with pytest.raises(IndexError, match=f"index {beyond} in a catalog of 30 objects"):
            dataset.catalog[beyond]
    with pytest.raises(TypeError):
        dataset["3"]


def test_a_slice_is_a_dataset_that_has_read_nothing(folder):
    heard: list[Event] = []
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    stop = subscribe(heard.append)
    part = dataset[5:20:5]
    assert isinstance(part, ps.MapDataset)
    assert (len(part), heard) == (3, [])
    assert [list(part), part[-1], list(part[1:])] == [[5, 10, 15], 15, [10, 15]]
    stop()


def test_a_batch_comes_in_its_own_order_and_may_repeat(folder):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    assert dataset.__getitems__([7, 0, 7, -1]) == [7, 0, 7, 29]
    assert dataset.__getitems__([]) == []


def test_missing_object_fails_the_batch_with_its_url(folder, tmp_path):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    (tmp_path / "data" / "004").unlink()
    with pytest.raises(NotFound) as caught:
        dataset.__getitems__([3, 4, 5])
    assert caught.value.url.endswith("004")
    assert dataset.__getitems__([3, 5]) == [3, 5]


def test_a_batch_is_one_flight(bucket):
    for index in range(10):
        bucket.client.put_object(Bucket=bucket.name, Key=f"k{index}", Body=b"x" * index)
    heard: list[Event] = []
    dataset = ps.MapDataset.from_prefix(bucket.url, store=bucket.store)
    stop = subscribe(heard.append)
    batch = dataset.__getitems__(list(range(10)))
    stop()
    assert [sample.size for sample in batch] == list(range(10))
    reads = [event for event in heard if isinstance(event, RangeRead)]
    assert len(reads) == 10
    assert all(read.attempts == 1 for read in reads)


@pytest.mark.parametrize("method", METHODS)
def test_trap_01_workers_read_after_the_parent_has_read(bucket, method):
    """A forked child of a parent with a busy native client hangs for ever elsewhere; here it must not."""
    for index in range(24):
        bucket.client.put_object(Bucket=bucket.name, Key=f"k{index:02d}", Body=str(index).encode())
    dataset = ps.MapDataset.from_prefix(bucket.url, store=bucket.store, transform=key_and_bytes)
    assert dataset[3] == ("k03", b"3")
    loader = DataLoader(
        dataset,
        batch_size=5,
        num_workers=2,
        collate_fn=list,
        multiprocessing_context=method,
        persistent_workers=method == "spawn",  # each imports torch
        timeout=100,
    )
    for _ in range(2):
        got = [sample for batch in loader for sample in batch]
        assert got == [(f"k{index:02d}", str(index).encode()) for index in range(24)]
        assert dataset[5] == ("k05", b"5")


def test_untransformed_samples_cross_a_workers_queue(folder):
    dataset = ps.MapDataset.from_prefix(folder)
    loader = DataLoader(dataset, batch_size=7, num_workers=1, collate_fn=list, timeout=100)
    assert [sample.read() for batch in loader for sample in batch] == [str(index).encode() for index in range(30)]


def test_trap_03_a_workers_error_reaches_the_training_loop(folder, tmp_path):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    (tmp_path / "data" / "011").unlink()
    with pytest.raises(NotFound, match="011"):
        list(DataLoader(dataset, batch_size=4, num_workers=2, timeout=100))


def _private_kib(dataset: ps.MapDataset, results: multiprocessing.Queue) -> None:
    import gc

    gc.collect()
    before = _rollup()
    assert dataset.catalog[999_999].size == 999_999
    total = sum(dataset.catalog.span(index).stop for index in range(0, 1_000_000, 1000))
    results.put((_rollup() - before, total))


def _rollup() -> int:
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_trap_12_a_million_keys_cost_a_worker_less_than_10_mb(method):
    from penstock.data.catalog.catalog import Catalog, Entry

    entries = (Entry(f"train/{index:09d}.jpg", index, None, "0" * 32) for index in range(1_000_000))
    dataset = ps.MapDataset.from_catalog(Catalog.build("s3://bucket/", "train/", entries))
    context = multiprocessing.get_context(method)
    results = context.Queue()
    process = context.Process(target=_private_kib, args=(dataset, results))
    process.start()
    private_kib, total = results.get(timeout=100)
    process.join(60)
    assert total == sum(range(0, 1_000_000, 1000))
    assert private_kib < 10_000
