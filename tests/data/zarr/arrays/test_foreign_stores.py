"""Arrays in stores of zarr's that have no URL are read through these stores, in threads and in worker processes."""

from __future__ import annotations

import pickle
import threading

import icechunk
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore, WrapperStore

import penstock as ps
from penstock.engine.buffer import Buffer
from penstock.errors import Cancelled, Damaged, NotFound, Transient, Unusable
from penstock.values import Span
from tests.data.zarr.stores import numbered

DIMS = ("time", "y", "x")


def put(store, values, **how):
    how = {"chunks": (4, *values.shape[1:]), "dimension_names": DIMS, "compressors": None} | how
    zarr.create_array(store, data=values, **how)
    return zarr.open_array(store, mode="r+")  # another mode wraps the store anew


def large(count):
    """Return values of an array that is too large to be kept whole."""
    return numbered((count, 256, 256)).astype("f8")


def samples(dataset):
    return np.stack([each.numpy() for each in dataset])


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
    assert np.array_equal(samples(ps.ZarrDataset(array)), values)
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
    assert len(samples(dataset)) == 21
    for thread in threading.enumerate():
        if thread.name == "penstock-zarr":
            thread.join(60)
            assert not thread.is_alive()


def _gone(_):
    return None


def _short(found):
    return found[:-1]


def _broken(_):
    raise RuntimeError("out of order")


@pytest.mark.parametrize(("failure", "error"), [(_short, Damaged), (_broken, Transient)], ids=["short", "raises"])
def test_store_failure_raises_and_is_never_replaced_by_fill_value(failure, error):
    store = Failing(MemoryStore())
    dataset = ps.ZarrDataset(put(store, large(21)))
    store.failure = failure
    with pytest.raises(error, match="Failing:c/0/0/0"):
        samples(dataset)


def test_a_chunk_that_is_not_there_is_the_fill_value_or_an_error():
    store = Failing(MemoryStore())
    array = put(store, large(21))
    store.failure = _gone
    assert not samples(ps.ZarrDataset(array)).any()
    with pytest.raises(NotFound, match="never written"):
        samples(ps.ZarrDataset(array, missing="error"))


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
    assert np.array_equal(samples(dataset), values)
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
