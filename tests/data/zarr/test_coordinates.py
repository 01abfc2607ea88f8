"""Arrays of different times are aligned by their coordinates, as xarray aligns them."""

import json
import pickle
import shutil
import sys
import uuid
import warnings
from itertools import pairwise

import cftime
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import StateMismatch, Unusable
from tests.amounts import examples
from tests.data.zarr.stores import files_of, numbered

HOURS = "hours since 2000-01-01"


def field(name, times, *, start=0, size=3, dtype="f4"):
    """Return a variable whose values all differ, also from those of other variables."""
    values = numbered((len(times), size), dtype) + start
    return xr.Dataset({name: (("time", "x"), values)}, {"time": ("time", np.asarray(times))})


def store(tmp_path, dataset, *, units=HOURS, zarr_format=3, chunks=4):
    path = tmp_path / f"{uuid.uuid4().hex}.zarr"
    sizes = {name: {"chunks": (chunks, *each.shape[1:])} for name, each in dataset.data_vars.items()}
    sizes["time"] = {"units": units, "dtype": "f8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(path, encoding=sizes, zarr_format=zarr_format, consolidated=False)
    return path


def hours(*some):
    return np.datetime64("2000-01-01", "ns") + np.array(some, "m8[h]")


def delivered(first, second, **arguments):
    dataset = ps.ZarrDataset(first, second, dims="time", align="coordinates", output="numpy", **arguments)
    return [*dataset]


def expected(first, second, offsets=(0, 0)):
    """Return the pairs of xarray's inner join; over gaps that are no whole steps there is no sample."""
    a, b = xr.align(first, second, join="inner")
    x, y = a["a"].to_numpy(), b["b"].to_numpy()
    return [(x[n + offsets[0]], y[n + offsets[1]]) for n in range(len(x)) if n + max(offsets) < len(x)]


def equal(found, wanted):
    assert len(found) == len(wanted)
    for (x, y), (of_x, of_y) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, of_x)
        np.testing.assert_array_equal(y, of_y)


@st.composite
def times(draw):
    """Draw sorted times of some step, with some of them missing; some descend."""
    step = draw(st.sampled_from((1, 2, 3, 6)))
    start, count = step * draw(st.integers(-4, 4)), draw(st.integers(1, 24))
    found = [start + step * each for each in range(count) if draw(st.integers(0, 7))] or [start]
    return found[::-1] if draw(st.booleans()) else found


@given(times(), times(), st.sampled_from((2, 3)), st.sampled_from((HOURS, "days since 1999-12-30")), st.integers(1, 9))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_samples_are_those_of_an_inner_join_by_xarray(tmp_path, first, second, zarr_format, units, chunks):
    a, b = field("a", hours(*first)), field("b", hours(*second), start=5000)
    paths = [store(tmp_path, a, zarr_format=zarr_format, chunks=chunks), store(tmp_path, b, chunks=chunks, units=units)]
    where = [path / name for path, name in zip(paths, "ab", strict=True)]
    try:
        if set(first) & set(second):
            equal(delivered(*where), expected(a, b))
        else:
            with pytest.raises(Unusable, match="no coordinate along 'time' in common"):
                delivered(*where)
    finally:
        for path in paths:
            shutil.rmtree(path)


def test_rollouts_count_common_steps_and_reach_over_no_gap(tmp_path):
    a, b = field("a", hours(*range(48))), field("b", hours(*[t for t in range(-12, 60, 6) if t != 18]), start=5000)
    first, second = store(tmp_path, a) / "a", store(tmp_path, b) / "b"
    found = delivered(first, second, target_offsets=(0, 1))
    common = [t for t in range(0, 48, 6) if t != 18]
    wanted = [(s, t) for s, t in pairwise(common) if t - s == 6]
    assert [int(x[0] / 3) for x, _ in found] == [s for s, _ in wanted]  # a row of each hour
    of_b = [*range(-12, 18, 6), *range(24, 60, 6)]
    for (_, y), (s, t) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(y, b["b"].to_numpy()[[of_b.index(s), of_b.index(t)]])


def test_select_and_valid_count_common_coordinates(tmp_path):
    a, b = field("a", hours(*range(20))), field("b", hours(*range(5, 25)), start=5000)
    first, second = store(tmp_path, a) / "a", store(tmp_path, b) / "b"
    wanted = expected(a, b)
    equal(delivered(first, second, select={"time": slice(1, None, 2)}), wanted[1::2])
    valid = np.arange(15) % 3 == 0
    equal(delivered(first, second, valid=valid), wanted[::3])
    dataset = ps.ZarrDataset(first, second, dims="time", align="coordinates")
    assert dataset.coordinates["time"].tolist() == [*range(5, 20)]


def test_shuffled_ranks_read_each_sample_once_and_each_chunk_once(tmp_path):
    a, b = field("a", hours(*range(96)), size=50_000), field("b", hours(*range(0, 120, 6)), start=7, size=50_000)
    first, second = store(tmp_path, a, chunks=8) / "a", store(tmp_path, b, chunks=2) / "b"
    dataset = ps.ZarrDataset(first, second, dims="time", align="coordinates", shuffle=True, output="numpy")
    found = sorted((int(x[0]), int(y[0])) for x, y in dataset)
    assert found == [(int(x[0]), int(y[0])) for x, y in expected(a, b)]
    plan = dataset.plan(2)
    assert plan.samples == 16
    assert plan.amplification == 1
    of = "96 (0.0 to 95.0 hours since 2000-01-01), 20 (0.0 to 114.0 hours since 2000-01-01)"
    assert plan.aligned == (f"time: 16 common coordinates of {of}",)
    assert "16 common coordinates" in repr(plan)
    assert "16 common coordinates" in plan.to_html()


def test_a_group_has_its_coordinate_and_one_array_alone_has_gaps_left_out(tmp_path):
    a = field("a", hours(0, 1, 2, 5, 6)).assign(c=lambda each: each["a"] + 100)
    dataset = ps.ZarrDataset(store(tmp_path, a), dims="time", offsets=(0, 1), align="coordinates", output="numpy")
    assert [int(each["a"][0, 0] / 3) for each in dataset] == [0, 1, 3]
    assert [int(each["c"][0, 0] - 100) // 3 for each in dataset] == [0, 1, 3]


def test_references_have_their_coordinates(tmp_path):
    a, b = field("a", hours(*range(10))), field("b", hours(*range(4, 12)), start=5000)
    where = []
    for dataset in (a, b):
        folder = store(tmp_path, dataset)
        entries = {
            path: data.decode() if path.endswith("zarr.json") else [f"{folder}/{path}"]
            for path, data in files_of(folder).items()
        }
        document = tmp_path / f"{uuid.uuid4().hex}.json"
        document.write_text(json.dumps(entries))
        where.append(document)
    equal(delivered(where[0] / "a", where[1] / "b"), expected(a, b))


def test_open_arrays_of_a_memory_store_have_their_coordinates():
    root = zarr.open_group(zarr.storage.MemoryStore())
    for name, shape in {"a": (6, 2), "time": (6,)}.items():
        values, dims = numbered(shape), ("time", "x")[: len(shape)]
        root.create_array(name, data=values, chunks=shape, dimension_names=dims)
    dataset = ps.ZarrDataset(root["a"], dims="time", align="coordinates", output="numpy")
    assert dataset.coordinates["time"].tolist() == [*range(6)]
    assert len([*dataset]) == 6


@pytest.fixture
def alone(tmp_path):
    zarr.create_array(str(tmp_path / "alone"), data=numbered((6, 2)), chunks=(2, 2), dimension_names=("time", "x"))
    return tmp_path / "alone"


def test_an_array_without_a_coordinate_is_refused(alone):
    with pytest.raises(Unusable, match="this array has no coordinate 'time'"):
        ps.ZarrDataset(alone, dims="time", align="coordinates")
    zarr.open_group(str(alone.parent / "time"), mode="w")
    with pytest.raises(Unusable, match="this array has no coordinate 'time'"):
        ps.ZarrDataset(alone, dims="time", align="coordinates")


@pytest.mark.parametrize(
    ("values", "dims", "words"),
    [
        (np.zeros((6, 1)), ("time", "y"), "'time' is not a coordinate: it has the shape"),
        (np.zeros(6), ("other",), "'time' is not a coordinate: it has the shape"),
        (np.arange(5), ("time",), "has 5 values, but the array 6 elements"),
    ],
    ids=["two dimensions", "another dimension", "another length"],
)
def test_array_not_usable_as_a_coordinate_is_refused(alone, values, dims, words):
    zarr.create_array(str(alone.parent / "time"), data=values, dimension_names=dims)
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(alone, dims="time", align="coordinates")


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (("hours since 2000-01-01", "hPa"), "differ in units and cannot be compared"),
        (("Pa", "hPa"), "differ in units and cannot be compared"),
        (("hours since 2000-01-01", "hours since yesterday"), "cannot decode times in .hours since yesterday."),
    ],
    ids=["time and pressure", "two pressures", "no time"],
)
def test_units_that_cannot_be_compared_are_refused(tmp_path, units, words):
    where = [beside(tmp_path, np.arange(3), units=unit) for unit in units]
    with pytest.raises(Unusable, match=words):
        ps.ZarrDataset(*where, dims="time", align="coordinates")


def beside(tmp_path, values, dim="time", **attributes):
    """Write an array with a coordinate of some values beside it; return its path."""
    folder = tmp_path / uuid.uuid4().hex
    zarr.create_array(str(folder / "a"), data=numbered((len(values), 2)), dimension_names=(dim, "x"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr: durations are no part of the specification
        zarr.create_array(str(folder / dim), data=values, dimension_names=(dim,), attributes=attributes)
    return folder / "a"


def of_calendar(tmp_path, calendar, *, units="days since 2000-01-01", count=6):
    return beside(tmp_path, np.arange(count), units=units, calendar=calendar)


@pytest.mark.parametrize(
    "calendars", [("noleap", "365_day"), ("360_day", "360_day"), ("366_day", "ALL_LEAP"), ("", "gregorian")], ids=str
)
def test_times_with_equivalent_calendar_names_are_compared(tmp_path, calendars):
    first, second = (of_calendar(tmp_path, each, count=6 - n) for n, each in enumerate(calendars))
    assert len(delivered(first, second)) == 5


@pytest.mark.parametrize("calendars", [("noleap", "360_day"), ("noleap", "standard"), ("julian", "")], ids=str)
def test_times_of_several_calendars_are_refused(tmp_path, calendars):
    with pytest.raises(Unusable, match=r"use several calendars, with different days: '(noleap|julian)'"):
        delivered(*(of_calendar(tmp_path, each) for each in calendars))


def test_times_of_another_calendar_in_two_units_are_refused_without_cftime(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cftime", None)
    units = ("days since 2000-01-01", "days since 2000-02-01")
    with pytest.raises(Unusable, match="of the calendar 'noleap'"):
        delivered(*(of_calendar(tmp_path, "noleap", units=each) for each in units))


def test_times_of_another_calendar_in_two_units_are_joined_aligned_and_divided(tmp_path):
    first, later, apart = (
        of_calendar(tmp_path, "noleap", units=f"days since {day}", count=count)
        for day, count in (("2000-01-01", 365), ("2001-01-01", 10), ("2001-01-05", 10))
    )
    with pytest.raises(Unusable, match=r"gap along 'time': .* begins at 369 days since 2000-01-01, where"):
        ps.ZarrDataset([first, apart], along="time", dims="time")
    whole = of_calendar(tmp_path, "noleap", count=400)
    assert len(delivered(whole, of_calendar(tmp_path, "noleap", units="hours since 2001-01-01", count=48))) == 2
    both = ps.ZarrDataset([first, later], along="time", dims="time", offsets=(0, 1))
    for border in ("2001", cftime.DatetimeNoLeap(2001, 1, 1)):
        assert [len(part) for part in both.split_at(border)] == [364, 9]


def test_coordinates_count_in_the_memory(tmp_path):
    one, two = (of_calendar(tmp_path, "noleap", count=n) for n in (20_000, 19_000))
    with pytest.raises(Unusable, match="to compare the 20,000 values of this coordinate takes 800,000 bytes"):
        ps.ZarrDataset(one, two, dims="time", align="coordinates", memory_bytes=700_000)
    with pytest.raises(Unusable, match=r"to compare the 19,000 values .* memory_bytes leaves 200,000"):
        ps.ZarrDataset(one, two, dims="time", align="coordinates", memory_bytes=1_000_000)
    found = ps.ZarrDataset(one, two, dims="time", align="coordinates", window_bytes=1).contents.arrangement
    assert found.aligned.size_bytes == 19_000 * 8
    assert found.kept_bytes == sum(map(len, found.aligned.elements[0].values())) * 8 + (20_000 + 19_000) * 2 * 4


@pytest.mark.parametrize("units", ["", "days"])
def test_durations_and_numbers_are_not_compared(tmp_path, units):
    where = [
        beside(tmp_path, np.arange(3, dtype="m8[h]"), "step"),
        beside(tmp_path, np.arange(3), "step", units=units),
    ]
    with pytest.raises(Unusable, match=r"differ in units and cannot be compared: no units .timedelta64.h.. in"):
        ps.ZarrDataset(*where, dims="step", align="coordinates")


def test_a_coordinate_of_another_length_is_not_read(alone):
    zarr.create_array(str(alone.parent / "time"), data=np.arange(5), chunks=(5,), dimension_names=("time",))
    (alone.parent / "time" / "c" / "0").write_bytes(b"damaged")
    with pytest.raises(Unusable, match="has 5 values, but the array 6 elements"):
        ps.ZarrDataset(alone, dims="time", align="coordinates")


def test_other_coordinates_are_another_state(tmp_path):
    """Also where shapes, types and the number of samples are the same."""
    a = store(tmp_path, field("a", hours(*range(12)))) / "a"
    states = []
    for first in (0, 2, 4):
        second = store(tmp_path, field("b", hours(*range(first, first + 8)), start=5000)) / "b"
        loader = ps.DataLoader(ps.ZarrDataset(a, second, dims="time", align="coordinates"), 2, decode_threads=1)
        next(iter(loader))
        states.append((loader, loader.state_dict()))
    (loader, own), (_, other), _ = states
    loader.load_state_dict(own)
    with pytest.raises(StateMismatch):
        loader.load_state_dict(other)


def test_later_coordinates_are_another_state_where_samples_take_the_same_elements(tmp_path):
    now, later = (
        [store(tmp_path / str(first), field(name, hours(*range(first, first + 6)))) / name for name in "ab"]
        for first in (0, 100)
    )
    one, other = (
        ps.DataLoader(ps.ZarrDataset(*pair, dims="time", align="coordinates"), 2, decode_threads=1)
        for pair in (now, later)
    )
    with pytest.raises(StateMismatch):
        other.load_state_dict(one.state_dict())


def test_words_for_align_are_index_and_coordinates(alone):
    with pytest.raises(Unusable, match="align must be 'index' or 'coordinates', got 'time'"):
        ps.ZarrDataset(alone, dims="time", align="time")


def with_gaps(tmp_path):
    """Return two arrays of which 12 times of 20 are common, and the samples of both at these."""
    a, b = field("a", hours(*range(20))), field("b", hours(*range(3, 9), *range(11, 17), 30), start=5000)
    return (store(tmp_path, a) / "a", store(tmp_path, b, units="days since 1999-12-30") / "b"), expected(a, b)


def test_random_access_numbers_the_common_coordinates(tmp_path):
    where, wanted = with_gaps(tmp_path)
    samples = ps.ZarrDataset(*where, dims="time", align="coordinates", output="numpy").as_map()
    assert len(samples) == len(wanted) == 12
    order = [7, 0, 11, 5, 6]
    equal(samples.__getitems__(order), [wanted[number] for number in order])
    equal([samples[-1]], wanted[-1:])
    equal([pickle.loads(pickle.dumps(samples))[6]], wanted[6:7])


def test_a_worker_of_a_fork_server_aligns_as_its_parent_did(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    where, wanted = with_gaps(tmp_path)
    dataset = ps.ZarrDataset(*where, dims="time", align="coordinates")
    for path in where:
        shutil.rmtree(path.parent / "time")  # nobody reads the coordinates anew
    loader = ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="forkserver", timeout=120)
    batches = [(x.numpy(), y.numpy()) for x, y in loader]
    equal([pair for batch in batches for pair in zip(*batch, strict=True)], wanted)


def test_different_times_are_refused_without_an_align_option(tmp_path):
    first = store(tmp_path, field("a", hours(*range(8))))
    later = store(tmp_path, field("b", hours(*range(4), *range(24, 28)), start=100), units="days since 1999-12-30")
    with pytest.raises(Unusable, match=r"different times along 'time': element 4 is 2000-01-01T04.* and 2000-01-02 in"):
        ps.ZarrDataset(first, later, dims="time")
    pairs = [*ps.ZarrDataset(first, later, dims="time", align="index", output="numpy")]
    assert np.array_equal([b["b"] - a["a"] for a, b in pairs], np.full((8, 3), 100))
    assert len([*ps.ZarrDataset(first, later, dims="time", align="coordinates")]) == 4
    for equal_part in ({"select": {"time": slice(0, 4)}}, {"valid": np.arange(8) < 4}):
        assert len([*ps.ZarrDataset(first, later, dims="time", **equal_part)]) == 4


def test_times_of_different_lengths_are_refused_with_both_shapes(tmp_path):
    long, short = (store(tmp_path, field("a", hours(*range(count)))) for count in (9, 5))
    with pytest.raises(Unusable, match=r"along 'time': .* has the shape \(9, 3\).* has the shape \(5, 3\)"):
        ps.ZarrDataset(f"{long}/a", f"{short}/a", dims="time", offsets=range(2))


def test_samples_across_a_time_gap_are_refused_without_an_align_option(tmp_path):
    path = store(tmp_path, field("a", hours(0, 1, 2, 3, 9, 10, 11)))
    for arguments in ({"offsets": (0, 1)}, {"targets": path, "target_offsets": 1}, {"offsets": (-1, 0)}):
        with pytest.raises(Unusable, match=r"over a gap along 'time': elements 3 to 4 are 3\.0 hours since .* to 9\.0"):
            ps.ZarrDataset(path, dims="time", **arguments)
        assert len([*ps.ZarrDataset(path, dims="time", align="index", **arguments)]) == 6
        assert len([*ps.ZarrDataset(path, dims="time", align="coordinates", **arguments)]) == 5
    for count, without in ((3, {"select": {"time": slice(0, 4)}}), (4, {"valid": np.arange(7) != 4})):
        assert len([*ps.ZarrDataset(path, dims="time", offsets=(0, 1), **without)]) == count
    assert len([*ps.ZarrDataset(path, dims="time")]) == 7


@pytest.mark.parametrize("units", [None, "m"])
def test_coordinates_without_time_units_skip_the_gap_check(tmp_path, units):
    path = tmp_path / "l.zarr"
    group = zarr.open_group(path, mode="w")
    level = group.create_array("level", data=np.array([1000, 925, 850, 500]), dimension_names=("level",))
    level.attrs["units"] = units
    group.create_array("t", data=numbered((4, 3)), dimension_names=("level", "x"))
    assert len([*ps.ZarrDataset(path / "t", dims="level", offsets=(0, 1))]) == 3


def test_times_that_cannot_be_read_beside_an_array_are_none_of_its_business(tmp_path):
    path = store(tmp_path, field("a", hours(*range(8))))
    (path / "time" / "zarr.json").write_text("{")
    assert len([*ps.ZarrDataset(path / "a", dims="time", offsets=(0, 1))]) == 7


def test_time_comparison_over_many_chunks_is_skipped_with_a_warning(tmp_path):
    path = tmp_path / "m.zarr"
    group = zarr.open_group(path, mode="w")
    time = group.create_array("time", shape=(2000,), chunks=(1,), dtype="i4", dimension_names=("time",))
    time.attrs["units"] = HOURS
    group.create_array("a", data=numbered((2000,)), dimension_names=("time",))
    with pytest.warns(UserWarning, match="times of 2,000 chunks are not compared") as warned:
        ps.ZarrDataset(path / "a", dims="time", offsets=(0, 1))
    assert warned[0].filename == __file__
