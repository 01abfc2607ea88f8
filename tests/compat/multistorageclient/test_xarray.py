"""``xarray.open_zarr`` by URL."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from penstock.compat import multistorageclient as msc
from penstock.interop.zarr import Store


@pytest.mark.parametrize("version", [2, 3])
def test_a_dataset_is_opened(base, version):
    data = xarray.Dataset({"tas": (("time", "lat"), np.arange(12.0).reshape(3, 4))}, {"lat": [0.0, 1.0, 2.0, 3.0]})
    data.to_zarr(Store(f"{base}/d.zarr"), zarr_format=version, consolidated=version == 2)
    found = msc.xarray.open_zarr(f"{base}/d.zarr", consolidated=version == 2, msc_max_workers=4)
    assert found["tas"].sel(lat=2.0).values.tolist() == [2, 6, 10]
