"""torch's Subset and random_split under ps.DataLoader read their part, resume, or are refused with what to do."""

from __future__ import annotations

import json
from itertools import chain, islice

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, random_split

import penstock as ps
from penstock.datasets.subsets import without_subsets
from penstock.errors import StateMismatch, Unusable
from tests.datasets.transforms import number, numbered

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
def test_indices_mean_what_they_mean_to_torch(dataset, indices, found):
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


def test_a_dataset_with_indices_of_its_own_is_refused_with_what_to_do(dataset):
    own = Doubled.from_catalog(dataset.catalog, transform=number)
    with pytest.raises(Unusable, match=r"overrides __getitem__.*Doubled\.from_catalog\(dataset\.catalog\[indices\]"):
        ps.DataLoader(Subset(own, [1, 2]), 4)
    assert read(ps.DataLoader(Doubled.from_catalog(own.catalog[[1, 2]], transform=number), 4)) == [2, 4]


class Own(Subset):
    def __getitems__(self, indices):
        return ["own" for _ in indices]


MAKERS = {
    "a subclass of Subset": lambda dataset: Own(dataset, [1]),
    "ConcatDataset": lambda dataset: ConcatDataset([dataset, dataset]),
    "a Subset of a list": lambda _: Subset([1, 2], [0]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_other_wrappers_are_refused_with_what_to_do(dataset, make):
    wrapper = make(dataset)
    assert without_subsets(wrapper) is wrapper
    with pytest.raises(Unusable, match=r"BatchSampler"):
        ps.DataLoader(wrapper, 4)
