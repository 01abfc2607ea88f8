"""Selections of xarray, lazy or of Dask, are read by their source as xarray reads them; computed values are refused."""

import tempfile
import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import Unusable
from tests.amounts import examples
from tests.data.zarr.stores import numbered

pytest.importorskip("dask")
SHAPE = (20, 7, 4)


def written(path):
    dataset = xr.Dataset(
        {"t": (("time", "y", "x"), numbered(SHAPE)), "static": (("y", "x"), numbered(SHAPE[1:]))},
        {"time": np.datetime64("2000-01-01", "ns") + np.arange(20) * np.timedelta64(6, "h"), "y": np.arange(7) * 10},
    )
    dataset.t.attrs["scale_factor"] = 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(path, encoding={"t": {"chunks": (5, 3, 4)}}, consolidated=False)
    return str(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return written(tmp_path_factory.mktemp("traced") / "a.zarr")


def opened(store, chunks="auto"):
    return xr.open_zarr(store, consolidated=False, chunks=chunks)


def samples(given, **arguments):
    return [*ps.ZarrDataset(given, output="numpy", **{"dims": "time"} | arguments)]


def index(draw, size, *, drops, lists):
    kinds = ["all", "slice", "back"] + ["one"] * drops + ["list"] * lists
    kind = draw(st.sampled_from(kinds))
    if kind == "list":
        return draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=5))
    if kind == "one":
        return draw(st.integers(-size, size - 1))
    first, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
    return {"all": slice(None), "slice": slice(first, None, step), "back": slice(first, None, -step)}[kind]


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["auto", None, {"time": 10}]))
def test_selections_are_read_as_xarray_reads_them(store, data, chunks):
    whole = opened(store, chunks)
    for _ in range(data.draw(st.integers(1, 2))):
        sizes = dict(whole.t.sizes)
        lists = chunks is None
        whole = whole.isel(
            {name: index(data.draw, size, drops=name != "time", lists=lists) for name, size in sizes.items()}
        )
    # Without chunks, xarray keeps what it has read.
    found, wanted = samples(whole.t), whole.t.to_numpy()
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("chunks", ["auto", None])
def test_labels_and_whole_datasets_are_selected(store, chunks):
    some = opened(store, chunks).sel(time=slice("2000-01-02", "2000-01-03"), y=slice(20, 60))
    found, pair = samples(some), samples(some, targets=some.t, offsets=0, target_offsets=(1, 2))
    assert len(found) == 8
    assert np.array_equal(found[2]["t"], some.t.to_numpy()[2])
    assert np.array_equal(found[2]["static"], some.static.to_numpy())
    assert np.array_equal(pair[3][1], some.t.to_numpy()[[4, 5]])


@pytest.mark.parametrize("chunks", ["auto", None])
def test_values_that_xarray_does_not_decode_stay_as_stored(store, chunks):
    raw = xr.open_zarr(store, consolidated=False, chunks=chunks, mask_and_scale=False)
    [first, *_], [decoded, *_] = samples(raw), samples(opened(store, chunks))
    assert np.array_equal(first["t"], raw.t[0].to_numpy())
    assert np.array_equal(decoded["t"], first["t"] * 0.5)
    assert np.array_equal(samples(raw.t, decode_cf=True)[0], decoded["t"])


def test_select_counts_the_elements_of_the_selection(store):
    some = opened(store, None).t.isel(time=slice(4, 16, 2), y=[5, 1, 3])
    found = samples(some, select={"time": slice(1, 4), "y": [2, 0]})
    last = samples(some, select={"y": -1})
    train, valid = ps.ZarrDataset(some, dims="time", output="numpy").split_at("2000-01-03")
    assert [len(train), len(valid)] == [2, 4]
    assert np.array_equal(np.stack(found), some.isel(time=slice(1, 4), y=[2, 0]).to_numpy())
    assert np.array_equal(np.stack(last), some.isel(y=-1).to_numpy())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ds: ds.t + 1, r"computed by Dask \(add\)"),
        (lambda ds: ds.t.where(ds.t > 3), "computed by Dask"),
        (lambda ds: ds.t.mean("time"), "computed by Dask"),
        (lambda ds: ds.t.T, "computed by Dask"),
        (lambda ds: ds.t.chunk(time=5).chunk(time=7), "computed by Dask"),
        (lambda ds: ds.t.isel(y=[1, 3]), r"computed by Dask \(.*a list of elements"),
        (lambda ds: xr.concat([ds.t, ds.t], "time"), "computed by Dask"),
        (lambda ds: ds.t.load(), "not a Zarr array"),
        (lambda ds: ds.t.astype("i8"), "computed by Dask"),
        (lambda ds: ds.t.expand_dims("member"), r"computed by Dask \(expand_dims"),
        (lambda ds: ds.t.isel(time=xr.DataArray([1, 2], dims="p"), y=xr.DataArray([1, 2], dims="p")), "pass the URL"),
    ],
    ids=["add", "where", "mean", "transpose", "chunk", "list", "concat", "load", "astype", "new", "points"],
)
def test_computed_variables_are_refused_by_name(store, make, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = make(opened(store))
    with pytest.raises(Unusable, match=words) as error:
        ps.ZarrDataset(value)
    assert "pass the URL of its Zarr store instead" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"valid": np.ones(20, bool)}, "valid= counts all elements"),
        ({"align": "coordinates"}, 'align="coordinates" counts all elements'),
        ({"select": {"time": 12}}, "select goes beyond 'time'"),
        ({"select": {"x": 0}}, "select names 'x', which has only one element in the selection of xarray"),
    ],
)
def test_arguments_that_count_other_elements_are_refused(store, arguments, words):
    with pytest.raises(Unusable, match=words):
        samples(opened(store).t.isel(time=slice(3, 9), x=1), **arguments)


def test_samples_and_targets_of_different_selections_are_refused(store):
    whole = opened(store).t
    for first, second in (
        (whole, whole.isel(time=slice(1, None))),
        (whole.isel(y=slice(1, 2)), whole.isel(y=slice(2, 3))),
    ):
        with pytest.raises(Unusable, match="different selections along"):
            ps.ZarrDataset(first, second, dims="time")
    with pytest.raises(Unusable, match="along= joins whole objects"):
        ps.ZarrDataset([whole.isel(time=slice(3)), whole.isel(time=slice(3, 6))], along="time", dims="time")


def test_a_selection_of_no_elements_is_refused():
    with tempfile.TemporaryDirectory() as folder, pytest.raises(Unusable, match="select leaves no element of 'time'"):
        ps.ZarrDataset(opened(written(f"{folder}/a")).t.isel(time=slice(0)))
