"""Arrays and groups, and the metadata of their copies."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from penstock.errors import Damaged, NotFound, Unusable
from penstock.interop.zarr import Store
from penstock.interop.zarr.documents import copying, opened
from penstock.source import open_source

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part in the Zarr format 3")


def group(zarr_format, *, consolidated):
    store = MemoryStore()
    root = zarr.open_group(store, mode="w", zarr_format=zarr_format, attributes={"title": "all"})
    inner = root.create_group("inner", attributes={"x": [1, 2]})
    names = {"dimension_names": ("time", "y")} if zarr_format == 3 else {}
    array = inner.create_array("tas", shape=(6, 4), chunks=(3, 4), dtype="f4", fill_value=np.nan, **names)
    array.attrs["units"] = "K"
    root.create_array("lonely", shape=(), dtype="i8")
    if consolidated:
        zarr.consolidate_metadata(store)
    return zarr.open(store, mode="r")


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_metadata_of_a_copy_is_that_of_the_source(zarr_format, consolidated):
    found = copying(group(zarr_format, consolidated=consolidated), {"inner/tas": (1, 4)}, None, "gzip:1")
    assert [*found.arrays] == ["inner/tas", "lonely"]
    root = "zarr.json" if zarr_format == 3 else (".zmetadata" if consolidated else ".zgroup")
    assert root in [*found.objects][-3:]
    assert all("/" not in key for key in [*found.objects][-(1 if zarr_format == 3 else 2) :])
    store = MemoryStore()
    for key, data in found.objects.items():
        store._store_dict[key] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)
    again = zarr.open(store, mode="r")
    assert again.metadata.zarr_format == zarr_format
    assert (again.metadata.consolidated_metadata is not None) == consolidated
    assert (again.attrs.asdict(), again["inner"].attrs.asdict()) == ({"title": "all"}, {"x": [1, 2]})
    assert (again["inner/tas"].chunks, again["inner/tas"].attrs.asdict()) == ((1, 4), {"units": "K"})
    assert np.isnan(again["inner/tas"].metadata.fill_value)
    assert again["lonely"].shape == ()


def test_format_2_becomes_format_3_as_xarray_means_it():
    store = MemoryStore()
    root = zarr.open_group(store, mode="w", zarr_format=2)
    array = root.create_array("tas", shape=(6, 4), chunks=(3, 4), dtype=">f4", fill_value=-9.5)
    array.attrs.update({"_ARRAY_DIMENSIONS": ["time", "y"], "units": "K"})
    root.create_array("count", shape=(4,), dtype="i4", fill_value=-1).attrs["_ARRAY_DIMENSIONS"] = ["y"]
    found = copying(zarr.open(store, mode="r"), {"time": 1}, {"time": 3}, None, 3)
    document = json.loads(found.objects["tas/zarr.json"])
    assert document["dimension_names"] == ["time", "y"]
    assert document["attributes"] == {"units": "K", "_FillValue": "AAAAAAAAI8A="}  # xarray's: base64 of a double
    assert document["fill_value"] == -9.5
    assert document["chunk_grid"]["configuration"]["chunk_shape"] == [3, 4]
    assert json.loads(found.objects["count/zarr.json"])["attributes"]["_FillValue"] == -1
    with pytest.raises(Unusable, match="to format 2"):
        copying(group(3, consolidated=False), None, None, None, 2)


def test_opening_a_missing_or_damaged_hierarchy_raises_an_error():
    url = f"memory://hierarchy/{uuid.uuid4().hex}"
    with pytest.raises(NotFound, match="no zarr array or group"):
        opened(url, None)
    source, key = open_source(url)
    for damage in (b"{", b'{"zarr_format": 3, "node_type": "array"}', b'{"zarr_format": 9}'):
        source.put(f"{key}/zarr.json", damage)
        with pytest.raises((Damaged, NotFound)):
            opened(url, None)
    assert isinstance(Store(url), Store)
