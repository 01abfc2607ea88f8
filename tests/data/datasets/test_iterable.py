"""Every sample once per epoch, over ranks and workers, in an order that seed and epoch decide."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from itertools import pairwise

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import NotFound, Unusable
from tests.children import PEAK_KIB
from tests.data.datasets.ranks import ranks
from tests.data.datasets.transforms import key_and_bytes, number, numbered, who

METHODS = ["fork", "spawn", "forkserver"]
COUNT = 61


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", COUNT)


def opened(folder: str, **options) -> ps.IterableDataset:
    return ps.IterableDataset.from_prefix(folder, transform=number, **options)


def test_the_catalogs_order_without_shuffle(folder):
    assert list(opened(folder)) == list(range(COUNT))


def test_trap_06_a_seed_gives_another_order_each_epoch_and_the_same_one_again(folder):
    dataset = opened(folder, shuffle=True, seed=3)
    first, second = list(dataset), list(dataset)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second != list(range(COUNT))
    dataset.set_epoch(0)
    assert [list(dataset), list(dataset)] == [first, second]
    assert list(opened(folder, shuffle=True, seed=4)) != first
    assert list(opened(folder, shuffle=True, seed=3)) == first


def test_an_epoch_begins_with_iter_not_with_the_first_sample(folder):
    dataset = opened(folder, shuffle=True)
    orders = [list(dataset) for _ in range(2)]
    dataset.set_epoch(0)
    one, two = iter(dataset), iter(dataset)
    assert [list(two), list(one)] == orders[::-1]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_trap_05_ranks_share_the_set_and_nothing_is_twice(folder, world):
    ranks = [list(opened(folder, shuffle=True, place=ps.Place(rank=rank, world=world))) for rank in range(world)]
    assert sorted(sum(ranks, [])) == list(range(COUNT))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


@pytest.mark.parametrize("method", METHODS)
def test_trap_05_workers_share_a_ranks_part(folder, method):
    dataset = opened(folder, shuffle=True, place=ps.Place(rank=1, world=2))
    alone = list(dataset)
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=method == "spawn",  # each imports torch
        timeout=100,
    )
    for epoch in range(1, 3):
        got = [int(value) for batch in loader for value in batch]
        assert sorted(got) == sorted(_epoch(folder, epoch))
        assert len(got) == len(alone)


def _epoch(folder: str, epoch: int) -> list[int]:
    dataset = opened(folder, shuffle=True, place=ps.Place(rank=1, world=2))
    dataset.set_epoch(epoch)
    return list(dataset)


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_the_same_for_any_number_of_workers(folder, method):
    dataset = opened(folder, shuffle=True)
    found = []
    for workers in (0, 2) if method == "spawn" else (0, 1, 2):  # a spawned one imports torch
        dataset.set_epoch(5)
        context = {"multiprocessing_context": method, "timeout": 100} if workers else {}
        loader = DataLoader(dataset.batched(8, collate_fn=list), batch_size=None, num_workers=workers, **context)
        found.append(list(loader))
        assert len(loader) == len(found[-1]) == 8
    assert found == [found[0]] * len(found)
    assert sorted(sum(found[0], [])) == list(range(COUNT))
    assert [len(batch) for batch in found[0]] == [8] * 7 + [5]


@pytest.mark.parametrize("batch", [12, 6, 4])
def test_global_batches_are_the_same_for_any_number_of_ranks(folder, batch):
    """61 samples in batches of 12 leave one: of two or three ranks each has one batch more, the others' is a repeat."""
    world = 12 // batch
    parts = []
    for rank in range(world):
        dataset = opened(folder, shuffle=True, place=ps.Place(rank=rank, world=world))
        parts.append(list(dataset.batched(batch, collate_fn=list)))
    together = [sum(parts_of_one, []) for parts_of_one in zip(*parts, strict=False)]
    whole = list(opened(folder, shuffle=True).batched(12, collate_fn=list))
    assert together[:5] == whole[:5]
    assert [len(part) for part in parts] == [6] * world
    assert together[5][:1] == whole[5]
    assert together[5][1:] == whole[0][: world - 1]


def test_persistent_workers_see_set_epoch(folder):
    dataset = opened(folder, shuffle=True)
    loader = DataLoader(
        dataset.batched(8, collate_fn=list), batch_size=None, num_workers=2, persistent_workers=True, timeout=100
    )
    natural = [list(loader) for _ in range(3)]
    assert natural[0] != natural[1] != natural[2]
    dataset.set_epoch(1)
    assert [list(loader), list(loader)] == natural[1:]


def test_both_workers_work(folder):
    dataset = ps.IterableDataset.from_prefix(folder, transform=who)
    seen = {int(value) for batch in DataLoader(dataset, batch_size=4, num_workers=2, timeout=100) for value in batch}
    assert seen == {0, 1}


def test_rank_is_read_from_environment_variables(folder, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    dataset = opened(folder)
    assert list(dataset) == list(range(2, COUNT, 3))
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(Unusable, match="together"):
        list(dataset)


def test_a_copy_sent_elsewhere_finds_its_own_place(folder, monkeypatch):
    """A driver that pickles a dataset for its ranks must not make all of them rank 0."""
    data = pickle.dumps(opened(folder))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(pickle.loads(data)) == list(range(1, COUNT, 2))


def _received(folder):
    """Return what this rank gets with a worker that is forked, and with one that is spawned."""
    dataset = ps.IterableDataset.from_prefix(folder, transform=number, shuffle=True)
    found = []
    for method in ("fork", "spawn"):
        batches = dataset.batched(4, collate_fn=list)
        loader = DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context=method)
        dataset.set_epoch(0)
        found.append(sum(loader, []))
    return found


def test_rank_is_read_from_the_process_group(folder, tmp_path):
    for first, second in zip(*ranks(2, f"file://{tmp_path}/meet", _received, folder), strict=True):
        assert sorted(first + second) == list(range(COUNT))


def test_breaking_off_leaves_nothing_running(bucket):
    for index in range(40):
        bucket.client.put_object(Bucket=bucket.name, Key=f"k{index:02d}", Body=b"x" * 20_000)
    dataset = ps.IterableDataset.from_prefix(bucket.url, store=bucket.store, transform=key_and_bytes)
    before = threading.active_count()
    for _ in range(3):
        for key, _data in dataset:
            assert key == "k00"
            break
    assert threading.active_count() <= before + 1  # the one I/O thread, which may be new
    assert len(list(dataset)) == 40


def test_an_error_comes_in_its_place(folder, tmp_path):
    dataset = opened(folder)
    (tmp_path / "data" / "009").unlink()
    got = []
    with pytest.raises(NotFound, match="009"):
        got.extend(dataset)
    assert got == list(range(9))


def test_reads_ahead_no_more_than_the_budget(tmp_path):
    """Objects of 1 MiB under a budget of 16 MiB (the least share): memory stays near it, however many there are."""
    (tmp_path / "data").mkdir()
    for index in range(120):
        (tmp_path / "data" / f"{index:03d}").write_bytes(b"\1" * (1 << 20))
    code = f"""{PEAK_KIB}
import penstock as ps
store = ps.StoreOptions(read=ps.ReadOptions(ahead_bytes=16 << 20))
dataset = ps.IterableDataset.from_prefix({str(tmp_path / "data")!r}, store=store)
next(iter(dataset))
before = peak_kib()
assert sum(sample.size for sample in dataset) == 120 << 20
print(peak_kib() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 40 << 10  # KiB


def test_an_order_is_given_to_the_dataset(folder):
    dataset = ps.IterableDataset.from_prefix(folder, transform=number, shuffle=ps.order.BlockShuffle(5, 1), seed=3)
    seen = list(dataset)
    assert sorted(seen) == sorted(ps.IterableDataset.from_prefix(folder, transform=number))
    blocks = [each // 5 for each in seen]
    changes = sum(one != other for one, other in pairwise(blocks))
    assert changes == len(set(blocks)) - 1, "a window of one block keeps each block whole"
    assert blocks != sorted(blocks)
    assert seen != sorted(seen)


def test_an_order_that_does_not_fit_the_catalog_is_refused_when_the_dataset_is_made(folder):
    with pytest.raises(Unusable, match="block_samples hold 7"):
        ps.IterableDataset.from_prefix(folder, shuffle=ps.order.BlockShuffle([3, 4]))
    with pytest.raises(Unusable, match="block_samples hold 7"):
        ps.DataLoader(ps.MapDataset.from_prefix(folder), 4, shuffle=ps.order.BlockShuffle([3, 4]))
