"""`obspec://name/key` goes through cache, second requests, time limits, datasets and back out as obspec."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from obstore.store import LocalStore, MemoryStore

import penstock as ps
from penstock.engine.read import hedging
from penstock.errors import AlreadyExists, NotFound, TimedOut, Unusable
from penstock.interop.obspec import Store
from penstock.interop.zarr import Store as ZarrStore
from penstock.source import open_source
from tests.children import forked
from tests.stores.obspec.test_driver import foreign, new_bucket
from tests.threads import until


class Shelf:
    """A foreign store in Python over one of obstore; it counts its calls, and holds one of them up."""

    def __init__(self, store):
        self.store, self.calls, self.hold, self.gate = store, [], 0, threading.Event()

    def get(self, path, *, options=None):
        self.calls.append((path, options))
        if len(self.calls) == self.hold:
            self.gate.wait(60)
        return self.store.get(path, options=options)

    def __getattr__(self, name):
        return getattr(self.store, name)


@pytest.fixture
def shelf():
    shelf = Shelf(MemoryStore())
    yield shelf
    shelf.gate.set()


def options(store, **parts):
    return ps.ObspecOptions(store=store, **parts)


def test_every_verb_works():
    store = options(MemoryStore(), write=ps.WriteOptions(part_bytes=1000, buffer_bytes=2000))
    data = bytes(range(256)) * 20
    with ps.open("obspec://box/a b/c*.bin", "wb", store=store, metadata={"note": "x"}) as file:
        file.write(data)
    assert [(each.key, each.size) for each in ps.list("obspec://box/", store=store)] == [("a b/c*.bin", len(data))]
    assert [each.key for each in ps.list("obspec://box/a ", store=store)] == ["a b/c*.bin"]
    with ps.open("obspec://box/a b/c*.bin", store=store) as file:
        file.seek(1000)
        assert file.read(10) == data[1000:1010]
    ps.copy("obspec://box/a b/c*.bin", "obspec://box/d", store=store)
    assert ps.stat("obspec://box/d", store=store).metadata["note"] == "x"
    with pytest.raises(AlreadyExists), ps.open("obspec://box/d", "xb", store=store) as file:
        file.write(b"x")
    ps.delete("obspec://box/d", store=store)
    with pytest.raises(NotFound):
        ps.open("obspec://box/d", store=store)


@pytest.mark.parametrize("kind", ["memory", "local", "s3"])
def test_exclusive_write_and_commit_hold_whether_or_not_the_store_has_conditions(kind, tmp_path, request):
    make = {
        "memory": MemoryStore,
        "local": lambda: LocalStore(tmp_path),
        "s3": lambda: foreign(new_bucket(request.getfixturevalue("moto_server"))),
    }
    source, _ = open_source("obspec://box/", options(make[kind]()))
    meta = source.publish("index", b"first")
    assert source.publish("index", b"second", replaces=meta.etag).size == 6
    with pytest.raises(ps.errors.PreconditionFailed):
        source.publish("index", b"third", replaces=meta.etag)
    with pytest.raises(AlreadyExists):
        source.publish("index", b"fourth")
    assert bytes(source.read(ps.values.Span("index", 0, 6))) == b"second"


def test_cache_answers_without_a_call_and_tells_stores_apart(tmp_path, bucket):
    cache = ps.CacheOptions(path=str(tmp_path / "cache"))
    bucket.client.put_object(Bucket=bucket.name, Key="x", Body=b"in s3")
    for _ in range(2):
        # Opened anew, as the next program does.
        assert ps.open("obspec://box/x", store=options(foreign(bucket), cache=cache)).read() == b"in s3"
    found = ps.cache.open_cache(tmp_path / "cache").usage()
    assert found.entries == 1
    for data in (b"one", b"two"):
        store = MemoryStore()
        store.put("x", data)
        # Both have the ETag "0".
        assert ps.open("obspec://box/x", store=options(store, cache=cache)).read() == data


def test_cached_object_is_read_without_a_get(shelf, tmp_path):
    shelf.put("x", b"bytes")
    store = options(shelf, cache=ps.CacheOptions(path=str(tmp_path)))
    source, _ = open_source("obspec://box/", store)
    meta = source.head("x")
    span = ps.values.Span("x", 0, 5, meta.etag, whole=True)
    assert [source.read(span) for _ in range(3)] == [b"bytes"] * 3
    assert [options for _, options in shelf.calls] == [{"head": True}, {}] or len(shelf.calls) == 2


def test_slow_read_is_hedged(shelf, monkeypatch):
    monkeypatch.setattr(hedging, "_LEAST", 50)
    shelf.put("x", b"bytes")
    source, _ = open_source("obspec://box/", options(shelf))
    span = ps.values.Span("x", 1, 3)
    for _ in range(200):
        source.read(span)
    shelf.hold = len(shelf.calls) + 1
    # The first call still waits.
    assert source.read(span) == b"yt"
    assert not shelf.gate.is_set()
    assert len(shelf.calls) == shelf.hold + 1


def test_store_that_never_answers_ends_with_timed_out(shelf):
    shelf.put("x", b"bytes")
    shelf.hold = 1
    store = options(shelf, retry=ps.RetryOptions(patience_s=0.2, first_contact_s=0.2))
    with pytest.raises(TimedOut, match=r"did not return within 0\.2 s"):
        ps.open("obspec://box/x", store=store)
    assert ps.open("obspec://box/x", store=store).read() == b"bytes"


def test_ctrl_c_ends_a_read_that_never_returns(shelf):
    import _thread

    shelf.put("x", b"bytes")
    shelf.hold = 1
    threading.Thread(target=lambda: (until(lambda: shelf.calls), _thread.interrupt_main())).start()
    with pytest.raises(KeyboardInterrupt):
        ps.open("obspec://box/x", store=options(shelf))


def test_forked_child_refuses_the_store_and_a_spawned_one_reads(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.bin").write_bytes(b"%d" % number)
    store = options(LocalStore(tmp_path))
    dataset = ps.MapDataset.from_prefix("obspec://box/", store=store, transform=_data)
    assert dataset[0] == b"0"

    def work():
        with pytest.raises(Unusable, match=r"forked from.*spawn"):
            dataset[1]

    with forked(work) as status:
        assert status() == 0
    loader = ps.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
    assert [each for batch in loader for each in batch] == [b"0", b"1", b"2", b"3"]


def _data(sample):
    return bytes(sample.data)


def test_mixture_over_foreign_stores_resumes_from_a_checkpoint_in_one():
    theirs = MemoryStore()
    for number in range(8):
        theirs.put(f"{number % 2}/{number}.bin", b"%d" % number)
    store = options(theirs)

    def loader():
        place = "obspec://box/{}/"
        parts = {each: ps.MapDataset.from_prefix(place.format(each), store=store, transform=_data) for each in "01"}
        return ps.DataLoader(ps.Mix(parts), 2, shuffle=True, collate_fn=list)

    first, second = loader(), loader()
    run = ps.CheckpointManager("obspec://box/run/", store=store)
    batches = iter(first)
    next(batches)
    run.save(1, {"weight": np.ones(3)}, loader=first)
    assert run.restore(loader=second)["weight"].tolist() == [1.0] * 3
    assert list(second) == list(batches)


def test_zarr_reads_a_foreign_store_through_penstock_and_back():
    import zarr
    from zarr.storage import ObjectStore

    data = np.arange(100).reshape(10, 10)
    zarr.create_array(ObjectStore(inner := MemoryStore()), data=data, chunks=(5, 5))
    exposed = options(Store("obspec://box/", options(inner)))
    assert (zarr.open_array(ZarrStore("obspec://again/", store=exposed), mode="r")[:] == data).all()
    rows = ps.ZarrDataset("obspec://again/", store=exposed, shuffle=True)
    found = [row.data for row in rows]
    assert sorted(each[0] for each in found) == list(range(0, 100, 10))
