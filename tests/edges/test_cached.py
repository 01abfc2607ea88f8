"""Everything that reads goes through the cache: what was read once costs no GET again, in any process."""

import math
import multiprocessing
import shutil

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.testing.faults import FaultServer

COUNT = 24
MIB = 1 << 20
STATE = {"weights": torch.arange(3 * MIB // 4, dtype=torch.float32), "step": 7}


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as found:
        for number in range(COUNT):
            found.put("cached", f"a/{number:02}", b"%02d" % number * 500)
        found.put("cached", "large", bytes(range(256)) * (5 * MIB // 256))
        ps.save(STATE, "s3://cached/state.pt", store=found.store)
        ps.save_safetensors({"w": STATE["weights"]}, "s3://cached/w.safetensors", store=found.store)
        for step in (1, 2):
            ps.CheckpointManager("s3://cached/run/", store=found.store).save(step, STATE)
        write_array(found)
        yield found


def write_array(server):
    zarr = pytest.importorskip("zarr")
    from penstock.interop.zarr import Store

    store = Store("s3://cached/array.zarr", store=server.store)
    array = zarr.create_array(
        store, shape=(40, 6), dtype="f4", chunks=(2, 6), shards=(8, 6), dimension_names=("time", "x")
    )
    array[...] = VALUES
    # Larger than what a dataset reads whole, and without shards.
    store = Store("s3://cached/flat.zarr", store=server.store)
    array = zarr.create_array(store, shape=(70, 2), dtype="f4", chunks=(1, 2), dimension_names=("time", "x"))
    array[...] = np.arange(140, dtype="f4").reshape(70, 2)


VALUES = np.arange(240, dtype="f4").reshape(40, 6)


@pytest.fixture
def near(server, tmp_path):
    own = {each: getattr(server.store, each) for each in ("endpoint", "access_key", "secret_key", "region")}
    cache = ps.CacheOptions(path=str(tmp_path / "near"), size_bytes=64 * MIB, mode="ttl", ttl_s=math.inf)
    return ps.S3Options(**own, cache=cache)


def same(found, expected):
    torch.testing.assert_close(found["weights"], expected["weights"])
    assert found["step"] == expected["step"]


def samples(store, **options):
    dataset = ps.MapDataset.from_prefix("s3://cached/a/", store=store)
    loader = ps.DataLoader(dataset, 5, shuffle=True, collate_fn=list, **options)
    assert sorted(sample.key for batch in loader for sample in batch) == [f"a/{each:02}" for each in range(COUNT)]


def iterable(store):
    dataset = ps.IterableDataset.from_prefix("s3://cached/a/", shuffle=True, store=store)
    assert sum(len(sample.data) for sample in dataset) == COUNT * 1000


def unlisted(store):
    dataset = ps.MapDataset.from_objects([f"s3://cached/a/{each:02}" for each in range(COUNT)], store=store)
    assert b"".join(bytes(sample.data[:2]) for sample in dataset) == b"".join(b"%02d" % each for each in range(COUNT))


def forked(store):
    samples(store, num_workers=2, multiprocessing_context="fork")


def arrays(store):
    for sample, row in zip(ps.ZarrDataset("s3://cached/array.zarr", store=store), VALUES, strict=True):
        np.testing.assert_array_equal(sample.numpy(), row)


def flat(store):
    batches = list(ps.DataLoader(ps.ZarrDataset("s3://cached/flat.zarr", shuffle=True, store=store), 7))
    assert sorted(torch.cat(batches)[:, 0].tolist()) == list(range(0, 140, 2))


def by_zarr(store):
    zarr = pytest.importorskip("zarr")
    from penstock.interop.zarr import Store

    found = zarr.open_array(Store("s3://cached/array.zarr", store=store), mode="r")
    np.testing.assert_array_equal(found[...], VALUES)


def by_fsspec(store):
    pytest.importorskip("fsspec")
    from penstock.interop.fsspec import PenstockFileSystem

    fs = PenstockFileSystem(store=store, skip_instance_cache=True)
    with fs.open("s3://cached/large") as file:
        file.seek(4 * MIB)
        assert file.read(256) == bytes(range(256))
    assert len(fs.cat_file("s3://cached/a/03")) == 1000
    assert set(fs.cat(["s3://cached/a/04", "s3://cached/a/05"]).values()) == {b"04" * 500, b"05" * 500}


def opened(store):
    with ps.open("s3://cached/large", store=store) as file:
        assert file.read() == bytes(range(256)) * (5 * MIB // 256)
    with ps.open("s3://cached/a/07", "r", store=store) as file:
        assert file.read(4) == "0707"


def loaded(store):
    same(ps.load("s3://cached/state.pt", store=store), STATE)


def tensors(store):
    torch.testing.assert_close(ps.load_safetensors("s3://cached/w.safetensors", store=store)["w"], STATE["weights"])


def restored(store):
    manager = ps.CheckpointManager("s3://cached/run/", store=store)
    same(manager.restore(2), STATE)


READERS = [samples, iterable, unlisted, forked, arrays, flat, by_zarr, by_fsspec, opened, loaded, tensors, restored]


@pytest.mark.parametrize("reads", READERS, ids=lambda each: each.__name__)
def test_second_read_of_cached_object_sends_no_get_request(server, near, reads):
    before = len(server.seen("get", "cached"))
    reads(near)
    once = len(server.seen("get", "cached"))
    assert once > before
    reads(near)
    again = {each.key for each in server.seen("get", "cached")[once:]}
    assert not again & {*server.objects("cached")}, "only what is not there is asked for again"


def test_another_process_finds_it(server, near):
    samples(near)
    before = len(server.seen("get", "cached"))
    process = multiprocessing.get_context("fork").Process(target=samples, args=(near,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(server.seen("get", "cached")) == before


def test_arrays_of_two_stores_are_warmed_into_their_caches(server, near, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    for key, data in server.objects("cached").items():
        if key.startswith("flat.zarr/"):
            server.put("second", key, data)
    names = {"one": "s3://cached/flat.zarr", "two": "s3://second/flat.zarr"}
    dataset = ps.ZarrDataset(names, store=near)
    assert ps.warm(dataset).fetched == 140
    assert ps.warm(dataset).present == 140
    before = len(server.seen("get"))
    assert all(torch.equal(sample["one"], sample["two"]) for sample in dataset)
    assert len(server.seen("get")) == before
    shutil.rmtree(tmp_path / "near")
    assert ps.warm(dataset).fetched == 140


def test_arrays_are_warmed_chunk_by_chunk(server, near):
    for name in ("array.zarr", "flat.zarr"):
        dataset = ps.ZarrDataset(f"s3://cached/{name}", shuffle=True, store=near)
        done = ps.warm(dataset)
        assert (done.failed, done.missing) == (0, 0)
        assert done.fetched == (20 if name == "array.zarr" else 70)
        loader = ps.DataLoader(dataset, 4)
        before = len(server.seen("get", "cached"))
        assert ps.warm(loader).present == done.fetched
        assert sum(map(len, loader)) == len(dataset.contents)
        assert len(server.seen("get", "cached")) == before
