"""What a hurried user writes of datasets: it does what was meant, or is refused with a word on what to do."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset

import penstock as ps
from penstock.data.reading.objects import ObjectReading
from penstock.errors import InvalidURL, ManifestError, NotFound, PenstockError, StateMismatch, Unusable
from tests.data.datasets.transforms import number, numbered

COUNT = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return numbered(tmp_path_factory.mktemp("misuse") / "data", COUNT)


@pytest.fixture(scope="module")
def catalog(folder):
    return ps.MapDataset.from_prefix(folder).catalog


def mapped(catalog, **options) -> ps.MapDataset:
    return ps.MapDataset.from_catalog(catalog, **{"transform": number, **options})


def streamed(catalog, **options) -> ps.IterableDataset:
    return ps.IterableDataset.from_catalog(catalog, **{"transform": number, **options})


async def later(sample):
    return sample


# The call, a word of the error, and its kind where it is not Unusable.
REFUSED = {
    "a dataset to split": (lambda c, _: mapped(c).split(0.9), "write dataset.catalog.split(0.9)", AttributeError),
    "a text as an index": (lambda c, _: mapped(c)["0"], "an index must be an integer or a slice, got a str", TypeError),
    "a float as an index": (lambda c, _: mapped(c)[1.0], "got a float; samples are numbered from 0", TypeError),
    "datasets one by one in a mixture": (lambda c, _: ps.Mix(mapped(c), mapped(c)), 'such as Mix({"a": a, "b": b})'),
    "a format whose files have other names": (
        lambda _, f: ps.MapDataset.from_shards(f, format="tar"),
        "for files of other names, pass a glob",
        NotFound,
    ),
    "a URL where a list of them is asked for": (lambda _, f: ps.MapDataset.from_objects(f), "from_prefix", InvalidURL),
    "a path where a list of URLs is asked for": (
        lambda _, f: ps.MapDataset.from_objects(Path(f)),
        "from_prefix",
        InvalidURL,
    ),
    "nothing as a list of URLs": (lambda *_: ps.MapDataset.from_objects(None), "a list of URLs", InvalidURL),
    "a word as a parser": (
        lambda _, f: ps.MapDataset.from_manifest(f"{f}/list.csv", parser="csv"),
        "parser must be a function",
    ),
    "an empty word as a parser": (
        lambda _, f: ps.MapDataset.from_manifest(f"{f}/list.csv", parser=""),
        "parser must be a function",
    ),
    "missing without fields": (
        lambda _, f: ps.MapDataset.from_shards(f"{f}/a.tar", missing="drop"),
        "needs fields=",
    ),
    "an array as a rule of groups": (lambda _, f: ps.MapDataset.from_prefix(f, group=np.ones(2)), "group must be"),
    "bytes among URLs": (lambda *_: ps.MapDataset.from_objects([b"s3://bucket/a"]), "text", InvalidURL),
    "a list of URLs as a manifest": (
        lambda *_: ps.MapDataset.from_manifest(["s3://bucket/a", "s3://bucket/b"]),
        "from_objects",
        InvalidURL,
    ),
    "a prefix as a saved catalog": (lambda _, f: ps.MapDataset.from_catalog(f), "", PenstockError),
    "an object as a saved catalog": (lambda _, f: ps.MapDataset.from_catalog(f"{f}000"), "catalog", ManifestError),
    "a URL as a dataset": (lambda _, f: ps.MapDataset(f), "from_prefix"),
    "entries as a dataset": (lambda catalog, _: ps.IterableDataset(list(catalog)), "from_objects"),
    "what a transform returns as the transform": (lambda c, _: mapped(c, transform=3), "function"),
    "a coroutine as the transform": (lambda c, _: mapped(c, transform=later), "plain function"),
    "a rank and a world as a place": (lambda c, _: streamed(c, place=(0, 2)), "ps.Place"),
    "a number as a place": (lambda c, _: streamed(c, place=1), "ps.Place"),
    "another word as a place": (lambda c, _: streamed(c, place="all"), "unsharded"),
    "the last rank plus one": (lambda *_: ps.Place(2, 2), "count from 0"),
    "a rank as the environment has it": (lambda *_: ps.Place("0", "2"), "whole number"),
    "half a rank": (lambda *_: ps.Place(0.0, 2), "whole number"),
    "a batch size of half a sample": (lambda c, _: mapped(c).batched(0.5), "whole number"),
    "a batch size that looks whole": (lambda c, _: mapped(c).batched(4.0), "whole number"),
    "a batch size of numpy's halves": (lambda c, _: mapped(c).batched(np.float64(4)), "whole number"),
    "a batch size in a list of numpy's": (lambda c, _: mapped(c).batched(np.array([3])), "whole number"),
    "a batch size in a tensor of halves": (lambda c, _: mapped(c).batched(torch.tensor(5.0)), "whole number"),
    "a batch size of True": (lambda c, _: mapped(c).batched(batch_size=True), "whole number"),
    "no batch size": (lambda c, _: streamed(c).batched(None), "batch_size"),
    "no batches under our loader": (
        lambda c, _: ps.DataLoader(mapped(c), batch_size=None),
        "iterate over the dataset itself",
    ),
    "an order's class": (lambda c, _: mapped(c).batched(4, shuffle=ps.order.BlockShuffle), "make an instance"),
    "a shuffle buffer's size": (lambda c, _: streamed(c, shuffle=1000), "ps.order.BlockShuffle"),
    "blocks of no samples": (lambda *_: ps.order.BlockShuffle(0), "block_samples"),
    "blocks of half samples": (lambda *_: ps.order.BlockShuffle(0.5), "block_samples"),
    "blocks of other samples": (
        lambda c, _: ps.BatchSampler(mapped(c), 4, shuffle=ps.order.BlockShuffle([4, 4])),
        "hold 8 samples, and the dataset has 10",
    ),
    "a batch size of none": (lambda c, _: streamed(c).batched(0), "1 or more"),
    "a batch size below none": (lambda c, _: streamed(c).batched(-4), "1 or more"),
    "a seed of True": (lambda c, _: mapped(c).batched(4, shuffle=True, seed=True), "seed"),
    "a seed that looks whole": (lambda c, _: mapped(c).batched(4, shuffle=True, seed=1.0), "seed"),
    "a seed as text": (lambda c, _: mapped(c).batched(4, shuffle=True, seed="1"), "seed"),
    "a seed that no state has room for": (lambda c, _: mapped(c).batched(4, seed=10**400), "bits"),
    "an iterable dataset's seed": (lambda c, _: streamed(c, shuffle=True, seed=0.5).batched(4), "seed"),
    "shuffle by a word": (lambda c, _: mapped(c).batched(4, shuffle="no"), "True, False or an order"),
    "tail in capitals": (lambda c, _: mapped(c).batched(4, tail="Drop"), "'drop'"),
    "a result as a collate_fn": (lambda c, _: mapped(c).batched(4, collate_fn=[]), "collate_fn"),
    "an epoch as text": (lambda c, _: streamed(c).set_epoch("1"), "whole number"),
    "an epoch of True": (lambda c, _: streamed(c).set_epoch(True), "whole number"),
    "half an epoch": (lambda c, _: mapped(c).batched(4).set_epoch(1.5), "whole number"),
    "a sampler in a batch sampler": (lambda c, _: ps.BatchSampler(RandomSampler(mapped(c)), 4), "the dataset itself"),
    "a sampler that shares out in a batch sampler": (
        lambda c, _: ps.BatchSampler(DistributedSampler(mapped(c), 2, 0), 4),
        "the dataset itself",
    ),
    "batches in a batch sampler": (lambda c, _: ps.BatchSampler(mapped(c).batched(4), 4), "batched"),
    "an iterable dataset in a batch sampler": (lambda c, _: ps.BatchSampler(streamed(c), 4), "batched"),
    "a number of samples in a batch sampler": (lambda *_: ps.BatchSampler(10, 4), "the dataset itself"),
    "batches of batches, by default": (lambda c, _: list(DataLoader(mapped(c).batched(4))), "batch_size=None"),
    "batches of batches": (lambda c, _: list(DataLoader(streamed(c).batched(4), batch_size=4)), "batch_size=None"),
    "batches of batches, in a worker": (
        lambda c, _: list(DataLoader(streamed(c).batched(4), batch_size=4, num_workers=1)),
        "batch_size=None",
    ),
    "nothing as a state": (lambda c, _: mapped(c).batched(4).load_state_dict(None), "not a state", StateMismatch),
    "a model's state": (lambda c, _: mapped(c).batched(4).load_state_dict({"w": 1}), "not a state", StateMismatch),
    "another seed's state": (
        lambda c, _: mapped(c).batched(4).load_state_dict(mapped(c).batched(4, shuffle=True).state_dict()),
        "seed",
        StateMismatch,
    ),
    "our own state made elastic": (
        lambda c, _: ps.elastic_state(mapped(c).batched(4).state_dict()),
        "StatefulDataLoader",
        StateMismatch,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_dataset_call_raises_with_advice(catalog, folder, name):
    misuse, word, kind = (*REFUSED[name], Unusable)[:3]
    with pytest.raises(kind) as caught:
        misuse(catalog, folder)
    assert word in str(caught.value)


def test_numpys_integers_are_integers(catalog):
    one = mapped(catalog).batched(np.int64(4), shuffle=True, seed=np.int32(3), place=ps.Place(np.int64(0), np.int8(2)))
    other = mapped(catalog).batched(4, shuffle=True, seed=3, place=ps.Place(0, 2))
    one.set_epoch(np.int16(5))
    other.set_epoch(5)
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]
    assert type(one.state_dict()["seed"]) is int


class Doubled(ps.MapDataset):
    def __getitem__(self, index):
        return super().__getitem__(index) * 2


class Together(ps.MapDataset):
    def __getitems__(self, indices):
        return [sample * 2 for sample in super().__getitems__(indices)]


class Both(ps.MapDataset):
    def __getitem__(self, index):
        return super().__getitem__(index) * 2

    def __getitems__(self, indices):
        return [sample * 2 for sample in super().__getitems__(indices)]


class BatchOfItems(Both):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class ItemOfBatch(ps.MapDataset):
    def __getitem__(self, index):
        return sum(super().__getitems__([index, index]))


class Further(Doubled):
    """Overrides what is made of ``Doubled.__getitem__``, and ends there."""

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        return super().__getitems__(indices)


class Again(Doubled):
    def __getitem__(self, index):
        return super().__getitem__(index) // 2 * 2


class Longer(ps.MapDataset):
    def __len__(self):
        return 2 * super().__len__()

    def __getitem__(self, index):
        return super().__getitem__(index % super().__len__()) * 2


class Method(ps.MapDataset):
    def transform(self, sample):
        return number(sample) * 2


LOADERS = {
    "itself": lambda dataset: [torch.tensor(list(dataset))],
    "by index": lambda dataset: [torch.tensor([dataset[index] for index in range(len(dataset))])],
    "torch's loader": lambda dataset: DataLoader(dataset, 4),
    "torch's subset": lambda dataset: DataLoader(Subset(dataset, range(len(dataset))), 4),
    "batches": lambda dataset: dataset.batched(4),
    "our loader": lambda dataset: ps.DataLoader(dataset, 4, decode_threads=3),
    "our loader, skipping": lambda dataset: ps.DataLoader(dataset, 4, on_error="skip"),
    "our loader's worker": lambda dataset: ps.DataLoader(dataset, 4, num_workers=1, on_error="skip"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", [Doubled, Together, Both, BatchOfItems, ItemOfBatch, Further, Again, Longer, Method])
def test_loaders_use_the_subclass_override_of_each_read_method(catalog, kind, loader):
    dataset = kind.from_catalog(catalog, **({} if kind is Method else {"transform": number}))
    seen = torch.cat([torch.as_tensor(batch) for batch in LOADERS[loader](dataset)]).tolist()
    factor = 1 if (kind, loader) == (Together, "by index") else 2  # what reads one sample is not overridden
    assert seen == [factor * each for each in range(COUNT)] * (len(dataset) // COUNT)


def test_a_batch_that_is_made_of_single_reads_does_not_recurse(catalog):
    class Keys(ps.MapDataset):
        def __getitems__(self, indices):
            return [self[index].key[-3:] for index in indices]

    dataset = Keys.from_catalog(catalog)
    assert dataset.__getitems__([3, 4]) == ["003", "004"]
    assert list(dataset) == [f"{index:03d}" for index in range(COUNT)]
    assert next(iter(DataLoader(dataset, 5, collate_fn=list))) == ["000", "001", "002", "003", "004"]
    assert dataset[3].read() == b"3"


def test_a_sample_that_a_subclass_cannot_read_is_left_out_alone(catalog):
    class Fussy(ps.MapDataset):
        def __getitem__(self, index):
            if index == 3:
                raise ValueError("not this one")
            return super().__getitem__(index)

    loader = ps.DataLoader(Fussy.from_catalog(catalog, transform=number), 4, on_error="skip")
    assert torch.cat(list(loader)).tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert loader.skipped[0] == ("sample 3 of Fussy", "ValueError: not this one")


def test_a_batch_of_another_length_than_its_indices_is_refused(catalog):
    class Short(ps.MapDataset):
        def __getitems__(self, indices):
            return super().__getitems__(indices)[1:]

    with pytest.raises(Unusable, match="3 samples for 4 indices"):
        list(ps.DataLoader(Short.from_catalog(catalog, transform=number), 4))


def test_a_batch_that_a_subclass_fails_to_read_is_read_once(catalog):
    calls = []

    class Failing(ps.MapDataset):
        def __getitems__(self, indices):
            calls.append(list(indices))
            raise ValueError("not this batch")

    dataset = Failing.from_catalog(catalog, transform=number)
    for item in ObjectReading(dataset, [[0, 1, 2]], 1):
        with pytest.raises(ValueError, match="not this batch"):
            item.make()
    assert calls == [[0, 1, 2]]


def test_an_iterable_dataset_that_iterates_its_own_way_forms_no_batches_of_ours(catalog):
    class Own(ps.IterableDataset):
        def __iter__(self):
            return map(str, super().__iter__())

    dataset = Own.from_catalog(catalog, transform=number)
    assert list(dataset) == [str(each) for each in range(COUNT)]
    with pytest.raises(Unusable, match="transform="):
        dataset.batched(4)
    with pytest.raises(Unusable, match="transform="):
        ps.DataLoader(dataset, 4)


def test_two_threads_may_iterate_over_one_dataset(catalog):
    dataset, seen = streamed(catalog), []
    threads = [threading.Thread(target=lambda: seen.append(sorted(dataset))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(COUNT))] * 2


@pytest.mark.parametrize("make", [mapped, streamed])
@pytest.mark.parametrize(("name", "advice"), [("map", "transform="), ("batch", "ps.DataLoader"), ("take", "slice")])
def test_methods_of_other_libraries_are_answered_with_ours(catalog, make, name, advice):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*{advice}"):
        getattr(make(catalog), name)
    assert not hasattr(make(catalog), name)


def test_a_property_of_a_subclass_raises_its_own_attribute_error(catalog):
    class Named(ps.MapDataset):
        @property
        def named(self):
            return self.catalog.speling

    with pytest.raises(AttributeError, match="'Catalog' object has no attribute 'speling'"):
        _ = Named.from_catalog(catalog).named
