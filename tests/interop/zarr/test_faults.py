"""Only an object that is not there is filled: whatever else goes wrong with a read, the caller hears of it."""

from __future__ import annotations

import uuid
from dataclasses import replace

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import penstock as ps
from penstock.errors import PenstockError
from penstock.interop.zarr import Store
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match

FILL = -9999
VALUES = np.arange(96, dtype="i4")
GETS = sorted(name for name, fault in FAULTS.items() if "get" in fault.verbs)
WAITS = {"stall", "stall-body", "drip", "slow"}
UNSEEN = {"corrupt"}  # no store gives a digest of a range: TLS is what protects it


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as server, no_waiting(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.engine.transport.easy.STALL_BYTES_PER_S", 10_000)
        yield server


@pytest.fixture(autouse=True)
def _holds_nothing(monkeypatch):
    """Keep no whole object of a server that has ignored a range: the next fault would meet no request."""
    monkeypatch.setattr("penstock.engine.read.unranged._KEPT_S", 0.0)


@pytest.fixture(scope="module")
def store(server):
    """Return a store with a plain array, a sharded one, and one whose index comes first."""
    options = replace(
        server.store,
        retry=ps.RetryOptions(attempts=2),
        transport=ps.TransportOptions(stall_timeout_s=0.5),
    )
    server.make(bucket := f"test-{uuid.uuid4().hex}")
    store = Store(f"s3://{bucket}/data.zarr", store=options)
    index_first = {"shards": {"shape": (32,), "index_location": "start"}}
    for name, shards in (("plain", {}), ("sharded", {"shards": (32,)}), ("first", index_first)):
        array = zarr.create_array(
            store, name=name, shape=(96,), chunks=(8,), dtype="i4", fill_value=FILL, compressors=None, **shards
        )
        array[:] = VALUES
    return store


def _read(store, name, part=slice(None)):
    return zarr.open_array(store, path=name, mode="r")[part]


# What is read, and which of its requests meets the fault.
PLACES = {
    "chunk": ("plain", slice(None), "plain/c/5", 1),
    "whole shard": ("sharded", slice(None), "sharded/c/1", 1),
    "shard index": ("sharded", slice(40, 44), "sharded/c/1", 1),
    "chunk in a shard": ("sharded", slice(40, 44), "sharded/c/1", 2),
    "shard index in front": ("first", slice(40, 44), "first/c/1", 1),
    "metadata": ("plain", slice(None), "plain/zarr.json", 1),
}


@pytest.mark.parametrize(
    ("place", "fault"),
    [(place, fault) for place in PLACES for fault in GETS if fault not in WAITS or place in ("chunk", "shard index")],
)
def test_a_failed_read_is_never_filled(server, store, place, fault):
    name, part, key, nth = PLACES[place]
    bucket = store.url.split("/")[2]
    server.fail(FAULTS[fault], when=Match(verb="get", bucket=bucket, key=f"data.zarr/{key}", nth=nth, times=None))
    asked = len(server.seen("get", bucket, f"data.zarr/{key}"))
    error = found = None
    try:
        found = _read(store, name, part)
    except (PenstockError, ValueError, RuntimeError, ExceptionGroup) as raised:
        error = raised
        while isinstance(error, ExceptionGroup):  # zarr reads parts of a shard in a group of tasks, since 3.4
            (error,) = error.exceptions
    server.heal()
    if error is None:
        assert FILL not in found
        assert fault in UNSEEN or np.array_equal(found, VALUES[part])
    else:
        assert isinstance(error, PenstockError) or fault in UNSEEN  # zarr's own digest of an index
        assert not isinstance(error, FileNotFoundError)
    met = [each.fault for each in server.seen("get", bucket, f"data.zarr/{key}")[asked:]]
    assert fault in met or FAULTS[fault].ranged or FAULTS[fault].reused or FAULTS[fault].region
    assert np.array_equal(_read(store, name, part), VALUES[part])


def test_missing_chunks_read_as_the_fill_value(server, store):
    bucket = store.url.split("/")[2]
    for name, part in (("plain", slice(0, 8)), ("sharded", slice(0, 32)), ("first", slice(0, 32))):
        lost = f"{name}/c/0"
        kept = server.objects(bucket)[f"data.zarr/{lost}"]
        ps.delete(f"{store.url}/{lost}", store=store._given)
        try:
            assert np.array_equal(_read(store, name), np.where(np.arange(96) < part.stop, FILL, VALUES))
            assert (_read(store, name, slice(2, 4)) == FILL).all()
        finally:
            server.put(bucket, f"data.zarr/{lost}", kept)


@pytest.mark.parametrize("fault", ["reset", "500", "denied", "skewed"])
@pytest.mark.parametrize(
    "request_",
    [None, RangeByteRequest(3, 9), RangeByteRequest(3, 900), OffsetByteRequest(4), SuffixByteRequest(5)],
    ids=["whole", "range", "range beyond the end", "offset", "suffix"],
)
async def test_no_failure_is_an_absence(server, store, request_, fault):
    server.fail(FAULTS[fault], when=Match(bucket=store.url.split("/")[2], times=None))
    prototype = default_buffer_prototype()
    try:
        for act in (
            lambda: store.get("plain/c/5", prototype, request_),
            lambda: store.get("plain/c/none", prototype, request_),
            lambda: store.get_partial_values(prototype, [("plain/c/1", request_), ("none", request_)]),
            lambda: store.exists("none"),
            lambda: store.getsize("none"),
            lambda: store.is_empty("none"),
        ):
            with pytest.raises(PenstockError) as raised:
                await act()
            assert not isinstance(raised.value, FileNotFoundError)
    finally:
        server.heal()
