"""xarray over a Store: a climate model's output behind a profile, in DataLoader workers too; files of NetCDF."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
import zarr

import penstock as ps
from penstock.interop.zarr import Store

DAYS, LATITUDES, LONGITUDES = 313, 18, 28  # of CMIP6's daily tas, (31390, 180, 288)


@pytest.fixture(scope="module")
def tas():
    random = np.random.default_rng(0)
    values = (280 + 10 * random.standard_normal((DAYS, LATITUDES, LONGITUDES))).astype("f4")
    values[5, 3] = np.nan
    coordinates = {
        "time": pd.date_range("1850-01-01", periods=DAYS, unit="us"),
        "lat": np.linspace(-89.5, 89.5, LATITUDES),
        "lon": np.linspace(0.5, 359.5, LONGITUDES),
    }
    attributes = {"units": "K", "standard_name": "air_temperature"}
    return xr.Dataset({"tas": (("time", "lat", "lon"), values, attributes)}, coordinates, {"source_id": "CESM2"})


@pytest.fixture(scope="module")
def environment(moto_server):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in moto_server.environment.items():
            patch.setenv(name, value)
        moto_server.client().create_bucket(Bucket="cmip6")
        yield


@pytest.fixture
def profile(environment, tmp_path, monkeypatch, moto_server):  # noqa: ARG001  the keys are in the environment
    """Have Multi-Storage Client's configuration name the bucket."""
    path = tmp_path / "msc.yaml"
    path.write_text(f"""
profiles:
  cmip6:
    storage_provider:
      type: s3
      options: {{base_path: cmip6/CMIP6, region_name: us-east-1, endpoint_url: "{moto_server.endpoint}"}}
    credentials_provider:
      type: S3Credentials
      options: {{access_key: "${{AWS_ACCESS_KEY_ID}}", secret_key: "${{AWS_SECRET_ACCESS_KEY}}"}}
""")
    monkeypatch.setenv("MSC_CONFIG", str(path))
    return "msc://cmip6"


@pytest.fixture
def written(tas, profile):
    """Write it as CMIP6's buckets have it: version 2, consolidated, a month in a chunk."""
    encoding = {"tas": {"chunks": (32, LATITUDES, LONGITUDES)}}
    tas.to_zarr(Store(f"{profile}/CESM2/tas.zarr"), mode="w", zarr_format=2, consolidated=True, encoding=encoding)
    return f"{profile}/CESM2/tas.zarr"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.usefixtures("environment")
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part in the Zarr format 3")
def test_a_dataset_is_written_and_read_as_it_was(tas, zarr_format, consolidated):
    store = Store(f"s3://cmip6/{zarr_format}-{consolidated}.zarr")
    tas.to_zarr(store, mode="w", zarr_format=zarr_format, consolidated=consolidated)
    found = xr.open_zarr(Store(store.url, read_only=True), chunks=None, consolidated=consolidated)
    xr.testing.assert_identical(found.load(), tas)
    more = tas.assign_coords(time=tas.time + np.timedelta64(DAYS, "D"))
    more.to_zarr(store, append_dim="time", consolidated=consolidated)
    tas.isel(time=slice(0, 4)).drop_vars(["lat", "lon"]).to_zarr(
        store, region={"time": slice(4, 8)}, consolidated=consolidated
    )
    found = xr.open_zarr(store, chunks=None, consolidated=consolidated).tas.load()
    assert found.sizes["time"] == 2 * DAYS
    assert np.array_equal(found[4:8], tas.tas[:4], equal_nan=True)
    assert np.array_equal(found[DAYS:], tas.tas, equal_nan=True)


class Windows(torch.utils.data.Dataset):
    """Weeks of a variable; opened where it is read."""

    def __init__(self, url):
        self.store = Store(url, read_only=True)
        self.days = xr.open_zarr(self.store, chunks=None).sizes["time"]

    def __len__(self):
        return self.days // 7

    def __getitem__(self, number):
        data = xr.open_zarr(self.store, chunks=None)
        return torch.from_numpy(data.tas.isel(time=slice(7 * number, 7 * number + 7)).to_numpy())


@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
def test_a_profile_of_multi_storage_client_is_read_in_workers(tas, written, method, workers):
    windows = Windows(written)
    assert torch.equal(torch.nan_to_num(windows[0]), torch.nan_to_num(torch.from_numpy(tas.tas.to_numpy()[:7])))
    loader = torch.utils.data.DataLoader(windows, batch_size=4, num_workers=workers, multiprocessing_context=method)
    found = torch.cat(list(loader)).flatten(0, 1).numpy()
    assert np.array_equal(found, tas.tas.to_numpy()[: len(windows) * 7], equal_nan=True)


def test_a_dataset_tree_of_one_variable_is_read_by_its_path(tas, profile):
    tas.to_zarr(Store(f"{profile}/tree.zarr"), group="historical/day", mode="w", zarr_format=3, consolidated=False)
    found = xr.open_zarr(Store(f"{profile}/tree.zarr"), group="historical/day", chunks=None, consolidated=False)
    xr.testing.assert_identical(found.load(), tas)
    assert zarr.open_group(Store(f"{profile}/tree.zarr/historical"), mode="r")["day/tas"].shape == tas.tas.shape


@pytest.mark.usefixtures("environment")
def test_files_of_netcdf_are_opened_as_one(tas, tmp_path):
    urls = [f"s3://cmip6/nc/{number}.nc" for number in range(3)]
    for number, url in enumerate(urls):
        part = tas.isel(time=slice(100 * number, 100 * number + 100))
        part.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
        ps.copy(str(tmp_path / f"{number}.nc"), url)
    files = [ps.open(url) for url in urls]
    with xr.open_mfdataset(files, engine="h5netcdf") as found:
        assert np.array_equal(found.tas.to_numpy(), tas.tas.to_numpy()[:300], equal_nan=True)
        assert found.time.equals(tas.time[:300])
