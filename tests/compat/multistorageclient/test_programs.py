"""The programs of Multi-Storage Client's users run on moto, as processes of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import penstock as ps
from penstock.interop.zarr import Store
from tests.edges.launch import program

EXAMPLES = Path(__file__).parents[3] / "examples" / "compat"
TAS = "CMIP6/ScenarioMIP/NOAA-GFDL/GFDL-ESM4/ssp119/r1i1p1f1/day/tas/gr1/v20180701"
DAYS, LAT, LON = 32, 18, 28  # of 31390, 180, 288


@pytest.fixture(scope="module")
def variables(server):
    """Return the environment of a machine with the configuration, and the data where the documents have it."""
    client = server.client()
    for bucket in ("cmip6-pds", "cwb-diffusions"):
        client.create_bucket(Bucket=bucket)
    client.put_bucket_acl(Bucket="cmip6-pds", ACL="public-read")
    keys = {"access_key": "testing", "secret_key": "testing"}
    options = ps.S3Options(endpoint=server.endpoint, region="us-west-2", **keys)
    tas = np.arange(DAYS * LAT * LON, dtype="f4").reshape(DAYS, LAT, LON)
    data = xarray.Dataset({"tas": (("time", "lat", "lon"), tas)}, {"height": 2.0, "lat": np.arange(18.0)})
    data.to_zarr(
        Store(f"s3://cmip6-pds/{TAS}", store=options),
        zarr_format=2,
        consolidated=True,
        encoding={"tas": {"chunks": (8, 18, 28)}},
    )
    group = zarr.open_group(
        Store("s3://cwb-diffusions/2023-01-24-cwb-4years.zarr", store=options), mode="w", zarr_format=2
    )
    group.create_array("cwb", data=np.full((2, 4, 4), 3.0), chunks=(1, 4, 4))
    zarr.consolidate_metadata(group.store)
    return {**server.environment, "MSC_CONFIG": str(EXAMPLES / "msc_config.yaml"), "MSC_ENDPOINT": server.endpoint}


def printed(ended):
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_zarr_opens_profiles(variables):
    out = printed(program(EXAMPLES / "msc_zarr.py", **variables))
    assert f"tas ({DAYS}, {LAT}, {LON}) float32" in out
    assert out.endswith("3.0\n")


def test_a_training_reads_in_forked_workers_and_saves(variables):
    out = printed(program(EXAMPLES / "msc_training.py", **variables))
    assert f"warmest {float(LAT * LON - 1)}\nfirst run\n" in out
    assert "['msc://cwb-diffusions/runs/1/log.txt', 'msc://cwb-diffusions/runs/1/model.pt']" in out
