"""Contents of a dataset: its digest and pickle, chunks and indexes of shards by number, and kept arrays."""

import itertools
import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from threading import Barrier

import numpy as np
import pytest

import penstock as ps
from penstock.data.zarr.chunks.contents import Chunks, ShardIndex, ShardIndexes, whole_arrays
from penstock.data.zarr.dataset import ZarrDataset
from penstock.data.zarr.format.layout import ABSENT
from penstock.data.zarr.samples.extraction import Cut
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import Cancelled, ChecksumMismatch, Damaged, NotFound, Unusable
from penstock.interop.zarr import Store
from penstock.testing.faults import FaultServer
from tests.data.zarr.stores import DIMS, LAYOUTS, SHARDED, SPATIAL, VALUES, arrays_at, numbered, upload, write


def test_digest_depends_on_samples_but_not_on_location_or_shuffle(tmp_path):
    for name in "ab":
        write(tmp_path / name, VALUES, DIMS, **SPATIAL)
    write(tmp_path / "c", VALUES[:20], DIMS, **SPATIAL)

    def digest(name, **arguments):
        return ZarrDataset(str(tmp_path / name), **arguments).contents.digest

    assert digest("a") == digest("b") == digest("a", shuffle=True)
    different = [digest("a"), digest("c"), digest("a", offsets=1), digest("a", dims="y"), digest("a", patch={"y": 3})]
    different += [digest("a", stride=2), digest("a", select={"x": slice(0, 4)}), digest("a", valid=[0, *[1] * 20])]
    assert len({*different}) == len(different)
    contents = ZarrDataset(str(tmp_path / "a")).contents
    assert contents.digest is contents.digest  # each state of a training has it


def test_cuts_that_variables_have_in_common_are_written_out_once_for_a_digest(tmp_path, monkeypatch):
    made, counts = Cut.__repr__, []
    for count in (2, 20, 60):
        for number in range(count):
            write(tmp_path / f"{count}" / f"v{number}", VALUES, DIMS, **SPATIAL)
        written = []
        monkeypatch.setattr(Cut, "__repr__", lambda cut, written=written: written.append(cut) or made(cut))
        assert ZarrDataset({f"v{each}": str(tmp_path / f"{count}/v{each}") for each in range(count)}).contents.digest
        counts.append(len(written))
    assert counts == [3, 3, 3]


def test_pickled_contents_read_the_same(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    dataset = ZarrDataset(str(tmp_path / "a"), valid=[0, *[1] * 20])
    first = list(dataset)
    again = pickle.loads(pickle.dumps(dataset.contents))
    assert len(pickle.dumps(dataset.contents)) < 10_000
    assert again.digest == dataset.contents.digest
    assert len(again) == len(first) == 20


def test_an_array_that_all_samples_share_is_read_once(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    write(tmp_path / "height", VALUES[0], ("y", "x"), chunks=(4, 5))
    urls = {name: str(tmp_path / name) for name in ("a", "height")}
    dataset = ZarrDataset(urls, patch={"y": 3})
    kept = dataset.contents.kept[1]
    assert dataset.contents.kept[1] is kept
    for sample, (_, y) in zip(dataset, dataset.contents.arrangement.space.positions(np.arange(42)), strict=True):
        np.testing.assert_array_equal(sample["height"].numpy(), VALUES[0, y : y + 3])


def test_a_sample_is_named_by_its_place(tmp_path):
    write(tmp_path / "a", VALUES, DIMS, **SPATIAL)
    assert ZarrDataset(str(tmp_path / "a")).contents.name_of([7]).endswith("/a/ at time=7")


def test_concurrent_threads_read_the_kept_chunks_only_once(tmp_path, server):
    write(tmp_path / "a", numbered((8, 6), "f4"), ("y", "x"), chunks=(1, 6))
    upload(server, "bucket", tmp_path / "a")
    contents = ZarrDataset("s3://bucket/a", store=server.store).contents
    barrier = Barrier(8)

    def ask(_):
        barrier.wait()
        return contents.kept

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(ask, range(8))]
    assert all(each is found[0] for each in found)
    assert len([each for each in server.seen("get", "bucket") if "/c/" in each.key]) == 8  # chunks


def test_a_process_that_was_forked_while_another_thread_read_reads_by_itself(tmp_path):
    write(tmp_path / "a", numbered((8, 6), "f4"), ("y", "x"), chunks=(1, 6))
    contents = ZarrDataset(tmp_path / "a").contents
    context = get_context("fork")
    found = context.SimpleQueue()
    with contents._kept.lock:  # as a thread that reads has it
        child = context.Process(target=lambda: found.put(contents.kept[0].tolist()))
        child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert found.get() == numbered((8, 6), "f4").tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_values_of_an_array_are_read(tmp_path, layout):
    values = numbered((11, 6, 8))
    written = write(tmp_path / "a", values, ("t", "y", "x"), **LAYOUTS[layout])
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    [found] = whole_arrays(Chunks([array], "fill"), [0], array.source)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(found, written[...])


def test_a_chunk_that_was_never_written_is_full_of_the_fill_value(tmp_path):
    written = write(tmp_path / "a", numbered((4,)), ("t",), chunks=(2,), fill_value=7)
    next((tmp_path / "a").glob("c/1")).unlink()
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    [found] = whole_arrays(Chunks([array], "fill"), [0], array.source)
    assert found.tolist() == written[...].tolist() == [0, 1, 7, 7]


def test_array_of_too_many_chunks_is_refused_before_they_are_listed(tmp_path):
    write(tmp_path / "a", numbered((4,)), ("t",), chunks=(2,))
    [array] = arrays_at(str(tmp_path / "a"), decode_cf=False).values()
    many = array._replace(layout=replace(array.layout, shape=(1 << 40,)))
    with pytest.raises(Unusable, match="read as a whole, but has 549,755,813,888 chunks"):
        whole_arrays(Chunks([many], "fill"), [0], many.source)


@pytest.fixture
def arrays(tmp_path):
    for name, layout in LAYOUTS.items():
        write(tmp_path / name, VALUES, **layout)
    return [arrays_at(str(tmp_path / name))[""] for name in LAYOUTS]


def read(arrays, chunks, number):
    indexes = ShardIndexes(chunks, arrays[0].source)
    span = chunks.span(number, indexes)
    if span is None:
        return chunks.decode(number, None)
    with arrays[0].source.lookahead(iter([span])) as ahead:
        return chunks.decode(number, ahead.advance())


def test_each_number_is_a_chunk_of_its_array(arrays):
    chunks = Chunks(arrays, "fill")
    for array, first in zip(arrays, chunks.bases, strict=False):
        grid, size = array.layout.grid, array.layout.chunks
        for number, place in enumerate(itertools.product(*map(range, grid))):
            box = tuple(slice(at * each, (at + 1) * each) for at, each in zip(place, size, strict=True))
            found = read(arrays, chunks, first + number)
            wanted = VALUES[box]
            np.testing.assert_array_equal(found[tuple(map(slice, wanted.shape))], wanted)
            assert chunks.size_of(first + number) == found.nbytes


def test_a_missing_chunk_is_its_fill_value_or_an_error(tmp_path):
    write(tmp_path / "a", np.full((4, 2), 7, "f4"), chunks=(2, 2), fill_value=7.5)
    (tmp_path / "a" / "c" / "1" / "0").unlink()
    arrays = [arrays_at(str(tmp_path / "a"))[""]]
    assert read(arrays, Chunks(arrays, "fill"), 1).tolist() == [[7.5, 7.5], [7.5, 7.5]]
    with pytest.raises(NotFound, match='never written; missing="fill"') as failure:
        read(arrays, Chunks(arrays, "error"), 1)
    assert failure.value.url.endswith("/a/c/1/0")


def test_a_damaged_chunk_is_an_error_with_its_url(tmp_path):
    write(tmp_path / "a", VALUES, chunks=(21, 6, 8))
    path = tmp_path / "a" / "c" / "0" / "0" / "0"
    path.write_bytes(path.read_bytes()[:-20])
    arrays = [arrays_at(str(tmp_path / "a"))[""]]
    with pytest.raises(Damaged) as failure:
        read(arrays, Chunks(arrays, "fill"), 0)
    assert failure.value.url.endswith("/a/c/0/0/0")


@pytest.fixture
def sharded(tmp_path):
    write(tmp_path / "a", numbered((21, 6, 8)), **SHARDED)
    return [arrays_at(str(tmp_path / "a"))[""]]


def key(sharded, number):
    return 0, f"{sharded[0].layout.key}c/{number}/0/0"


def test_an_index_is_read_once(sharded):
    chunks, counts = Chunks(sharded, "fill"), ReadCounts()
    indexes = ShardIndexes(chunks, sharded[0].source, counts)
    indexes.ask([(key(sharded, 0), 0), (key(sharded, 1), 0), (key(sharded, 0), 1)])
    first = indexes.get(key(sharded, 0), 0)
    assert first.entries.shape == (8, 2)
    assert indexes.get(key(sharded, 0), 0) is first
    assert indexes.get(key(sharded, 1), 0) is not None
    assert ShardIndexes(chunks, sharded[0].source, counts).get(key(sharded, 0), 0) is first
    assert counts.requests == 2


def test_the_chunks_of_a_missing_shard_are_absent(sharded):
    indexes = ShardIndexes(Chunks(sharded, "fill"), sharded[0].source)
    index = indexes.get(key(sharded, 9), 0)
    assert (index.entries == ABSENT).all()
    assert len(index.entries) == 8
    assert index.size_bytes < 1000


def test_a_missing_shard_is_requested_once_per_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    values = numbered((64, 2)) + 1
    write(tmp_path / "a.zarr", values, chunks=(1, 2), shards=(16, 2), compressors=None)
    with FaultServer.within() as server:
        upload(server, "absent", tmp_path / "a.zarr", absent=("c/1/0", "c/2/0"))
        dataset = ps.ZarrDataset("s3://absent/a.zarr", shuffle=True, output="numpy", store=server.store)
        loader = ps.DataLoader(dataset, 4, decode_threads=2)

        def read():
            before = len(server.seen("get", "absent"))
            found = np.concatenate([np.stack(batch) for batch in loader])
            asked = [each.key for each in server.seen("get", "absent")[before:]]
            return sorted(found[:, 0].tolist()), [asked.count(f"a.zarr/c/{number}/0") for number in range(4)]

        rest = sorted([*values[:16, 0], *values[48:, 0]])
        first, counts = read()
        assert first == [0.0] * 32 + rest
        assert counts[1:3] == [1, 1]
        assert counts[0] == counts[3] > 16
        # The next epoch asks again, and finds the shard that was written meanwhile.
        upload(server, "absent", tmp_path / "a.zarr", absent=("c/2/0",))
        second, counts = read()
        assert second == sorted([0.0] * 16 + rest + [*values[16:32, 0]])
        assert counts[2] == 1


def test_a_damaged_index_is_an_error(sharded, tmp_path):
    path = tmp_path / "a" / "c" / "0" / "0" / "0"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    indexes = ShardIndexes(Chunks(sharded, "fill"), sharded[0].source)
    with pytest.raises(ChecksumMismatch, match="index"):
        indexes.get(key(sharded, 0), 0)


def test_the_indexes_used_longest_ago_go_first(sharded, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.chunks.contents._MOST_BYTES", 2000)
    cache = Chunks(sharded, "fill").indexes
    for number in range(4):
        cache.put((0, str(number)), ShardIndex(np.zeros((50, 2), np.uint64)))
        cache.get((0, "0"))
    assert [cache.get((0, str(number))) is not None for number in range(4)] == [True, False, False, True]


@pytest.mark.parametrize("place", ["local", "memory", "cached"])
def test_chunks_of_a_shard_written_anew_are_read_where_they_lie_now(tmp_path, monkeypatch, place):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    url = f"memory://{uuid.uuid4().hex}/a" if place == "memory" else str(tmp_path / "a")
    options = ps.StoreOptions(cache=ps.CacheOptions(path=str(tmp_path / "cache"))) if place == "cached" else None
    values = numbered((16, 2)) + 1
    begun = np.where(np.arange(16)[:, None] % 2, values, 0)
    array = write(Store(url), begun, chunks=(1, 2), shards=(8, 2), compressors=None)
    dataset = ps.ZarrDataset(url, output="numpy", store=options)
    assert np.array_equal(np.stack([*dataset]), begun)
    array[...] = values
    found = np.stack([*dataset])
    assert np.array_equal(found[1::2], values[1::2])
    assert np.array_equal(np.stack([*ps.ZarrDataset(url, output="numpy", store=options)]), values)


def test_a_closed_reading_asks_for_nothing(sharded):
    indexes = ShardIndexes(Chunks(sharded, "fill"), sharded[0].source)
    indexes.close()
    with pytest.raises(Cancelled):
        indexes.get(key(sharded, 0), 0)
    assert ps.Place().world == 1


def test_the_cache_of_indexes_is_pickled_empty():
    indexes = Chunks((), "raise").indexes
    indexes.put((0, "c/0"), ShardIndex(np.zeros((2, 2), np.uint64), "v1"))
    assert pickle.loads(pickle.dumps(indexes)).get((0, "c/0")) is None
