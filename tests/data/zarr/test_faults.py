"""Only a chunk that is not there is filled: a failed read, of a chunk or of a shard's index, is an error."""

import uuid
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.errors import Changed, DatasetChanged, Forbidden, PenstockError
from penstock.interop.zarr import Store
from penstock.testing.clock import no_waiting
from penstock.testing.faults import FAULTS, FaultServer, Match
from tests.data.zarr.stores import upload, write

FILL = -9999
VALUES = np.arange(96, dtype="i4")
WAITS = {"stall", "stall-body", "drip", "slow"}
GETS = sorted(name for name, fault in FAULTS.items() if "get" in fault.verbs and name not in WAITS)
UNSEEN = {"corrupt"}  # no store gives a digest of a range: TLS is what protects it
# Where the fault strikes: the array, the key, and which of the key's requests.
PLACES = {"chunk": ("plain", "c/5", 1), "shard index": ("sharded", "c/1", 1), "chunk in a shard": ("sharded", "c/1", 2)}


@pytest.fixture(scope="module")
def server():
    with FaultServer.within() as server, no_waiting():
        yield server


@pytest.fixture(scope="module")
def bucket(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    server.make(name := f"test-{uuid.uuid4().hex}")
    for array, shards in (("plain", {}), ("sharded", {"shards": (32,)})):
        write(folder / array, VALUES, ("t",), chunks=(8,), fill_value=FILL, compressors=None, **shards)
        upload(server, name, folder / array)
    return name


@pytest.fixture
def options(server, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    return replace(server.store, retry=ps.RetryOptions(attempts=2))


def dataset(bucket, array, options, **arguments):
    return ps.ZarrDataset(f"s3://{bucket}/{array}", store=options, **arguments)


@pytest.mark.parametrize(("place", "fault"), [(place, fault) for place in PLACES for fault in GETS])
def test_a_failed_read_is_never_filled(server, bucket, options, place, fault):
    array, key, nth = PLACES[place]
    data = dataset(bucket, array, options)
    when = Match(verb="get", bucket=bucket, key=f"{array}/{key}", nth=nth, times=None)
    server.fail(FAULTS[fault], when=when)
    asked, failed, found, absent = len(server.seen("get", bucket, f"{array}/{key}")), [], {}, 0
    for item in data.reading([list(range(at, at + 8)) for at in range(0, 96, 8)], 1):
        try:
            made = item.make()
        except PenstockError as error:
            absent += isinstance(error, FileNotFoundError)
            failed.append(8 * item.batch + item.slot)
        else:
            if item.size:
                found[8 * item.batch + item.slot] = int(made)
    server.heal()
    assert (absent, FILL in found.values()) == (0, False)
    if fault not in UNSEEN:
        assert all(number == value for number, value in found.items())
    assert sorted([*failed, *found]) == list(range(96))
    assert {*failed} <= ({*range(32, 64)} if array == "sharded" else {*range(40, 48)})
    met = [each.fault for each in server.seen("get", bucket, f"{array}/{key}")[asked:]]
    assert fault in met or FAULTS[fault].ranged or FAULTS[fault].reused or FAULTS[fault].region
    assert [int(each) for each in data] == list(range(96))


def test_first_error_of_unreadable_indexes_takes_the_attempts_of_one_read(server, bucket, options):
    data = dataset(bucket, "sharded", options)
    asked = len(server.seen("get", bucket))
    server.fail(FAULTS["500"], when=Match(verb="get", bucket=bucket, times=None))
    with pytest.raises(PenstockError, match="500"):
        next(iter(data))
    server.heal()
    # Four chunks are in each of three shards; reads of the other two may have been cancelled.
    seen = Counter(each.key for each in server.seen("get", bucket)[asked:])
    assert seen["sharded/c/0"] == max(seen.values()) == 2
    assert [int(each) for each in data] == list(range(96))


@pytest.mark.parametrize("array", ["plain", "sharded"])
def test_missing_chunk_is_filled_or_raises_with_missing_error(server, bucket, options, array):
    lost = f"{array}/c/0"
    kept = server.objects(bucket)[lost]
    count = 8 if array == "plain" else 32
    ps.delete(f"s3://{bucket}/{lost}", store=options)
    try:
        found = [int(each) for each in dataset(bucket, array, options)]
        assert found == [FILL] * count + list(range(count, 96))
        with pytest.raises(FileNotFoundError, match="never written"):
            list(dataset(bucket, array, options, missing="error"))
    finally:
        server.put(bucket, lost, kept)


def test_each_request_is_made_once(server, bucket, options):
    for array, most in (("plain", 12), ("sharded", 12 + 3)):
        data = dataset(bucket, array, options, shuffle=True)
        asked = len(server.seen("get", bucket))
        assert sorted(int(each) for each in data) == list(range(96))
        assert len(server.seen("get", bucket)) - asked == most


@pytest.fixture
def written(server, bucket, tmp_path):
    """Return what writes an array under a name of its own, without some of its objects."""

    def put(*absent, **layout):
        name, folder = f"array-{uuid.uuid4().hex}", tmp_path / "a"
        write(folder, VALUES, ("t",), chunks=(8,), fill_value=FILL, compressors=None, **layout)
        upload(server, bucket, folder, name, absent)
        return name

    return put


@pytest.mark.parametrize("layout", [{}, {"shards": (32,)}], ids=["plain", "sharded"])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_array_that_is_deleted_while_it_is_read_is_not_filled(bucket, options, written, layout, threads):
    name = written(**layout)
    data = dataset(bucket, name, replace(options, read=ps.ReadOptions(ahead_items=1)))
    epoch = iter(ps.DataLoader(data, 8, decode_threads=threads) if threads else data.batched(8))
    next(epoch)
    for each in [*ps.list(f"s3://{bucket}/{name}/", store=options)]:  # its metadata last, as in order of keys
        ps.delete(each.url, store=options)
    with pytest.raises(Changed, match="deleted while it was read"):
        list(epoch)
    later = data.as_map()
    for number in range(64, 96):  # each of them, so that none is filled where errors are left out
        with pytest.raises(Changed, match="deleted while it was read"):
            later[number]


@pytest.mark.parametrize("loading", [{"decode_threads": 2}, {"num_workers": 1}], ids=["threads", "workers"])
def test_an_array_that_is_deleted_while_it_is_read_is_not_skipped(bucket, options, written, loading):
    """Although some of its chunks are still there, so that no batch is empty."""
    name = written()
    data = dataset(bucket, name, replace(options, read=ps.ReadOptions(ahead_items=1)))
    for key in ("zarr.json", "c/11"):
        ps.delete(f"s3://{bucket}/{name}/{key}", store=options)
    loader = ps.DataLoader(data, 48, on_error="skip", **loading)
    with pytest.raises(DatasetChanged):
        list(loader)


@pytest.mark.parametrize("absent", [1, 3, 12])
def test_absent_chunks_cost_a_look_at_the_first_the_second_the_fourth_and_the_end(
    server, bucket, options, written, absent
):
    name = written(*(f"c/{number}" for number in range(absent)))
    found = np.stack([each.numpy() for each in dataset(bucket, name, options)])
    assert np.array_equal(found[8 * absent :], VALUES[8 * absent :])
    assert (found[: 8 * absent] == FILL).all()
    looks = absent.bit_length() + (absent & (absent - 1) > 0)
    assert len(server.seen("head", bucket, f"{name}/zarr.json")) == looks


def _refused(server, bucket, array):
    """Have the server refuse what is not there, as S3 does to those who may not list."""
    server.fail(FAULTS["denied"], when=Match(bucket=bucket, key=f"{array}/c/5", times=None))
    for key in (".zmetadata", ".zarray", ".zattrs", ".zgroup"):
        server.fail(FAULTS["denied"], when=Match(bucket=bucket, key=f"{array}/{key}", times=None))


def test_refusal_is_a_missing_chunk_only_where_it_is_asked_for(server, bucket, options):
    _refused(server, bucket, "plain")
    try:
        with pytest.raises(Forbidden):
            dataset(bucket, "plain", options)
        found = np.array([*dataset(bucket, "plain", options, forbidden_is_missing=True, output="numpy")])
        array = zarr.open_array(Store(f"s3://{bucket}/plain", store=options, forbidden_is_missing=True), mode="r")
        opened = np.array([*ps.ZarrDataset(array, output="numpy")])
        strict = zarr.open_array(Store(f"s3://{bucket}/plain", store=options), mode="r", zarr_format=3)
        with pytest.raises(Forbidden):
            list(ps.ZarrDataset(strict, output="numpy"))
    finally:
        server.heal()
    expected = VALUES.copy()
    expected[40:48] = FILL
    assert np.array_equal(found, expected)
    assert np.array_equal(opened, expected)


def test_refusals_of_everything_are_an_error_though_a_refusal_is_a_missing_chunk(server, bucket, options):
    data = dataset(bucket, "plain", options, forbidden_is_missing=True)
    server.fail(FAULTS["denied"], when=Match(bucket=bucket, times=None))
    try:
        with pytest.raises(Forbidden):
            list(data)
    finally:
        server.heal()


def test_open_array_that_is_deleted_while_it_is_read_is_an_error(bucket, options, written):
    name = written()
    data = ps.ZarrDataset(zarr.open_array(Store(f"s3://{bucket}/{name}", store=options, read_only=True), mode="r"))
    for each in [*ps.list(f"s3://{bucket}/{name}/", store=options)]:
        ps.delete(each.url, store=options)
    with pytest.raises(DatasetChanged, match="deleted while it was read"):
        list(data)
