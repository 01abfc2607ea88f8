"""Samples of arrays come as often as latitude or rarity demand, from chunks that are read once, on any ranks."""

from collections import Counter

import numpy as np
import pytest
import zarr
from torch.utils.data import Subset

import penstock as ps
from penstock.errors import Unusable
from tests.data.zarr.stores import numbered, write

LATITUDES = np.linspace(88, -88, 12)
COSINES = np.cos(np.deg2rad(LATITUDES))


@pytest.fixture
def field(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", 0)
    write(tmp_path / "a", numbered((40, 12, 2)), ("time", "lat", "x"), chunks=(4, 6, 2))
    return tmp_path / "a"


def opened(field, **arguments):
    given = {"dims": "time", "output": "numpy", "shuffle": True, "patch": {"lat": 2}}
    return ps.ZarrDataset(field, **given | arguments)


def firsts(dataset, **arguments):
    """Return the time and latitude of each sample of an epoch, in order."""
    numbers = [
        int(each.flat[0]) // 2 for batch in ps.DataLoader(dataset, 8, collate_fn=list, **arguments) for each in batch
    ]
    return [divmod(number, 12) for number in numbers]


def test_patches_have_the_mean_weight_of_their_latitudes(field):
    weighted = opened(field).weighted({"lat": COSINES}, epoch_samples=2400)
    assert len(weighted) == 2400
    found = Counter(lat for _, lat in firsts(weighted))
    means = (COSINES[::2] + COSINES[1::2]) / 2
    assert sum(found.values()) == 2400
    for number, mean in enumerate(means):
        assert found[2 * number] == pytest.approx(2400 * mean / means.sum(), abs=40)


def test_weights_of_two_dimensions_are_multiplied_and_select_keeps_its_own(field):
    rare = np.zeros(40)
    rare[[7, 9]] = 1, 3
    whole = opened(field, select={"time": slice(5, 25), "lat": slice(2, 10)})
    for times in (rare, rare[5:25]):
        found = Counter(firsts(whole.weighted({"time": times, "lat": [1, 1, 0, 0, 0, 0, 0, 0]}, epoch_samples=8)))
        assert found == {(7, 2): 2, (9, 2): 6}


@pytest.mark.parametrize("reverse", [False, True])
def test_weights_of_arrays_aligned_by_coordinates_are_of_the_common_ones(tmp_path, reverse):
    arrays = {}
    for name, hours in (("a", range(20)), ("b", range(12, 30, 2))):
        group = zarr.open_group(tmp_path / name, mode="w")
        for each in ("time", "t"):
            values = np.array(hours)[::-1] if reverse else np.array(hours)
            group.create_array(each, data=values, dimension_names=("time",))
        arrays[name] = str(tmp_path / name / "t")
    common = [18, 16, 14, 12] if reverse else [12, 14, 16, 18]
    for select, weights in (({}, [0, 0, 1, 0]), ({"time": slice(1, 4)}, [0, 0, 1, 0]), ({"time": [2]}, [1])):
        given = {"dims": "time", "align": "coordinates", "shuffle": True, "select": select}
        found = {int(each["b"]) for each in ps.ZarrDataset(arrays, **given).weighted({"time": weights})}
        assert found == {common[2]}


def test_each_chunk_is_read_once_on_any_ranks(field):
    weights = np.random.default_rng(0).pareto(1.5, 240)
    seen, global_batches = Counter(), []
    for world in (1, 2, 4):
        counts, batches = Counter(), []
        for rank in range(world):
            dataset = opened(field, lanes=4, place=ps.Place(rank, world), window_bytes=800).weighted(weights)
            loader = ps.DataLoader(dataset, 8 // world, collate_fn=list)
            batches.append([[each.tobytes() for each in batch] for batch in loader])
            counts += Counter(each for batch in batches[-1] for each in batch)
            if world == 1:
                assert dataset.plan(8).amplification == 1
        assert not seen or counts == seen
        seen = counts
        global_batches.append([sorted(sum(parts, [])) for parts in zip(*batches, strict=True)])
    assert global_batches[0] == global_batches[1] == global_batches[2]


@pytest.mark.parametrize("replacement", [True, False])
def test_a_weighted_epoch_goes_on_where_it_stopped(field, replacement):
    def loader(world=1, rank=0):
        dataset = opened(field, lanes=2, place=ps.Place(rank, world))
        return ps.DataLoader(dataset.weighted({"lat": COSINES}, replacement=replacement), 8 // world, collate_fn=list)

    every = [sorted(each.tobytes() for each in batch) for batch in loader()]
    first = loader()
    iterator = iter(first)
    begun = [sorted(each.tobytes() for each in next(iterator)) for _ in range(5)]
    state = first.state_dict()
    iterator.close()
    parts = []
    for rank in range(2):
        again = loader(2, rank)
        again.load_state_dict(state)
        parts.append([[each.tobytes() for each in batch] for batch in again])
    rest = [sorted(one + other) for one, other in zip(*parts, strict=True)]
    assert begun + rest == every


def test_positions_are_those_of_the_samples(field):
    whole = opened(field)
    places = whole.positions()
    samples = whole.as_map()
    for number in (0, 17, 239):
        assert samples[number].flat[0] // 2 == places["time"][number] * 12 + places["lat"][number]
    rare = whole.weighted(places["time"] == 3)
    assert {time for time, _ in firsts(rare)} == {3}


def test_parts_and_subsets_are_weighted_and_not_the_reverse(field):
    train, _ = opened(field).split_at(20)
    assert max(time for time, _ in firsts(train.weighted({"lat": COSINES}))) == 19
    part = ps.DataLoader(Subset(opened(field), range(30)), 4).dataset
    assert len(part.weighted(np.ones(30))) == 30
    weighted = opened(field).weighted({"lat": COSINES})
    with pytest.raises(Unusable, match="cannot be split"):
        weighted.split(0.5)
    with pytest.raises(Unusable, match="take the Subset first"):
        ps.DataLoader(Subset(weighted, range(3)), 2)


@pytest.mark.parametrize(
    ("arguments", "weights", "words"),
    [
        ({"shuffle": False}, {"lat": COSINES}, "pass shuffle=True"),
        ({"shuffle": ps.order.BlockShuffle(4)}, {"lat": COSINES}, "pass shuffle=True"),
        ({}, {"lat": COSINES[1:]}, "weights of 'lat' must be 12, one for each element, got 11"),
        ({}, {"x": [1, 1]}, "weights names 'x', and samples extend along time, lat"),
        ({}, {}, "weights must name a dimension"),
        ({}, {"lat": -COSINES}, "must be finite, 0 or more"),
        ({}, [1.0] * 7, "weights must be 240, one for each sample"),
    ],
)
def test_invalid_weights_are_refused(field, arguments, weights, words):
    with pytest.raises(Unusable, match=words):
        opened(field, **arguments).weighted(weights)
