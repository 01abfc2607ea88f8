"""What a batch holds is known before it is read: what a real epoch delivers, on every rank, after any resume."""

from __future__ import annotations

from dataclasses import astuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import random_split

import penstock as ps
from penstock.errors import Unusable
from penstock.events import subscribe
from tests.amounts import examples
from tests.data.datasets.transforms import number, numbered
from tests.data.zarr.stores import numbered as values
from tests.data.zarr.stores import write

COUNT = 40
ORDERS = [False, True, ps.order.BlockShuffle(5), ps.order.Lanes(4, 2), ps.order.Lanes(4, 2, 4, shuffle=False)]
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return ps.Catalog.scan(numbered(tmp_path_factory.mktemp("inspected") / "data", COUNT))


def contents(sample):
    return int(sample.read()), sample.url, sample.repeat


def loaders(catalog, world, batch, **options):
    dataset = ps.MapDataset.from_catalog(catalog, transform=contents)
    return [
        ps.DataLoader(dataset, batch, place=ps.Place(rank, world), collate_fn=list, **options) for rank in range(world)
    ]


@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_inspected_batches_are_those_of_a_real_epoch_on_every_rank_and_after_a_resume(catalog, data):
    world = data.draw(st.sampled_from([1, 2, 4]), "world")
    batch = data.draw(st.integers(1, 3), "batch") * 4 // world
    tail = data.draw(st.sampled_from(["short", "pad", "drop"]), "tail")
    shuffle = data.draw(st.sampled_from(ORDERS), "shuffle")
    samples = data.draw(st.integers(1, COUNT), "samples")
    epoch = data.draw(st.integers(0, 3), "epoch")
    some = catalog[:samples]
    options = {"shuffle": shuffle, "seed": data.draw(st.integers(0, 9), "seed"), "tail": tail}
    ranks = loaders(some, world, batch, **options)
    asked = data.draw(st.integers(0, world - 1), "asked")
    for loader in ranks:
        loader.set_epoch(epoch)
    before = [
        [ranks[asked].inspect(k, epoch=epoch, rank=rank) for k in range(len(loader))]
        for rank, loader in enumerate(ranks)
    ]
    real = [[*loader] for loader in ranks]
    assert [[[astuple(each)[:3] for each in one] for one in rank] for rank in before] == real
    if len(ranks[0]) < 2:
        return
    received = data.draw(st.integers(1, len(ranks[0]) - 1), "received")
    state = ranks[0].sampler.state_at(received, epoch=epoch)
    again = loaders(some, world, batch, **options)[asked]
    again.load_state_dict(state)
    found = [[astuple(each)[:3] for each in again.inspect(k)] for k in range(len(real[asked]) - received)]
    assert found == real[asked][received:]
    with pytest.raises(Unusable, match=r"batch .* does not exist"):
        again.inspect(len(found))


def test_inspect_without_epoch_shows_the_latest_iteration(catalog):
    (loader,) = loaders(catalog, 1, 8, shuffle=True)
    epochs = [[*loader] for _ in range(2)]
    assert [astuple(each)[:3] for each in loader.inspect(3)] == epochs[1][3]
    assert [astuple(each)[:3] for each in loader.inspect(3, epoch=0)] == epochs[0][3]


def test_nothing_is_read_and_an_iteration_under_way_is_not_disturbed(catalog):
    (loader,) = loaders(catalog, 1, 8, shuffle=True, num_workers=0)
    undisturbed = [*loaders(catalog, 1, 8, shuffle=True)[0]]
    batches = iter(loader)
    first = next(batches)
    seen = []
    stop = subscribe(seen.append)
    fresh = loaders(catalog, 1, 8, shuffle=True)[0]
    assert [astuple(each)[:3] for each in fresh.inspect(4)] == undisturbed[4]
    stop()
    assert seen == []
    assert [astuple(each)[:3] for each in loader.inspect(1)] == undisturbed[1]
    assert [first, *batches] == undisturbed


def test_a_subset_and_workers_are_inspected_as_they_deliver(catalog):
    dataset = ps.MapDataset.from_catalog(catalog, transform=number)
    part, _ = random_split(dataset, [25, 15], torch.Generator().manual_seed(3))
    loader = ps.DataLoader(part, 6, shuffle=True, num_workers=2, collate_fn=list)
    inspected = [loader.inspect(k) for k in range(len(loader))]
    urls = [[int(each.url.rpartition("/")[2]) for each in one] for one in inspected]
    assert [*loader] == urls
    assert sorted(each.index for one in inspected for each in one) == [*range(25)]


def test_samples_of_arrays_are_named_by_number_and_place(tmp_path):
    write(tmp_path / "a", values((24, 2)), ("time", "x"), chunks=(5, 2))
    dataset = ps.ZarrDataset(str(tmp_path / "a"), shuffle=True, output="numpy")
    whole = dataset.as_map()
    loader = ps.DataLoader(dataset, 7)
    for epoch in range(2):
        inspected = [loader.inspect(k, epoch=epoch) for k in range(len(loader))]
        for batch, planned in zip(loader, inspected, strict=True):
            assert [each.tolist() for each in batch] == [whole[each.index].tolist() for each in planned]
            places = [f" at time={int(each.flatten()[0]) // 2}" for each in batch]
            assert places == [each.url[each.url.index(" at") :] for each in planned]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch": 5}, "batch 5 does not exist: epoch 0 has 5 for each rank, from 0"),
        ({"batch": -1}, "must be 0 or more"),
        ({"batch": 1.5}, "whole number"),
        ({"batch": 0, "rank": 1}, "rank must be 0 to 0, got 1"),
        ({"batch": 0, "rank": -1}, "must be 0 or more"),
        ({"batch": 0, "epoch": True}, "whole number"),
        ({"batch": 0, "epoch": -1}, "must be 0 or more"),
    ],
)
def test_inspecting_a_nonexistent_batch_rank_or_epoch_is_refused(catalog, asked, message):
    with pytest.raises(Unusable, match=message):
        loaders(catalog, 1, 8)[0].inspect(**asked)


def test_lanes_that_ranks_cannot_share_are_refused_as_when_an_iteration_begins(catalog):
    loader = loaders(catalog, 3, 4, shuffle=ps.order.Lanes(4, 2, 4))[0]
    with pytest.raises(Unusable, match="cannot share lanes=4"):
        loader.inspect(0)
