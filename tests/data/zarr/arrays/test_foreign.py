"""Arrays that zarr or xarray has opened have the layouts that their documents have."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from penstock.data.zarr.arrays.foreign import arrays_of, is_opened
from penstock.data.zarr.format.metadata import open_arrays
from penstock.errors import Unsupported, Unusable
from penstock.interop.zarr import Store
from penstock.source import open_source
from tests.amounts import examples
from tests.data.zarr.memory_arrays import arrays, same


@settings(max_examples=examples(60))
@given(arrays())
def test_the_layout_of_an_open_array_is_that_of_its_document(written):
    opened = arrays_of(written.array)
    layout, wanted = opened.arrays[""], written.layout
    for name in ("key", "shape", "dtype", "chunks", "shards", "dims", "lead", "separator"):
        assert getattr(layout, name) == getattr(wanted, name)
    same(np.asarray(layout.fill), np.asarray(wanted.fill))
    assert opened.store is written.array.store_path.store
    assert opened.url == ""


@pytest.fixture(params=[2, 3])
def folder(request, tmp_path):
    """Return a folder with a dataset that xarray has written."""
    values = np.arange(12, dtype="i2").reshape(4, 3)
    dataset = xr.Dataset(
        {"tas": (("time", "x"), values, {"scale_factor": 0.5}), "label": ("x", np.array(["a", "b", "c"], object))}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(tmp_path / "a.zarr", zarr_format=request.param, consolidated=False)
    return tmp_path / "a.zarr"


def test_open_zarr_group_and_xarray_dataset_match_their_url(folder):
    wanted = open_arrays(*open_source(folder))["tas"]
    dataset = xr.open_zarr(folder, chunks=None, consolidated=False)
    for opened in (arrays_of(zarr.open_group(folder)), arrays_of(dataset)):
        layout = opened.arrays["tas"]
        assert (layout.shape, layout.dtype, layout.dims) == (wanted.shape, wanted.dtype, wanted.dims)
        assert (layout.key, layout.name) == ("tas/", "tas")
        assert opened.url == str(folder)
        with pytest.raises(Unsupported):
            opened.arrays["label"]


class Shuffled(WrapperStore):
    """A store that lists its keys backwards: an order is not promised."""

    async def list_dir(self, prefix):
        keys = [key async for key in self._store.list_dir(prefix)]
        for key in sorted(keys, reverse=True):
            yield key


def test_arrays_of_a_group_are_in_order_of_their_names():
    group = zarr.open_group(Shuffled(MemoryStore()), mode="w")
    for name in "bac":
        group.create_array(name, shape=(4,), dtype="f4")
    assert [*arrays_of(group).arrays] == ["a", "b", "c"]


@pytest.mark.parametrize("decoded", [True, False])
def test_an_array_of_xarray_is_traced_to_its_array(folder, decoded):
    dataset = xr.open_zarr(folder, chunks=None, consolidated=False, mask_and_scale=decoded)
    for value in (dataset["tas"], dataset["tas"].variable):
        opened = arrays_of(value)
        assert opened.arrays[""].key == "tas/"
        assert isinstance(opened.store, LocalStore)
    store = Store("memory://objects-of-xarray/a")
    assert is_opened(dataset)
    assert arrays_of(zarr.create_array(store, name="b/c", shape=(2,), dtype="f4", overwrite=True)).url == store.url


def test_lazy_or_transformed_arrays_are_refused_with_url_advice(folder):
    dataset = xr.open_zarr(folder, chunks=None, consolidated=False)
    lazy = xr.open_zarr(folder, chunks={}, consolidated=False)
    assert arrays_of(dataset["tas"][::-1]).chosen == {"": {"time": range(3, -1, -1)}}
    assert arrays_of(lazy).chosen["tas"] == {}
    for value in (dataset["tas"].T, dataset["tas"] + 1, lazy["tas"] + 1):
        with pytest.raises(Unusable, match="pass the URL"):
            arrays_of(value)
    with pytest.raises(Unusable, match=r"pass the URL"):
        arrays_of(lazy[["tas"]] + 1).arrays["tas"]
    with pytest.raises(Unusable, match="neither an array"):
        arrays_of(np.zeros(3))
    assert not is_opened(np.zeros(3))
    assert not is_opened("s3://b/k")


def test_variables_of_several_stores_are_refused():
    stores = [MemoryStore(), MemoryStore()]
    parts = []
    for name, store in zip("ab", stores, strict=True):
        xr.Dataset({name: ("x", np.arange(3.0))}).to_zarr(store, zarr_format=2, consolidated=False)
        parts.append(xr.open_zarr(store, chunks=None, consolidated=False))
    with pytest.raises(Unusable, match="2 stores"):
        arrays_of(xr.merge(parts))
