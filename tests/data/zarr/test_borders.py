"""Parts of arrays for training and validation share no element, whatever a sample reaches, on any ranks."""

import datetime as dt
import tempfile
from collections import Counter
from math import prod

import numpy as np
import pytest
import torch
import xarray as xr
import zarr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset, random_split

import penstock as ps
from penstock.data.zarr.borders import divide_elements
from penstock.errors import StateMismatch, Unusable
from tests.amounts import examples
from tests.data.zarr.stores import numbered, write

DAYS = np.datetime64("2014-12-01", "ns") + np.arange(62) * np.timedelta64(1, "D")


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    path = tmp_path_factory.mktemp("fields") / "a.zarr"
    dataset = xr.Dataset({"a": (("time", "x"), numbered((62, 3)))}, {"time": DAYS, "x": np.arange(3.0)})
    dataset.to_zarr(path, encoding={"a": {"chunks": (10, 3)}}, consolidated=False)
    return str(path)


def opened(fields, **arguments):
    return ps.ZarrDataset(f"{fields}/a", dims="time", output="numpy", **arguments)


def elements(dataset):
    """Return the elements that samples of a dataset have, inputs and targets, as a set of their values."""
    found = set()
    for sample in dataset:
        for each in sample if isinstance(sample, tuple) else (sample,):
            found |= {*np.asarray(each).ravel().tolist()}
    return found


def times(dataset):
    return sorted({value // 3 for value in elements(dataset)})


def test_a_date_is_the_first_of_the_second_part(fields):
    train, valid = opened(fields).split_at("2015")
    assert times(train) == [*range(31)]
    assert times(valid) == [*range(31, 62)]
    for border in (dt.date(2015, 1, 1), np.datetime64("2015-01-01T00"), "2015-01", 31, -31):
        assert [len(each) for each in opened(fields).split_at(border)] == [31, 31]
    parts = opened(fields).split_at("2014-12-11", "2015-01-11")
    assert [len(each) for each in parts] == [10, 31, 21]


def test_windows_end_before_the_border_and_a_gap_widens_it(fields):
    whole = ps.ZarrDataset(f"{fields}/a", f"{fields}/a", dims="time", offsets=(-1, 0), target_offsets=2, output="numpy")
    train, valid = whole.split_at("2015", gap=dt.timedelta(days=5))
    assert times(train) == [*range(26)]
    assert times(valid) == [*range(31, 62)]
    assert [len(each) for each in whole.split_at(31, gap=5)] == [len(train), len(valid)] == [23, 28]


def test_dates_are_those_of_the_selected_elements(fields):
    train, valid = opened(fields, select={"time": slice(60, 20, -2)}).split_at("2015-01-11")
    assert [times(train), times(valid)] == [[*range(22, 41, 2)], [*range(42, 62, 2)]]


def test_common_coordinates_are_divided_by_their_dates(fields, tmp_path):
    later = xr.Dataset({"b": (("time", "x"), numbered((20, 3)))}, {"time": DAYS[20:60:2]})
    later.to_zarr(tmp_path / "b.zarr", consolidated=False)
    pair = (f"{fields}/a", str(tmp_path / "b.zarr" / "b"))
    whole = ps.ZarrDataset(*pair, dims="time", align="coordinates", output="numpy")
    train, valid = whole.split_at("2015")
    assert [int(a[0]) // 3 for a, _ in train] == [*range(20, 31, 2)]
    assert [int(a[0]) // 3 for a, _ in valid] == [*range(32, 60, 2)]


def test_parts_have_their_fractions_of_elements_or_of_blocks():
    assert np.bincount(divide_elements(100, (0.7, 0.2, 0.1), block=None, seed=0)).tolist() == [70, 20, 10]
    owners = divide_elements(100, (0.8,), block=10, seed=1)
    assert np.bincount(owners).tolist() == [80, 20]
    assert all(len({*owners[at : at + 10]}) == 1 for at in range(0, 100, 10))
    assert owners.tolist() != divide_elements(100, (0.8,), block=10, seed=2).tolist()
    assert np.bincount(divide_elements(25, (2, 1), block=10, seed=0)).sum() == 25
    assert divide_elements(4, (3, 1), block=None, seed=0).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("parts", "block", "words"),
    [
        ((), None, "split needs fractions or counts"),
        ((0.5, 0.6), None, "their sum must be 1"),
        ((3, 4), None, "parts of 3, 4 elements"),
        ((3, 4), 5, "parts of 3, 4 blocks"),
        ((0.3, 0.3, 0.4), 8, "2 blocks are fewer than 3 parts"),
        ((0.5,), 0, "block must be"),
    ],
)
def test_parts_that_do_not_add_up_are_refused(parts, block, words):
    with pytest.raises(Unusable, match=words):
        divide_elements(10, parts, block=block, seed=0)


@st.composite
def cases(draw):
    shape = (draw(st.integers(20, 30)), draw(st.integers(8, 12)), 2)
    chunks = tuple(draw(st.integers(1, size)) for size in shape)
    arguments = {"offsets": draw(st.sampled_from([0, (-1, 0), (0, 3), range(2, 4)])), "stride": draw(st.integers(1, 2))}
    if draw(st.booleans()):
        arguments |= {"patch": {"y": draw(st.integers(1, 3))}, "halo": draw(st.integers(0, 1))}
    dim = draw(st.sampled_from(["time", *arguments.get("patch", ())]))
    how = {"dim": dim, "gap": draw(st.integers(0, 2)), "seed": draw(st.integers(0, 5))}
    how["block"] = draw(st.sampled_from([None, 4, 5, 6]))
    return shape, chunks, arguments, how, draw(st.sampled_from([(0.6,), (0.5, 0.5)]))


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.booleans(), st.sampled_from((1, 2)), st.integers(0, 3))
def test_no_element_is_in_two_parts(case, shuffle, world, stop):
    shape, chunks, arguments, how, fractions = case
    with tempfile.TemporaryDirectory() as folder:
        values = numbered(shape, "i4")
        write(f"{folder}/a", values, ("time", "y", "x"), chunks=chunks)

        def parts(rank=0):
            whole = ps.ZarrDataset(
                f"{folder}/a", dims="time", shuffle=shuffle, output="numpy", place=ps.Place(rank, world), **arguments
            )
            return whole, whole.split(*fractions, **how)

        def loader(rank, number):
            return ps.DataLoader(parts(rank)[1][number], 2, collate_fn=list)

        try:
            whole, first = parts()
        except Unusable as error:
            assume("no sample" not in str(error))
            raise
        every, seen = Counter(map(np.ndarray.tobytes, whole.as_map())), set()
        assert [len(each) for each in parts()[1]] == [len(each) for each in first]
        for number, part in enumerate(first):
            found = Counter()
            for rank in range(world):
                some = loader(rank, number)
                iterator = iter(some)
                batches = [batch for _, batch in zip(range(stop), iterator, strict=False)]
                state = some.state_dict()
                iterator.close()
                again = loader(rank, number)
                again.load_state_dict(state)
                if len(batches) < len(some):
                    batches += [*again]
                found += Counter(each.tobytes() for batch in batches for each in batch)
            wanted = Counter(map(np.ndarray.tobytes, part.as_map()))
            assert not wanted - found
            assert (found - wanted).total() < world
            assert not wanted - every
            axis = ("time", "y").index(how["dim"])
            mine = {int(each) for sample in part.as_map() for each in np.ravel(sample)}
            lines = {number // prod(shape[axis + 1 :]) % shape[axis] for number in mine}
            near = {line + each for line in lines for each in range(-how["gap"], how["gap"] + 1)}
            assert not near & seen
            seen |= lines


def test_parts_of_parts_and_of_patches_stay_apart(fields):
    train, valid = opened(fields, patch={"x": 1}).split_at("2015")
    west, east = train.split(2, 1, dim="x")
    assert {value % 3 for value in elements(west)} == {0, 1}
    assert {value % 3 for value in elements(east)} == {2}
    first, second = valid.split(0.5)
    assert not elements(first) & elements(second)
    assert elements(first) | elements(second) == elements(valid)


def test_state_of_one_part_is_refused_by_the_other(fields):
    train, valid = opened(fields, shuffle=True).split(31, 31)
    state = ps.DataLoader(train, 4).state_dict()
    with pytest.raises(StateMismatch):
        ps.DataLoader(valid, 4).load_state_dict(state)


def test_a_part_is_read_by_chunk_in_workers(fields):
    train, _ = opened(fields, shuffle=True).split(0.8, block=10, seed=3)
    found = [each for batch in ps.DataLoader(train, 4, num_workers=2) for each in batch[:, 0].tolist()]
    assert sorted(found) == sorted(each[0] for each in train.as_map())
    assert train.plan(4).amplification == 1


def test_random_split_and_subsets_read_their_samples(fields):
    whole = ps.ZarrDataset(f"{fields}/a", dims="time", shuffle=True)
    parts = random_split(whole, [0.75, 0.25], generator=torch.Generator().manual_seed(1))
    found = []
    for part in parts:
        loader = ps.DataLoader(part, 4)
        values = [each for batch in loader for each in batch[:, 0].tolist()]
        samples = whole.as_map()
        assert sorted(values) == sorted(float(samples[index][0]) for index in part.indices)
        found += values
        inner = ps.DataLoader(Subset(part, [3, 1, 2]), 4)
        chosen = sorted(float(samples[part.indices[number]][0]) for number in (3, 1, 2))
        assert sorted(each for batch in inner for each in batch[:, 0].tolist()) == chosen
    assert sorted(found) == [float(3 * each) for each in range(62)]
    with pytest.raises(Unusable, match="as_map"):
        parts[0][0]


@pytest.mark.parametrize(
    ("arguments", "indices", "words"),
    [
        ({"offsets": (0, 1)}, [0, 1], "share elements along 'time'"),
        ({"patch": {"x": 2}, "stride": {"x": 1}}, [0], "share elements along 'x'"),
        ({}, [1, 1], "different numbers of samples, from 0 to 61"),
        ({}, [62], "different numbers of samples, from 0 to 61"),
        ({}, [], "must not be empty"),
    ],
)
def test_subsets_that_would_share_values_are_refused(fields, arguments, indices, words):
    with pytest.raises(Unusable, match=words):
        ps.DataLoader(Subset(opened(fields, **arguments), indices), 2)


def test_windows_that_do_not_overlap_may_be_drawn_at_random(fields):
    whole = opened(fields, offsets=(0, 1), stride=2)
    assert sum(len(batch) for batch in ps.DataLoader(Subset(whole, range(0, 31, 3)), 4)) == 11


def test_a_subset_is_not_divided_again(fields):
    loader = ps.DataLoader(Subset(opened(fields), range(10)), 2)
    with pytest.raises(Unusable, match="split the dataset first"):
        loader.dataset.split(0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds: ds.split_at(), "first date or element"),
        (lambda ds: ds.split_at("2015", "2014-12-05"), "borders must ascend"),
        (lambda ds: ds.split_at("2030"), "no element is from 2030 on: the 62 elements are 2014-12-01"),
        (lambda ds: ds.split_at("2014"), "no element is before 2014"),
        (lambda ds: ds.split_at("soon"), "must be a date such as"),
        (lambda ds: ds.split_at(0.5), "a border must be a whole number"),
        (lambda ds: ds.split_at("2015", dim="y"), r"samples extend along \(time\), got 'y'"),
        (lambda ds: ds.split_at(10, gap=-1), "gap must be"),
        (lambda ds: ds.split_at(10, gap=dt.timedelta(-1)), "duration of 0 or more"),
        (lambda ds: ds.split_at(10, gap=np.timedelta64(1, "M")), "months or years"),
        (lambda ds: ds.split(0.5, gap=40), "no sample along 'time' is within a part of 0 elements"),
        (lambda ds: ds.split(0.5, block=1), "no sample along 'time' is within a part"),
    ],
)
def test_invalid_parts_are_refused(fields, call, words):
    with pytest.raises(Unusable, match=words):
        call(opened(fields, offsets=range(9)))


def test_an_element_that_is_selected_twice_is_in_no_two_parts(fields):
    with pytest.raises(Unusable, match="select takes elements of 'time' twice, so parts would share them"):
        opened(fields, select={"time": [0, 1, 1, 2]}).split_at(2)


def test_arrays_without_times_are_divided_by_numbers_alone(tmp_path):
    write(tmp_path / "a", numbered((12, 3)), ("time", "x"), chunks=(4, 3))
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time")
    assert [len(each) for each in dataset.split_at(8)] == [8, 4]
    with pytest.raises(Unusable, match="no array has times along 'time'"):
        dataset.split_at("2015")


def test_an_element_without_a_time_is_on_no_side_of_a_date(tmp_path):
    group = zarr.open_group(tmp_path / "a", mode="w")
    for name, values in (("time", np.array([0, 1, np.nan, 3])), ("a", np.arange(4))):
        group.create_array(name, data=values, dimension_names=("time",))
    group["time"].attrs["units"] = "days since 2015-01-01"
    dataset = ps.ZarrDataset(tmp_path / "a", dims="time")
    with pytest.raises(Unusable, match=r"element 2 has no time \(NaT\)"):
        dataset.split_at("2015-01-02")
    assert [len(each) for each in dataset.split_at(2)] == [2, 2]
