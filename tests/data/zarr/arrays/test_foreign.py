"""Arrays that zarr or xarray has opened have the layouts of their documents, and are read through their stores."""

from __future__ import annotations

import pickle
import threading
import warnings
from unittest.mock import Mock

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import penstock as ps
from penstock.data.zarr.arrays.foreign import arrays_of, classify_object
from penstock.data.zarr.format.metadata import open_arrays
from penstock.engine.buffer import Buffer
from penstock.errors import Cancelled, Damaged, NotFound, Transient, Unsupported, Unusable
from penstock.interop.zarr import Store
from penstock.source import open_source
from penstock.values import Span
from tests.amounts import examples
from tests.data.zarr.memory_arrays import arrays, same
from tests.data.zarr.stores import DIMS, large, stacked


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
    assert classify_object(dataset)
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
    assert not classify_object(np.zeros(3))
    assert not classify_object("s3://b/k")


def test_variables_of_several_stores_are_refused():
    stores = [MemoryStore(), MemoryStore()]
    parts = []
    for name, store in zip("ab", stores, strict=True):
        xr.Dataset({name: ("x", np.arange(3.0))}).to_zarr(store, zarr_format=2, consolidated=False)
        parts.append(xr.open_zarr(store, chunks=None, consolidated=False))
    with pytest.raises(Unusable, match="2 stores"):
        arrays_of(xr.merge(parts))


def put(store, values, **how):
    how = {"chunks": (4, *values.shape[1:]), "dimension_names": DIMS, "compressors": None} | how
    zarr.create_array(store, data=values, **how)
    return zarr.open_array(store, mode="r+")  # another mode wraps the store anew


class Failing(WrapperStore):
    """A store whose chunks fail, once a test says how."""

    failure = None

    async def get(self, key, prototype, byte_range=None):
        if self.failure and "/" in key:
            return self.failure(await self._store.get(key, prototype, byte_range))
        return await self._store.get(key, prototype, byte_range)


@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
@pytest.mark.parametrize("count", [21, 3], ids=["read", "kept"])
def test_samples_are_those_of_the_array(count, sharded):
    values = large(count)
    array = put(MemoryStore(), values, shards=(8, 256, 256) if sharded else None)
    assert np.array_equal(stacked(ps.ZarrDataset(array)), values)
    alone = pickle.loads(pickle.dumps(ps.ZarrDataset(array, shuffle=True, seed=1)))
    assert sorted(each.numpy().tobytes() for each in alone) == sorted(each.tobytes() for each in values)
    assert np.array_equal(np.stack([each.numpy() for each in alone.as_map()]), values)


def test_arrays_of_two_stores_are_read_together():
    values = large(21)
    inputs, targets = put(MemoryStore(), values), put(MemoryStore(), -values)
    for here, there in ps.ZarrDataset(inputs, targets):
        assert np.array_equal(here, -there)


def test_threads_end_when_nothing_is_left_to_read():
    dataset = ps.ZarrDataset(put(MemoryStore(), large(21)))
    assert len(stacked(dataset)) == 21
    for thread in threading.enumerate():
        if thread.name == "penstock-zarr":
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("failure", "error"),
    [(lambda found: found[:-1], Damaged), (Mock(side_effect=RuntimeError("out of order")), Transient)],
    ids=["short", "raises"],
)
def test_store_failure_raises_and_is_never_replaced_by_fill_value(failure, error):
    store = Failing(MemoryStore())
    dataset = ps.ZarrDataset(put(store, large(21)))
    store.failure = failure
    with pytest.raises(error, match="Failing:c/0/0/0"):
        stacked(dataset)


def test_a_chunk_that_is_not_there_is_the_fill_value_or_an_error():
    store = Failing(MemoryStore())
    array = put(store, large(21))
    store.failure = lambda _: None
    assert not stacked(ps.ZarrDataset(array)).any()
    with pytest.raises(NotFound, match="never written"):
        stacked(ps.ZarrDataset(array, missing="error"))


class _Owner:
    def __init__(self):
        self.ended = threading.Semaphore(0)

    def finished(self, _):
        self.ended.release()


def test_reads_that_are_called_off_fill_nothing():
    store, begun, let = Failing(MemoryStore()), threading.Event(), threading.Event()
    dataset = ps.ZarrDataset(put(store, large(21)))

    def late(found):
        begun.set()
        assert let.wait(60)
        return found

    store.failure = late
    fetching, owner, target = dataset.contents.source.fetching(), _Owner(), bytearray(8)
    span = Span("c/0/0/0", 0, 8)
    reads = fetching.prepare_reads([(span, Buffer.borrow(target)), (span, None)], owner)
    fetching.cancel_reads(reads[1:])
    fetching.send_reads(reads)
    assert begun.wait(60)
    fetching.stop_reads(reads[:1])
    target[:] = b"mine now"
    let.set()
    for _ in reads:
        assert owner.ended.acquire(timeout=60)
    assert target == b"mine now"
    assert [type(read.error) for read in reads] == [Cancelled, Cancelled]


def test_forked_workers_are_refused_and_others_read():
    values = large(21)
    dataset = ps.ZarrDataset(put(Failing(MemoryStore()), values))
    with pytest.raises(Unusable, match="opened before a fork"):
        list(ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="fork"))
    found = list(ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="forkserver"))
    assert np.array_equal(np.concatenate(found), values)
    plain = ps.ZarrDataset(put(MemoryStore(), values))
    found = list(ps.DataLoader(plain, 4, num_workers=1, multiprocessing_context="fork"))
    assert np.array_equal(np.concatenate(found), values)


def test_icechunk_is_read_through_its_store(tmp_path):
    values = large(21)
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="tas", data=values, chunks=(4, 256, 256), dimension_names=DIMS)
    session.commit("written")
    array = zarr.open_array(repository.readonly_session("main").store, path="tas", mode="r")
    dataset = ps.ZarrDataset(array)
    assert np.array_equal(stacked(dataset), values)
    with pytest.raises(Unusable, match="IcechunkStore was opened before a fork"):
        list(ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="fork"))
    found = list(ps.DataLoader(dataset, 4, num_workers=1, multiprocessing_context="forkserver"))
    assert np.array_equal(np.concatenate(found), values)


def test_statistics_of_one_snapshot_of_icechunk_are_not_those_of_another(tmp_path):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    for number in (1.0, 2.0):
        session = repository.writable_session("main")
        zarr.create_array(session.store, name="tas", data=np.full(4, number), overwrite=True)
        session.commit("written")
        opened = zarr.open_array(repository.readonly_session("main").store, path="tas", mode="r")
        dataset = ps.ZarrDataset(opened)
        if number == 1:
            assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 1
            assert dataset.statistics(save=tmp_path / "s.json")[""].mean == 1
            continue
        with pytest.raises(Unusable, match="the file has statistics of other arrays"):
            dataset.statistics(save=tmp_path / "s.json")
