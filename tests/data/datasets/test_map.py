"""Samples by index: one, a slice, a batch at once, in any process."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from itertools import chain, islice

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import penstock as ps
from penstock.data.datasets.map import part_of, without_subsets
from penstock.errors import NotFound, StateMismatch, Unusable
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
            with pytest.raises(
                IndexError, match=f"sample {beyond} does not exist: the dataset has 30, numbered from 0"
            ):
                read[beyond]
        with pytest.raises(IndexError, match=f"index {beyond} is outside a catalog of 30 objects"):
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


COUNT = 20


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return ps.MapDataset.from_prefix(numbered(tmp_path_factory.mktemp("subsets") / "data", COUNT), transform=number)


def parts(dataset, seed=5):
    return random_split(dataset, [0.7, 0.3], generator=torch.Generator().manual_seed(seed))


def read(loader):
    return list(chain.from_iterable(batch.tolist() for batch in loader))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_parts_of_a_random_split_are_read_by_our_loader(dataset, workers):
    train, valid = parts(dataset)
    assert read(ps.DataLoader(train, 4, num_workers=workers)) == [int(index) for index in train.indices]
    assert read(ps.DataLoader(valid, 4)) == [int(index) for index in valid.indices]
    shuffled = read(ps.DataLoader(train, 4, shuffle=True))
    assert sorted(shuffled) == sorted(train.indices)
    assert shuffled != list(train.indices)


@pytest.mark.parametrize(
    ("indices", "found"),
    [
        ([3, 1, 1, -1], [3, 1, 1, 19]),
        (range(4, 8), [4, 5, 6, 7]),
        (np.array([2, 0]), [2, 0]),
        (torch.tensor([2, 0]), [2, 0]),
        ([], []),
    ],
    ids=["list", "range", "array", "tensor", "none"],
)
def test_subset_indices_follow_torch_semantics(dataset, indices, found):
    assert read(ps.DataLoader(Subset(dataset, indices), 4)) == found
    assert [Subset(dataset, indices)[number] for number in range(len(found))] == found


def test_a_subset_of_a_subset_is_one(dataset):
    assert read(ps.DataLoader(Subset(Subset(dataset, range(4, 12)), [0, 7]), 4)) == [4, 11]


def test_a_part_resumes_and_another_split_is_refused(dataset):
    whole = [batch.tolist() for batch in ps.DataLoader(parts(dataset)[0], 4, shuffle=True)]
    loader = ps.DataLoader(parts(dataset)[0], 4, shuffle=True)
    assert len(list(islice(loader, 2))) == 2
    state = json.loads(json.dumps(loader.state_dict()))
    again = ps.DataLoader(parts(dataset)[0], 4, shuffle=True)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == whole[2:]
    with pytest.raises(StateMismatch, match="catalog"):
        ps.DataLoader(parts(dataset, seed=6)[0], 4, shuffle=True).load_state_dict(state)


class Doubled(ps.MapDataset):
    def __getitem__(self, index):
        return 2 * super().__getitem__(index)


def test_a_subset_of_a_subclass_is_read_by_the_subclass(dataset):
    own = Doubled.from_catalog(dataset.catalog, transform=number)
    assert read(ps.DataLoader(Subset(own, [1, 2]), 4)) == [2, 4]
    assert read(ps.DataLoader(Doubled.from_catalog(own.catalog[[1, 2]], transform=number), 4)) == [2, 4]


class Halves(ps.MapDataset):
    def __len__(self):
        return super().__len__() // 2

    def __getitem__(self, index):
        return [super().__getitem__(2 * index), super().__getitem__(2 * index + 1)]


class Iterated(ps.MapDataset):
    def __iter__(self):
        return zip(super().__iter__(), reversed(range(len(self))), strict=True)


@pytest.mark.parametrize(
    ("kind", "method", "shown"), [(Halves, "__len__", "a Halves"), (Iterated, "__iter__", "an Iterated")]
)
def test_subsets_of_a_subclass_with_custom_indexing_are_refused_with_advice(dataset, kind, method, shown):
    whole = kind.from_catalog(dataset.catalog, transform=number)
    for take in (lambda: part_of(whole, slice(2, 5)), lambda: ps.DataLoader(Subset(whole, [1, 2]), 4)):
        with pytest.raises(Unusable, match=rf"part of {shown}: it overrides {method}.*BatchSampler"):
            take()
    subset = Subset(whole, [1, 2])
    batches = DataLoader(subset, batch_sampler=ps.BatchSampler(subset, 2), collate_fn=list)
    assert list(batches) == [[[2, 3], [4, 5]] if kind is Halves else [1, 2]]


class Paired(ps.MapDataset):
    """Pairs by index with a second dataset in an attribute, and with a list."""

    def __getitems__(self, indices):
        numbers, partners = super().__getitems__(indices), self.partners.__getitems__(indices)
        return [[*each, self.names[index]] for *each, index in zip(numbers, partners, indices, strict=True)]


class PairedSingly(ps.MapDataset):
    """The same, a sample at a time."""

    def __getitem__(self, index):
        return [super().__getitem__(index), self.partners[index], self.names[index]]


@pytest.fixture(params=[Paired, PairedSingly])
def paired(request, dataset):
    whole = request.param.from_catalog(dataset.catalog, transform=number)
    whole.partners = ps.MapDataset.from_catalog(dataset.catalog, transform=number)
    whole.names = list(range(COUNT))
    return whole


def three_times(rows):
    return [[row] * 3 for row in rows]


def batches(part, **options):
    return list(chain.from_iterable(ps.DataLoader(part, 3, collate_fn=list, **options)))


PARTS = {
    "a slice": (lambda whole: part_of(whole, slice(5, None)), range(5, COUNT)),
    "a step": (lambda whole: part_of(whole, slice(None, None, 3)), range(0, COUNT, 3)),
    "reversed": (lambda whole: part_of(whole, slice(None, None, -1)), range(COUNT - 1, -1, -1)),
    "the last": (lambda whole: part_of(whole, slice(-4, None)), range(COUNT - 4, COUNT)),
    "a slice of a slice": (lambda whole: part_of(whole, slice(5, None))[1::2], range(6, COUNT, 2)),
    "a slice of indices": (lambda whole: part_of(whole, [9, 3, 4, 3])[1:], [3, 4, 3]),
    "indices of a slice": (lambda whole: part_of(part_of(whole, slice(5, None)), [-1, 0]), [COUNT - 1, 5]),
    "a mask": (lambda whole: part_of(whole, np.arange(COUNT) % 7 == 2), [2, 9, 16]),
    "a subset": (lambda whole: without_subsets(Subset(whole, [7, 2, -1])), [7, 2, COUNT - 1]),
    "a subset of a slice": (lambda whole: without_subsets(Subset(part_of(whole, slice(5, None)), [2, 0])), [7, 5]),
    "none": (lambda whole: part_of(whole, slice(3, 3)), []),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_subclass_that_pairs_by_index_keeps_its_pairs(paired, name):
    take, rows = PARTS[name]
    part, expected = take(paired), three_times(rows)
    assert isinstance(part, ps.MapDataset)
    assert len(part) == len(expected)
    assert list(part) == part.__getitems__(range(len(part))) == expected
    assert batches(part) == expected
    assert batches(part, on_error="skip", decode_threads=3) == expected
    assert sorted(batches(part, shuffle=True)) == sorted(expected)
    assert list(chain.from_iterable(DataLoader(part, 3, collate_fn=list))) == expected
    assert list(chain.from_iterable(part.batched(3, list))) == expected
    assert batches(pickle.loads(pickle.dumps(part))) == expected
    assert [part.url_of(number) for number in range(len(part))] == [paired.url_of(row) for row, *_ in expected]
    if isinstance(paired, PairedSingly):
        assert [part[number] for number in range(len(part))] == expected
    shares = [batches(part, place=ps.Place(rank, 2)) for rank in range(2)]
    assert sorted([*shares[0], *shares[1]]) == sorted(expected) or len(expected) % 2
    assert all(each == [each[0]] * 3 for share in shares for each in share)


def test_the_parts_of_a_random_split_keep_their_pairs_and_resume(paired):
    train, valid = parts(paired)
    assert batches(valid) == three_times(valid.indices)
    loader = ps.DataLoader(train, 4, shuffle=True, collate_fn=list)
    whole = list(ps.DataLoader(parts(paired)[0], 4, shuffle=True, collate_fn=list))
    assert len(list(islice(loader, 2))) == 2
    again = ps.DataLoader(parts(paired)[0], 4, shuffle=True, collate_fn=list)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert list(again) == whole[2:]
    assert sorted(chain.from_iterable(whole)) == sorted(three_times(train.indices))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_read_a_part_with_its_pairs(paired, method):
    part = part_of(paired, slice(5, None, 2))
    assert batches(part, num_workers=2, multiprocessing_context=method) == three_times(range(5, COUNT, 2))


def test_an_attribute_of_the_whole_is_not_taken_for_one_of_the_part(paired):
    part = part_of(paired, slice(5, None))
    with pytest.raises(AttributeError, match=r"no attribute 'partners'.*\.whole.*\.rows"):
        part.partners  # noqa: B018  looking it up is the test
    assert part.whole.partners[part.rows[0]] == 5


def test_a_second_dataset_of_another_length_is_refused_beside_a_part(dataset):
    part = Paired.from_catalog(dataset.catalog.split(0.5)[0], transform=number)
    with pytest.raises(Unusable, match=r"cannot pair the 20 samples of partners with the \d+ of this Paired.*by name"):
        part.partners = ps.MapDataset.from_catalog(dataset.catalog, transform=number)
    part.partners = ps.MapDataset.from_catalog(part.catalog, transform=number)
    part.others = (ps.MapDataset.from_catalog(dataset.catalog),)


class Reading(Subset):
    def __getitems__(self, indices):
        return ["own" for _ in indices]


MAKERS = {
    "a subclass of Subset": lambda dataset: Reading(dataset, [1]),
    "ConcatDataset": lambda dataset: ConcatDataset([dataset, dataset]),
    "a Subset of a list": lambda _: Subset([1, 2], [0]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_unsupported_dataset_wrappers_are_refused_with_advice(dataset, make):
    wrapper = make(dataset)
    assert without_subsets(wrapper) is wrapper
    with pytest.raises(Unusable, match=r"BatchSampler"):
        ps.DataLoader(wrapper, 4)
