"""Arrays and groups, and the metadata of their copies."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

from penstock.errors import Damaged, NotFound, Unusable
from penstock.interop.zarr import Store, copy
from penstock.interop.zarr.documents import open_node, plan_copy
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
    found = plan_copy(group(zarr_format, consolidated=consolidated), {"inner/tas": (1, 4)}, None, "gzip:1")
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
    found = plan_copy(zarr.open(store, mode="r"), {"time": 1}, {"time": 3}, None, 3)
    document = json.loads(found.objects["tas/zarr.json"])
    assert document["dimension_names"] == ["time", "y"]
    assert document["attributes"] == {"units": "K", "_FillValue": "AAAAAAAAI8A="}  # xarray's: base64 of a double
    assert document["fill_value"] == -9.5
    assert document["chunk_grid"]["configuration"]["chunk_shape"] == [3, 4]
    assert json.loads(found.objects["count/zarr.json"])["attributes"]["_FillValue"] == -1
    with pytest.raises(Unusable, match="to format 2"):
        plan_copy(group(3, consolidated=False), None, None, None, 2)


FILLS = {
    "f2": np.inf,
    ">f8": -0.0,
    "c8": complex(np.nan, 1),
    ">c16": complex(-np.inf, -0.0),
    "S5": b"a\0b\xff",
    "U3": "é",
    "V3": np.void(b"\1\2\3"),
    "?": True,
    "u8": 2**64 - 1,
    "M8[ns]": np.datetime64("2020-01-01", "ns"),
    "M8[s]": np.datetime64("NaT"),
    "m8[h]": np.timedelta64(5, "h"),
    "i4,S2": np.array((1, b"x"), "i4,S2")[()],
    "f4,f8": np.array((1, np.nan), "f4,f8")[()],
}


@pytest.mark.parametrize("dims", [{}, {"_ARRAY_DIMENSIONS": ["x"]}], ids=["zarr", "xarray"])
@pytest.mark.parametrize("dtype", [*FILLS, "S3 null", "c8 null", "f4,S1 null"])
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
def test_fill_values_of_every_type_become_those_of_format_3(tmp_path, dtype, dims):
    name, _, null = dtype.partition(" ")
    made = {"shape": 4, "chunks": 2, "dtype": np.dtype(name), "zarr_format": 2, "attributes": dims}
    source = zarr.create_array(str(tmp_path / "2"), fill_value=None if null else FILLS[name], **made)
    source[:2] = np.zeros(2, name)
    copy(str(tmp_path / "2"), tmp_path / "3", zarr_format=3)
    found = zarr.open_array(str(tmp_path / "3"), mode="r")
    assert np.asarray(found[:]).tobytes() == np.asarray(source[:]).astype(found.dtype).tobytes()
    json.loads((tmp_path / "3" / "zarr.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "values",
    [np.array([1 + 1j, 2, 3]), np.array([b"ab", b"", b"c"]), np.array(["a", "é", ""]), np.float16([1, 2, 3])],
    ids=lambda values: values.dtype.str,
)
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.filterwarnings("ignore:Object at .zarr-copy")  # the empty folder, which local stores keep
def test_xarray_opens_the_copy_in_format_3_with_the_same_values(tmp_path, values):
    fill = values[1].item()
    written = xr.Dataset({"v": ("x", values)})
    written.to_zarr(tmp_path / "2", zarr_format=2, encoding={"v": {"_FillValue": fill}}, consolidated=False)
    copy(str(tmp_path / "2"), tmp_path / "3", zarr_format=3)
    masked = xr.open_zarr(tmp_path / "2", consolidated=False).v.values
    found = xr.open_zarr(tmp_path / "3", consolidated=False).v.values
    # xarray reads no fill value of texts in format 3.
    wanted = values if values.dtype.kind in "SU" else masked
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_opening_a_missing_or_damaged_hierarchy_raises_an_error():
    url = f"memory://hierarchy/{uuid.uuid4().hex}"
    with pytest.raises(NotFound, match="no zarr array or group"):
        open_node(url, None)
    source, key = open_source(url)
    for damage in (b"{", b'{"zarr_format": 3, "node_type": "array"}', b'{"zarr_format": 9}'):
        source.put(f"{key}/zarr.json", damage)
        with pytest.raises((Damaged, NotFound)):
            open_node(url, None)
    assert isinstance(Store(url), Store)
