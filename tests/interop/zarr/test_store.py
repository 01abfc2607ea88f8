"""What zarr's own tests do not ask: ends of objects, numbers of requests, refusals, loops, forks, wrong uses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pickle import dumps, loads

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.storage import MemoryStore

import penstock as ps
from penstock.engine.contracts.driver import UNKNOWN_BYTES
from penstock.errors import Forbidden, InvalidURL, NotFound, Unusable
from penstock.interop.zarr import Store
from penstock.interop.zarr.store import ChunkSizes, array_of, check_byte_request, clip_request, direct
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.values import ObjectMeta, Span

PROTOTYPE = default_buffer_prototype()


def put(store, key, data):
    with ps.open(f"{store.url}/{key}", "wb", store=store._given) as file:
        file.write(data)


def buffer(data):
    return cpu.Buffer.from_bytes(data)


async def got(store, key, request=None):
    found = await store.get(key, PROTOTYPE, request)
    return None if found is None else found.to_bytes()


async def collected(keys):
    return [key async for key in keys]


@pytest.fixture(scope="module")
def served():
    with FaultServer.within() as server:
        yield server


@pytest.fixture
def server(served):
    """Return the fault server without faults, and with an empty bucket of this test's own."""
    served.heal()
    served.bucket = f"test-{uuid.uuid4().hex}"
    served.make(served.bucket)
    return served


@pytest.fixture
def remote(server):
    return Store(f"s3://{server.bucket}/data.zarr", store=server.store)


@pytest.fixture(params=["memory", "local", "remote"])
def store(request, tmp_path):
    if request.param == "remote":
        return request.getfixturevalue("remote")
    return Store(tmp_path / "data.zarr" if request.param == "local" else f"memory://{uuid.uuid4().hex}/data.zarr")


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (RangeByteRequest(2, 5), b"234"),
        (RangeByteRequest(7, 20), b"789"),
        (RangeByteRequest(10, 12), b""),
        (RangeByteRequest(30, 40), b""),
        (RangeByteRequest(4, 4), b""),
        (OffsetByteRequest(0), b"0123456789"),
        (OffsetByteRequest(6), b"6789"),
        (OffsetByteRequest(10), b""),
        (OffsetByteRequest(11), b""),
        (SuffixByteRequest(3), b"789"),
        (SuffixByteRequest(30), b"0123456789"),
        (SuffixByteRequest(0), b""),
    ],
    ids=str,
)
async def test_a_range_ends_where_its_object_does(store, request_, expected):
    put(store, "a/c/0", b"0123456789")
    assert await got(store, "a/c/0", request_) == expected
    assert await got(store, "a/c/1", request_) is None
    values = await store.get_partial_values(PROTOTYPE, [("a/c/0", request_), ("a/c/1", request_), ("a/c/0", None)])
    assert [each if each is None else each.to_bytes() for each in values] == [expected, None, b"0123456789"]


@pytest.mark.parametrize("request_", [RangeByteRequest(-1, 3), RangeByteRequest(3, 2), SuffixByteRequest(-2)], ids=str)
async def test_a_range_that_makes_no_sense_is_refused(store, request_):
    with pytest.raises(ValueError, match="Unexpected byte_range"):
        await store.get("a/c/0", PROTOTYPE, request_)


async def test_an_empty_object_has_no_bytes_at_either_end(store):
    put(store, "a/c/0", b"")
    for request in (None, RangeByteRequest(0, 4), SuffixByteRequest(4), OffsetByteRequest(2)):
        assert await got(store, "a/c/0", request) == b""


async def test_a_chunk_is_one_request_and_no_head(server, remote, seed):
    sizes = np.random.default_rng(seed).integers(90_000, 100_000, 60)
    for number, size in enumerate(sizes):
        server.put(server.bucket, f"data.zarr/a/c/{number}", b"x" * int(size))
    server.put(server.bucket, "data.zarr/a/zarr.json", b"{}")
    assert await got(remote, "a/zarr.json") == b"{}"  # as small as nothing that comes after
    found = await asyncio.gather(*(got(remote, f"a/c/{number}") for number in range(60)))
    assert [len(each) for each in found] == [*sizes]
    assert [len(await got(remote, f"a/c/{number}")) for number in range(60)] == [*sizes]
    assert await got(remote, "a/c/60") is None
    assert [each.verb for each in server.seen("", server.bucket)] == ["get"] * 122


async def test_a_chunk_larger_than_all_before_is_whole(server, remote):
    for number, size in enumerate((1_000, 9_000_000, 70_000)):
        server.put(server.bucket, f"data.zarr/a/c/{number}", bytes([number]) * size)
        assert await got(remote, f"a/c/{number}") == bytes([number]) * size


async def test_parts_of_many_objects_are_asked_for_at_once(server, remote):
    for number in range(40):
        server.put(server.bucket, f"data.zarr/a/c/{number}", bytes([number]) * 100)
    asked = [(f"a/c/{number}", RangeByteRequest(number, number + 7)) for number in range(40)]
    values = await remote.get_partial_values(PROTOTYPE, [*asked, ("a/c/0", SuffixByteRequest(5)), ("no", None)])
    assert [each if each is None else each.to_bytes() for each in values] == [bytes([n]) * 7 for n in range(40)] + [
        b"\0" * 5,
        None,
    ]
    assert len(server.seen("", server.bucket)) == 42


async def test_a_range_larger_than_a_part_is_of_one_version(server):
    options = replace(server.store, read=ps.ReadOptions(split_bytes=1 << 20))
    store = Store(f"s3://{server.bucket}/data.zarr", store=options)
    data = os.urandom(3 << 20)
    server.put(server.bucket, "data.zarr/a/c/0", data)
    for request, expected in (
        (RangeByteRequest(5, 3_000_000), data[5:3_000_000]),
        (RangeByteRequest(5, 9_000_000), data[5:]),
        (SuffixByteRequest(2_500_000), data[-2_500_000:]),
        (OffsetByteRequest(9), data[9:]),
    ):
        assert await got(store, "a/c/0", request) == expected
    values = await store.get_partial_values(PROTOTYPE, [("a/c/0", RangeByteRequest(5, 3_000_000)), ("a/c/0", None)])
    assert [each.to_bytes() for each in values] == [data[5:3_000_000], data]


async def test_sizes_are_those_of_heads_and_listings(server, remote):
    for key, size in (("tas/zarr.json", 2), ("tas/c/0", 10), ("tasmax/c/0", 1000)):
        server.put(server.bucket, f"data.zarr/{key}", b"x" * size)
    assert await remote.getsize("tas/c/0") == 10
    assert await remote.getsize_prefix("tas") == await remote.getsize_prefix("tas/") == 12  # tasmax is another array
    assert await remote.getsize_prefix("") == 1012
    assert [each.verb for each in server.seen("", server.bucket)] == ["head", "list", "list", "list"]
    with pytest.raises(NotFound, match=r"data\.zarr/tas/c/1"):
        await remote.getsize("tas/c/1")


# -- writing, deleting, listing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["memory", "remote"], indirect=True)  # no file's name ends in a slash
async def test_listing_omits_folder_markers(store):
    for key in ("", "a/", "a/c/", "a/c/0"):
        put(store, key, b"") if key else ps.open(f"{store.url}/", "wb", store=store._given).close()
    assert await collected(store.list()) == ["a/c/0"]
    assert await collected(store.list_prefix("a/")) == ["a/c/0"]
    assert await collected(store.list_dir("")) == ["a"]
    assert await collected(store.list_dir("a/c")) == ["0"]
    await store.delete_dir("a")
    assert await store.is_empty("")
    assert [each.key for each in ps.list(f"{store.url}/", store=store._given)] == ["data.zarr/"]


async def test_listing_returns_only_keys_below_the_store_or_prefix(store):
    for key in ("a/c/0", "a/zarr.json", "ab/zarr.json", "zarr.json"):
        put(store, key, b"x")
    put(Store(f"{store.url}2", store=store._given), "zarr.json", b"x")
    assert sorted(await collected(store.list())) == ["a/c/0", "a/zarr.json", "ab/zarr.json", "zarr.json"]
    assert sorted(await collected(store.list_prefix("a"))) == ["a/c/0", "a/zarr.json", "ab/zarr.json"]
    assert sorted(await collected(store.list_dir("a/"))) == ["c", "zarr.json"]
    await store.clear()
    assert (await store.is_empty(""), await Store(f"{store.url}2", store=store._given).is_empty("")) == (True, False)


async def test_more_than_a_page_is_listed_and_deleted(server, remote):
    names = [f"a/c/{number:04}" for number in range(1_500)]
    for name in names:
        server.put(server.bucket, f"data.zarr/{name}", b"")
    server.put(server.bucket, "other/c/0", b"")
    assert await collected(remote.list()) == names
    await remote.delete_dir("a")
    assert [*server.objects(server.bucket)] == ["other/c/0"]


async def test_a_whole_bucket_is_not_cleared(server):
    server.put(server.bucket, "data.zarr/zarr.json", b"{}")
    whole = Store(f"s3://{server.bucket}", store=server.store)
    for act in (whole.clear(), whole.delete_dir(""), whole.delete_dir("/")):
        with pytest.raises(InvalidURL, match="whole bucket"):
            await act
    with pytest.raises(InvalidURL, match="whole bucket"):
        await asyncio.to_thread(zarr.open_group, whole, mode="w")
    assert await collected(whole.list()) == ["data.zarr/zarr.json"]
    with pytest.raises(InvalidURL, match="working directory"):
        await Store(".").clear()


async def test_a_new_value_in_parts_or_in_one_is_whole(server):
    options = replace(server.store, write=ps.WriteOptions(part_bytes=5 << 20))
    store = Store(f"s3://{server.bucket}/data.zarr", store=options)
    small, large = os.urandom(1000), os.urandom(12 << 20)
    await store.set("a/c/0", buffer(small))
    await store.set("a/c/1", buffer(large))
    await store.set("a/c/2", cpu.Buffer.from_array_like(np.frombuffer(small, "B")[::1]))
    found = server.objects(server.bucket)
    assert [found[f"data.zarr/a/c/{number}"] for number in range(3)] == [small, large, small]
    assert len(server.seen("part", server.bucket)) == 3


async def test_of_several_first_writers_one_wins(store):
    values = [bytes([number]) * 1000 for number in range(8)]
    await asyncio.gather(*(store.set_if_not_exists("zarr.json", buffer(each)) for each in values))
    assert await got(store, "zarr.json") in values


@pytest.mark.parametrize("value", [b"bytes", np.zeros(3), None, "text"], ids=["bytes", "array", "none", "text"])
async def test_only_buffers_are_written(store, value):
    with pytest.raises(TypeError, match="Buffer"):
        await store.set("a/c/0", value)


async def test_a_store_that_is_read_only_changes_nothing(store):
    put(store, "zarr.json", b"{}")
    reader = store.with_read_only(read_only=True)
    assert (reader.read_only, reader.url, store.read_only) == (True, store.url, False)
    for act in (
        reader.set("zarr.json", buffer(b"x")),
        reader.set_if_not_exists("new", buffer(b"x")),
        reader.delete("zarr.json"),
        reader.delete_dir(""),
        reader.clear(),
    ):
        with pytest.raises(ValueError, match="read-only"):
            await act
    assert await collected(store.list()) == ["zarr.json"]
    assert await got(reader, "zarr.json") == b"{}"


# -- refusals --------------------------------------------------------------------------------------------------------


async def test_missing_bucket_raises_instead_of_showing_an_empty_array(server):
    store = Store("s3://nowhere-at-all/data.zarr", store=server.store)
    for act in (
        lambda: store.get("zarr.json", PROTOTYPE),
        lambda: store.get("a/c/0", PROTOTYPE, SuffixByteRequest(4)),
        lambda: store.get_partial_values(PROTOTYPE, [("a/c/0", None)]),
        lambda: collected(store.list()),
        lambda: store.is_empty(""),
        lambda: store.set("zarr.json", buffer(b"{}")),
        lambda: store.delete("zarr.json"),
        lambda: asyncio.to_thread(zarr.open, store, mode="r"),
        lambda: asyncio.to_thread(zarr.open, store),
    ):
        with pytest.raises(Unusable, match="NoSuchBucket") as raised:
            await act()
        assert not isinstance(raised.value, FileNotFoundError)


async def test_a_refusal_is_missing_only_on_request(server, remote):
    server.put(server.bucket, "data.zarr/a/c/0", b"0123")
    server.fail(FAULTS["denied"], when=Match(times=None))
    for act in (got(remote, "a/c/0"), got(remote, "a/c/0", SuffixByteRequest(2)), remote.exists("a/c/0")):
        with pytest.raises(Forbidden):
            await act
    lenient = Store(remote.url, store=server.store, forbidden_is_missing=True)
    assert await got(lenient, "a/c/0") is None
    assert not await lenient.exists("a/c/0")
    assert (lenient == remote, loads(ForkingPickler.dumps(lenient)) == lenient) == (False, True)
    server.heal()
    server.fail(FAULTS["expired"], when=Match(times=None))
    with pytest.raises(ps.errors.Unauthenticated):
        await got(lenient, "a/c/0")


@pytest.mark.parametrize("url", ["s3://", "", "nothing://a/b", "http://host/a.zarr?sig=secret", "s3://k:v@bucket/a"])
def test_a_url_that_cannot_be_is_refused_at_once(url):
    with pytest.raises(Unusable) as raised:
        Store(url)
    assert "sig=secret" not in str(raised.value)


@pytest.mark.parametrize("argument", ["read_only", "forbidden_is_missing"])
def test_a_text_for_a_switch_is_refused(argument):
    with pytest.raises(Unusable, match=f"{argument} must be True or False, got 'no'"):
        Store("s3://bucket/a.zarr", **{argument: "no"})


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "a/../../b", ".."], ids=ascii)
async def test_a_key_that_no_store_holds_is_refused(store, key):
    with pytest.raises(InvalidURL):
        await store.set(key, buffer(b"x"))
    with pytest.raises(InvalidURL):
        await store.set_if_not_exists(key, buffer(b"x"))
    for act in (lambda: store.get(key, PROTOTYPE), lambda: store.exists(key), lambda: store.delete(key)):
        if "\0" in key:
            continue  # it is asked for like any other, and is nowhere
        with pytest.raises(InvalidURL):
            await act()
    assert await store.is_empty("")


async def test_a_key_that_a_provider_refuses_is_an_error(tmp_path, remote):
    local = Store(tmp_path)
    for store, key in ((local, ".penstock-x"), (local, "a/"), (remote, "x" * 2000)):
        with pytest.raises(InvalidURL):
            await store.set(key, buffer(b"x"))
        with pytest.raises(InvalidURL):
            await store.get(key, PROTOTYPE)


def test_opening_a_plain_file_as_array_raises_file_not_found(tmp_path, server):
    (tmp_path / "a.nc").write_bytes(b"CDF")
    server.put(server.bucket, "a.nc", b"CDF")
    for store in (Store(tmp_path / "a.nc"), Store(f"s3://{server.bucket}/a.nc", store=server.store)):
        with pytest.raises(FileNotFoundError, match=r"a\.nc"):
            zarr.open(store, mode="r")


def test_a_store_without_zarr_names_the_extra():
    code = "import sys; sys.modules['zarr'] = None\nimport penstock.interop.zarr"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "MissingExtra: a Store is for zarr: pip install 'penstock[zarr]'" in run.stderr


# -- what a Store is -------------------------------------------------------------------------------------------------


def test_stores_are_equal_where_place_options_and_rights_are(server, remote):
    assert remote == Store(f"{remote.url}/", store=server.store)
    assert remote != Store(remote.url)
    assert remote != remote.with_read_only(read_only=True)
    assert remote != Store(f"s3://{server.bucket}/data", store=server.store)
    assert remote != remote.url
    assert "secret" not in f"{remote!r} {remote}"
    assert (str(remote), repr(Store("s3://bucket/x/", read_only=True))) == (
        remote.url,
        "Store('s3://bucket/x', read_only=True)",
    )


def test_secrets_go_to_workers_alone(remote):
    with pytest.raises(Unusable, match="secret"):
        dumps(remote)
    assert loads(ForkingPickler.dumps(remote)) == remote
    assert loads(dumps(Store("s3://bucket/x", read_only=True))) == Store("s3://bucket/x", read_only=True)


def test_a_web_server_is_read_only(remote):
    web = Store("http://127.0.0.1:1/data.zarr")
    assert (web.supports_writes, web.supports_deletes) == (False, False)
    assert (remote.supports_writes, remote.supports_deletes, remote.supports_listing) == (True, True, True)


# -- loops, threads, processes ---------------------------------------------------------------------------------------


def _sum(store):
    return int(zarr.open_array(store, mode="r")[:].sum())


@pytest.fixture
def filled(remote):
    """Return a store with an array of 64 chunks in it."""
    array = zarr.create_array(remote, shape=(64, 64), chunks=(8, 8), dtype="i4")
    array[:] = np.arange(64 * 64).reshape(64, 64)
    return remote


@pytest.mark.parametrize(("method", "number"), [("fork", 2), ("spawn", 1)])
def test_an_array_is_read_in_children_after_its_parent_has_read(filled, method, number):
    expected = _sum(filled)
    context = get_context(method)
    queue = context.SimpleQueue()
    children = [context.Process(target=_child, args=(filled, queue)) for _ in range(number)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [expected] * number
    for child in children:
        child.join()
    assert _sum(filled) == expected


def _child(store, queue):
    queue.put(_sum(store))


def test_two_loops_read_one_store_at_once(filled):
    met, results = threading.Barrier(2), []

    async def read():
        found = await asyncio.gather(*(got(filled, f"c/{number // 8}/{number % 8}") for number in range(64)))
        return sum(map(len, found))

    def run():
        met.wait()
        results.append(asyncio.run(read()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [asyncio.run(read())] * 2


async def test_reads_progress_while_the_event_loop_is_busy(filled):
    reads = [asyncio.ensure_future(got(filled, f"c/0/{number}")) for number in range(8)]
    await asyncio.sleep(0)
    turns = 0
    while not all(each.done() for each in reads):  # the loop does other work in every turn
        sum(range(20_000))
        turns += 1
        await asyncio.sleep(0)
    assert all(each.result() for each in reads)


async def test_a_read_that_is_cancelled_is_called_off(filled, server):
    server.fail(FAULTS["stall"], when=Match(verb="get", times=None))
    reads = [asyncio.ensure_future(got(filled, f"c/0/{number}")) for number in range(4)]
    await asyncio.to_thread(_until, lambda: len(server.seen("get", server.bucket)) >= 4)
    for each in reads:
        each.cancel()
    assert await asyncio.gather(*reads, return_exceptions=True) == [AnyOf(asyncio.CancelledError)] * 4
    server.heal()
    assert await got(filled, "c/0/0")


class AnyOf:
    def __init__(self, kind):
        self.kind = kind

    def __eq__(self, other):
        return isinstance(other, self.kind)

    def __hash__(self):
        return hash(self.kind)


def _until(holds):
    while not holds():
        threading.Event().wait(0.005)


@pytest.mark.parametrize("request_", [RangeByteRequest(0, 0), RangeByteRequest(3, 9), SuffixByteRequest(0)], ids=str)
def test_a_request_that_makes_sense_is_taken(request_):
    assert check_byte_request(request_) is request_
    assert check_byte_request(None) is check_byte_request(OffsetByteRequest(0)) is None


@pytest.mark.parametrize(
    "request_", [RangeByteRequest(-1, 3), RangeByteRequest(3, 2), SuffixByteRequest(-1), OffsetByteRequest(-5)], ids=str
)
def test_a_request_that_makes_no_sense_is_refused(request_):
    with pytest.raises(ValueError, match="Unexpected byte_range, got"):
        check_byte_request(request_)


@pytest.mark.parametrize("request_", [(0, 2), 3, "0-1", slice(0, 2)], ids=str)
def test_invalid_byte_range_request_is_refused(request_):
    with pytest.raises(TypeError, match="Unexpected byte_range, got"):
        check_byte_request(request_)


def test_request_that_needs_no_object_size_becomes_one_span():
    assert direct("k", RangeByteRequest(3, 9), 6) == Span("k", 3, 9)
    assert direct("k", SuffixByteRequest(6), 6) == Span("k", -6)
    for request in (RangeByteRequest(3, 10), SuffixByteRequest(7), RangeByteRequest(3, 3), SuffixByteRequest(0)):
        assert direct("k", request, 6) is None
    assert direct("k", OffsetByteRequest(1), 6) is None


@pytest.mark.parametrize(
    ("request_", "low", "high", "whole"),
    [
        (RangeByteRequest(3, 9), 3, 9, False),
        (RangeByteRequest(0, 10), 0, 10, True),
        (RangeByteRequest(3, 99), 3, 10, False),
        (RangeByteRequest(50, 99), 10, 10, False),
        (OffsetByteRequest(4), 4, 10, False),
        (OffsetByteRequest(40), 10, 10, False),
        (SuffixByteRequest(4), 6, 10, False),
        (SuffixByteRequest(40), 0, 10, True),
    ],
    ids=str,
)
def test_a_request_ends_where_the_object_does_and_is_held_to_its_version(request_, low, high, whole):
    assert clip_request(request_, ObjectMeta("k", 10, "tag")) == Span("k", low, high, "tag", whole)


@pytest.mark.parametrize(
    ("key", "array"),
    [
        ("tas/c/0/1/2", "tas"),
        ("a/b/c/0", "a/b"),
        ("c/0/0", ""),
        ("tas/c.0.1", "tas"),
        ("tas/0.1.2", "tas"),
        ("tas/0/1/2", "tas"),
        ("0.0", ""),
        ("7", ""),
        ("scalar/c", "scalar"),
        ("tas/zarr.json", None),
        ("tas/.zarray", None),
        (".zmetadata", None),
        ("c/zarr.json", None),
        ("2m_temperature/zarr.json", None),
        ("tas/c/0/x", None),
    ],
)
def test_chunk_key_is_recognized_by_its_indices(key, array):
    assert array_of(key) == array


@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 3},
        {"zarr_format": 2},
        {"zarr_format": 3, "chunk_key_encoding": {"name": "default", "separator": "."}},
        {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
        {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"zarr_format": 3, "shards": (4, 4)},
    ],
    ids=str,
)
def test_chunk_keys_written_by_zarr_are_recognized(options):
    kept = {}
    zarr.create_array(MemoryStore(kept), name="g/tas", shape=(8, 8), chunks=(2, 2), dtype="i4", **options)[:] = 1
    chunks = [key for key in kept if "." not in key.rpartition("/")[2] or key[-1].isdigit()]
    assert len(chunks) in (4, 16)
    assert {key: array_of(key) for key in kept} == {key: "g/tas" if key in chunks else None for key in kept}


def test_the_next_chunk_is_expected_to_be_little_larger_than_those_before():
    sizes = ChunkSizes()
    assert sizes.bound("a") == sizes.bound(None) == UNKNOWN_BYTES
    sizes.add("a", 1600)
    sizes.add("b", 10)
    sizes.add(None, 99)
    sizes.add("c", 0)
    assert (sizes.bound("a"), sizes.bound("b"), sizes.bound("c"), sizes.bound(None)) == (
        1700,
        10,
        UNKNOWN_BYTES,
        UNKNOWN_BYTES,
    )
    sizes.add("a", 800)
    assert sizes.bound("a") == 1700
    sizes.add("a", 3200)
    assert sizes.bound("a") == 3400
