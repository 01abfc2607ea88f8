"""Copies: equal bit for bit, in bounded memory, with each chunk read once, and nothing half done that looks whole."""

from __future__ import annotations

import itertools
import os
import random
import signal
import uuid
from math import ceil, prod

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import penstock as ps
from penstock.errors import (
    AlreadyExists,
    ChecksumMismatch,
    Damaged,
    DatasetChanged,
    InvalidURL,
    NotFound,
    StateMismatch,
    Unusable,
)
from penstock.interop.zarr import Store, copy
from penstock.interop.zarr import rechunk as running
from penstock.interop.zarr.rechunk import (
    CopyOptions,
    CopyRun,
    Grids,
    Journal,
    Regions,
    memory_bytes,
    object_reads,
    ranges,
    regions,
)
from penstock.source import Source, open_source
from penstock.values import Span
from tests.children import PEAK_KIB, python

KILLS = 10
SHAPE = (48, 10, 12)


@pytest.fixture
def folder():
    return f"memory://copies/{uuid.uuid4().hex}"


def values_of(dtype, shape=SHAPE, seed=0):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 200, shape).astype(dtype) if dtype != "U" else draw.choice(["a", "bcd", ""], shape)


def fill(url, *, dtype="f4", **how):
    how = {"chunks": (16, 5, 12), "shape": SHAPE, "fill_value": 3} | how
    array = zarr.create_array(Store(url), dtype=dtype, attributes={"units": "K"}, **how)
    array[:] = values_of(dtype, how["shape"])
    return array


LAYOUTS = {
    "v2": {"zarr_format": 2},
    "v2, F, big, nested": {
        "zarr_format": 2,
        "order": "F",
        "dtype": ">f4",
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "v3": {"dimension_names": ("time", "y", "x")},
    "sharded": {"chunks": (4, 5, 6), "shards": (16, 10, 12)},
    "small": {"dtype": "u1", "chunks": (1, 10, 12)},
}
WISHES = {
    "as is": {},
    "one step": {"chunks": (1, -1, -1)},
    "across": {"chunks": (48, 3, 7), "codec": "blosc-lz4"},
    "shards": {"chunks": (1, 10, 12), "shards": (20, 10, 12), "codec": "none"},
}


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rechunked_copy_equals_its_source_in_every_layout(folder, layout, wish):
    source = fill(f"{folder}/a", **LAYOUTS[layout])
    how = dict(WISHES[wish])
    if layout.startswith("v2") and "shards" in how:
        how["zarr_format"] = 3
    if layout == "sharded" and "chunks" in how and "shards" not in how:
        how["shards"] = "none"
    done = copy(f"{folder}/a", f"{folder}/b", **how)
    assert (done.complete, done.resumed) == (True, 0)
    made = zarr.open_array(Store(f"{folder}/b"), mode="r")
    assert np.array_equal(made[:], source[:])
    assert (made.attrs.asdict(), made.fill_value) == ({"units": "K"}, 3)
    assert made.metadata.zarr_format == how.get("zarr_format", source.metadata.zarr_format)
    if "chunks" in how:
        assert made.chunks == tuple(
            size if each == -1 else each for each, size in zip(how["chunks"], SHAPE, strict=True)
        )
    assert (made.shards or "none") == how.get("shards", source.shards or "none")
    assert made.metadata.to_dict().get("dimension_names") == source.metadata.to_dict().get("dimension_names")
    assert not [each for each in ps.list(f"{folder}/b/") if ".zarr-copy" in each.key]


@pytest.mark.parametrize(
    "place", ["moto", pytest.param("ceph", marks=pytest.mark.ceph), "azurite", "gcs-keys"], indirect=True
)
def test_a_copy_is_equal_and_leaves_no_journal_in_each_dialect(place):
    source = Store(f"{place.url}a", store=place.store)
    array = zarr.create_array(source, shape=SHAPE, dtype="f4", chunks=(16, 5, 12), dimension_names=("time", "y", "x"))
    array[:] = values_of("f4")
    done = copy(f"{place.url}a", f"{place.url}b", chunks=(1, 10, 12), shards=(20, 10, 12), store=place.store)
    assert (done.complete, done.resumed) == (True, 0)
    made = zarr.open_array(Store(f"{place.url}b", store=place.store), mode="r")
    assert (made.shape, made.chunks, made.shards) == (SHAPE, (1, 10, 12), (20, 10, 12))
    assert np.array_equal(made[:], values_of("f4"))
    keys = {key for key in place.objects() if key.startswith("b/")}
    assert keys == {"b/zarr.json", "b/c/0/0/0", "b/c/1/0/0", "b/c/2/0/0"}


def test_groups_and_open_objects_of_other_stores(folder):
    memory = MemoryStore()
    root = zarr.open_group(memory, mode="w", zarr_format=2, attributes={"title": "era"})
    for name, dtype in (("a/tas", "f8"), ("a/time", "i8"), ("words", "U")):
        values = values_of(dtype, (6, 4))
        root.create_array(name, shape=(6, 4), chunks=(3, 2), dtype="U3" if dtype == "U" else dtype)[:] = values
    root.create_array("empty", shape=(0, 4), chunks=(3, 2), dtype="f4")
    root.create_array("scalar", shape=(), dtype="i4")[...] = 42
    zarr.consolidate_metadata(memory)
    copy(zarr.open(memory, mode="r"), f"{folder}/all", chunks={"a/tas": (1, 4)})
    made = zarr.open_consolidated(Store(f"{folder}/all"), mode="r")
    assert made["a/tas"].chunks == (1, 4)
    for name in ("a/tas", "a/time", "words", "scalar", "empty"):
        assert np.array_equal(made[name][...], root[name][...]), name


def test_bits_that_zarr_takes_for_the_fill_value_are_kept(folder):
    other_nan = np.array([0x7FC00001], "u4").view("f4")
    array = zarr.create_array(Store(f"{folder}/a"), shape=8, chunks=4, dtype="f4", fill_value=np.nan)
    array.with_config({"write_empty_chunks": True})[:4] = np.repeat(other_nan, 4)
    copy(f"{folder}/a", f"{folder}/b", chunks=2)
    found = zarr.open_array(Store(f"{folder}/b"), mode="r")[:]
    assert np.array_equal(found.view("u4"), array[:].view("u4"))


def test_chunks_with_only_fill_values_remain_absent_after_rechunk(folder):
    array = zarr.create_array(Store(f"{folder}/a"), shape=(8, 4), chunks=(2, 4), dtype="f4", fill_value=np.nan)
    array[6] = 1
    copy(f"{folder}/a", f"{folder}/b", chunks=(1, 4))
    assert [each.key[-5:] for each in ps.list(f"{folder}/b/c/")] == ["c/6/0"]
    assert np.array_equal(zarr.open_array(Store(f"{folder}/b"), mode="r")[:], array[:], equal_nan=True)


def test_rechunk_reads_each_chunk_once_and_verifies_written_chunks(server, bucket):
    source = zarr.create_array(
        Store(f"s3://{bucket}/a", store=server.store), shape=SHAPE, chunks=(16, 5, 12), dtype="f4"
    )
    source[:] = values_of("f4")
    before = len(server.seen("", bucket))
    done = copy(f"s3://{bucket}/a", f"s3://{bucket}/b", chunks=(1, 10, 12), store=server.store)
    seen = server.seen("", bucket)[before:]
    reads = [each.key for each in seen if each.verb == "get" and each.key.startswith("a/c/")]
    assert len(reads) == len(set(reads)) == 6
    assert done.arrays[0].reads == 1
    puts = [each.key for each in seen if each.verb == "put" and each.key.startswith("b/")]
    assert len([key for key in puts if key.startswith("b/c/")]) == 48
    assert puts[-1] == "b/zarr.json", "the metadata comes last"
    assert {each.key for each in seen if each.verb == "get"} >= {key for key in puts if key.startswith("b/c/")}


def killed(work, moment, after):
    """Run ``work`` in a child that is killed at its ``moment``-th write, before or ``after`` it; how it ended."""
    pid = os.fork()
    if not pid:
        status, original, writes = 1, Source.put, itertools.count(1)

        def put(*arguments, **more):
            number = next(writes)
            if number == moment and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            original(*arguments, **more)
            if number == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        Source.put = put
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_rechunk_killed_at_any_moment_is_resumed_by_the_next_run(tmp_path, seed):
    draw = random.Random(seed)
    source = zarr.create_array(zarr.storage.LocalStore(tmp_path / "a"), shape=(200, 6), chunks=(7, 6), dtype="f4")
    source[:] = values_of("f4", (200, 6))

    def work():
        options = CopyOptions(chunks=(1, 6), resume=True, memory_bytes=4000)
        run = CopyRun(f"{tmp_path}/a", f"{tmp_path}/b", options, None)
        run.journal_s = 0
        run.execute(progress=False)

    kills = 0
    for _ in range(KILLS):
        status = killed(work, draw.randint(1, 40), after=draw.random() < 0.5)
        assert status in (-signal.SIGKILL, 0)
        kills += status != 0
        if status:
            with pytest.raises(FileNotFoundError):
                zarr.open_array(Store(f"{tmp_path}/b"), mode="r")
    assert kills >= KILLS - 1
    rest = CopyRun(f"{tmp_path}/a", f"{tmp_path}/b", CopyOptions(chunks=(1, 6), resume=True, memory_bytes=4000), None)
    rest.execute()
    assert rest.result.complete
    assert rest.result.resumed > 0
    assert np.array_equal(zarr.open_array(Store(f"{tmp_path}/b"), mode="r")[:], source[:])
    assert not [each for each in ps.list(f"{tmp_path}/b/") if ".zarr-copy" in each.key]


def test_a_kill_between_the_last_steps_leaves_a_complete_copy(folder, monkeypatch):
    fill(f"{folder}/a")
    monkeypatch.setattr(running.Journal, "end", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        copy(f"{folder}/a", f"{folder}/b")
    monkeypatch.undo()
    done = copy(f"{folder}/a", f"{folder}/b", resume=True)
    assert (done.complete, done.resumed, done.size_bytes) == (True, done.regions, 0)
    again = copy(f"{folder}/a", f"{folder}/b", resume=True)
    assert (again.complete, again.size_bytes) == (True, 0)
    assert not [each for each in ps.list(f"{folder}/b/") if ".zarr-copy" in each.key]


@pytest.mark.parametrize("opened", [False, True], ids=["url", "array"])
def test_copy_of_values_written_anew_is_not_continued_nor_complete(tmp_path, monkeypatch, opened):
    monkeypatch.setattr(running, "_WORTHWHILE_BYTES", 0)
    array = fill(f"{tmp_path}/a")
    source = zarr.open_array(f"{tmp_path}/a", mode="r") if opened else f"{tmp_path}/a"
    copied, count = running._copy, itertools.count()

    def stop(*given):
        if next(count) == 2:
            raise ChecksumMismatch("stopped")
        copied(*given)

    with monkeypatch.context() as patch:
        patch.setattr(running, "_copy", stop)
        with pytest.raises(ChecksumMismatch):
            copy(source, f"{tmp_path}/b", chunks=(1, 5, 12))
    array[:] = values_of("f4", seed=1)
    with pytest.raises(StateMismatch, match="the source was written after the unfinished copy"):
        copy(source, f"{tmp_path}/b", chunks=(1, 5, 12), resume=True)
    assert copy(source, f"{tmp_path}/b", chunks=(1, 5, 12), overwrite=True).complete
    assert np.array_equal(zarr.open_array(f"{tmp_path}/b", mode="r")[:], values_of("f4", seed=1))
    assert copy(source, f"{tmp_path}/b", chunks=(1, 5, 12), resume=True).complete
    array[:] = values_of("f4", seed=2)
    with pytest.raises(StateMismatch, match="the source was written after its copy was complete"):
        copy(source, f"{tmp_path}/b", chunks=(1, 5, 12), resume=True)


def test_values_that_are_written_while_they_are_copied_are_an_error(tmp_path, monkeypatch):
    array, copied = fill(f"{tmp_path}/a"), running._copy

    def rewrite(*given):
        copied(*given)
        array[:] = 9

    monkeypatch.setattr(running, "_copy", rewrite)
    with pytest.raises(DatasetChanged, match="was written while it was copied"):
        copy(f"{tmp_path}/a", f"{tmp_path}/b")
    assert not (tmp_path / "b" / "zarr.json").exists()


def test_failed_rechunk_keeps_finished_regions_and_resume_copies_the_rest(folder, monkeypatch):
    fill(f"{folder}/a", chunks=(1, 10, 12))
    original, calls = running._copy, []

    def breaking(*arguments):
        calls.append(1)
        if len(calls) > 3:
            raise Damaged("broken")
        original(*arguments)

    monkeypatch.setattr(running, "_copy", breaking)
    with pytest.raises(Damaged, match="broken"):
        copy(f"{folder}/a", f"{folder}/b", memory_bytes=6000)
    monkeypatch.undo()
    with pytest.raises(AlreadyExists, match="unfinished copy exists: --resume"):
        copy(f"{folder}/a", f"{folder}/b", memory_bytes=6000)
    with pytest.raises(StateMismatch, match="different chunks, shards or codecs"):
        copy(f"{folder}/a", f"{folder}/b", chunks=(2, 10, 12), resume=True)
    done = copy(f"{folder}/a", f"{folder}/b", resume=True)  # with more memory: the regions stay what they were
    assert 0 < done.resumed <= 3
    assert np.array_equal(zarr.open_array(Store(f"{folder}/b"), mode="r")[:], values_of("f4"))


def test_existing_destination_is_replaced_only_with_overwrite(folder):
    fill(f"{folder}/a")
    fill(f"{folder}/b", shape=(4, 4), chunks=(2, 2))
    with pytest.raises(AlreadyExists, match="not empty: choose another, or --overwrite"):
        copy(f"{folder}/a", f"{folder}/b")
    with pytest.raises(AlreadyExists, match="not empty"):
        copy(f"{folder}/a", f"{folder}/b", resume=True)
    assert not copy(f"{folder}/a", f"{folder}/b", dry_run=True).complete
    assert zarr.open_array(Store(f"{folder}/b"), mode="r").shape == (4, 4)
    copy(f"{folder}/a", f"{folder}/b", overwrite=True)
    assert np.array_equal(zarr.open_array(Store(f"{folder}/b"), mode="r")[:], values_of("f4"))
    assert not [each for each in ps.list(f"{folder}/b/c/1/1/") if each.key.count("/") < 4]


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"chunks": (1, 2)}, Unusable, "are 2, but the array of shape"),
        ({"chunks": {"tmie": 1}}, Unusable, "unknown array or dimension 'tmie': did you mean 'time'"),
        ({"chunks": (4, 10, 12), "shards": (6, 10, 12)}, Unusable, "not a multiple of chunks"),
        ({"codec": "zsdt"}, Unusable, "did you mean 'zstd'"),
        ({"memory_bytes": 1000}, Unusable, "needs 1 MiB of memory for its copy, but only 1 MiB are allowed"),
        ({"resume": True, "overwrite": True}, Unusable, "pass one of them"),
        ({"zarr_format": 2}, Unusable, "to format 2"),
        ({"zarr_format": "3"}, Unusable, "zarr_format must be 2 or 3, got '3'"),
        ({"codec": 5}, Unusable, "codec must be a text such as 'zstd:5', got 5"),
        ({"memory_bytes": "1G"}, Unusable, "memory_bytes must be a whole number, got '1G'"),
        ({"dry_run": "no"}, Unusable, "dry_run must be True or False, got 'no'"),
        ({"resume": "yes"}, Unusable, "resume must be True or False, got 'yes'"),
    ],
)
def test_invalid_rechunk_options_are_refused_before_the_first_write(folder, how, error, said):
    fill(f"{folder}/a", dimension_names=("time", "y", "x"))
    with pytest.raises(error, match=said):
        copy(f"{folder}/a", f"{folder}/b", **how)
    assert not [*ps.list(f"{folder}/b/")]


def test_a_text_for_overwrite_deletes_nothing(folder):
    fill(f"{folder}/a")
    fill(f"{folder}/b")
    with pytest.raises(Unusable, match="overwrite must be True or False, got 'no'"):
        copy(f"{folder}/a", f"{folder}/b", overwrite="no", chunks=(1, 1, 1))
    assert np.array_equal(zarr.open_array(Store(f"{folder}/b"), mode="r")[:], values_of("f4"))


def test_places_that_lie_in_one_another_and_wrong_ones_are_refused(folder):
    fill(f"{folder}/a")
    for dest in (f"{folder}/a", f"{folder}/a/b", folder, f"{folder}/a/"):
        with pytest.raises(Unusable, match="overlap"):
            copy(f"{folder}/a", dest, overwrite=True)
    with pytest.raises(NotFound, match="no zarr array or group"):
        copy(f"{folder}/none", f"{folder}/b")
    with pytest.raises(InvalidURL, match="working directory"):
        copy(f"{folder}/a", ".", overwrite=True)
    with pytest.raises(Unusable):
        copy(f"{folder}/a", "https://example.invalid/b")


def test_a_chunk_that_cannot_be_decoded_is_named(folder):
    fill(f"{folder}/a")
    source, key = open_source(f"{folder}/a/c/1/0/0")
    source.put(key, b"no zstd at all")
    with pytest.raises(Damaged, match=r"array '/'\[.*\] cannot be decoded"):
        copy(f"{folder}/a", f"{folder}/b")


def test_a_store_that_loses_bits_is_noticed(folder, monkeypatch):
    fill(f"{folder}/a")
    original = Source.put

    def put(self, key, data, **more):
        bits = bytearray(data)
        if "/b/c/" in key:
            bits[-1] ^= 1
        original(self, key, bytes(bits), **more)

    monkeypatch.setattr(Source, "put", put)
    with pytest.raises(ChecksumMismatch, match="does not match the written data"):
        copy(f"{folder}/a", f"{folder}/b", codec="none")


def test_memory_stays_below_the_figure(tmp_path, monkeypatch):
    array = zarr.create_array(tmp_path / "a", shape=(64, 512, 512), chunks=(8, 128, 512), dtype="u4", compressors=None)
    draw = np.random.default_rng(0)
    for start in range(0, 64, 8):
        array[start : start + 8] = draw.integers(1 << 32, size=(8, 512, 512), dtype="u4")
    script = (
        PEAK_KIB
        + """
import sys
import numpy, zarr
from penstock.interop.zarr import copy
small = zarr.create_array(zarr.storage.MemoryStore(), shape=4, dtype="f4")
copy(small, sys.argv[2] + "/warm")
before = peak_kib()
done = copy(sys.argv[1], sys.argv[2] + "/b", chunks=(1, 512, 512), memory_bytes=48 << 20)
print((peak_kib() - before) >> 10, done.arrays[0].reads)
"""
    )
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # what is freed is given back: the allocator keeps some else
    ended = python(script, str(tmp_path / "a"), str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    grown_mib, reads = ended.stdout.split()
    assert float(reads) == 1
    assert int(grown_mib) <= 48


@pytest.fixture
def empty():
    return open_source(f"memory://journal/{uuid.uuid4().hex}/")


def test_ranges_of_numbers():
    assert [*ranges([5, 1, 2, 3, 9, 8])] == [(1, 4), (5, 6), (8, 10)]
    assert [*ranges([])] == []
    assert [*ranges([0])] == [(0, 1)]


def test_journal_merges_finished_regions_of_several_runs(empty):
    first, second = Journal(*empty), Journal(*empty)
    assert first.plan() is None
    first.begin("digest", "versions", {"a": (1, 2)})
    first.add({0, 1, 2})
    first.add({0, 1, 2, 5})
    second.add({7})
    again = Journal(*empty)
    plan = again.plan()
    again.check(plan, "digest", "versions")
    assert plan["boxes"] == {"a": [1, 2]}
    assert again.done(10) == {0, 1, 2, 5, 7}
    with pytest.raises(StateMismatch, match="--overwrite"):
        again.check(plan, "other", "versions")
    with pytest.raises(AlreadyExists, match="unfinished copy exists: --resume"):
        again.check_empty()
    with pytest.raises(AlreadyExists):
        again.begin("digest", "versions", {})
    again.end()
    again.check_empty()
    assert next(iter(empty[0].pages(empty[1]))).entries == ()


def test_clearing_takes_the_metadata_first(empty, monkeypatch):
    source, base = empty
    for key in ("c/0", "a/zarr.json", "zarr.json", "a/c/1", ".zattrs"):
        source.put(base + key, b"x")
    deleted = []
    monkeypatch.setattr(type(source), "delete", lambda _, keys: deleted.append(sorted(keys)))
    Journal(*empty).clear()
    assert deleted[0] == [base + key for key in (".zattrs", "a/zarr.json", "zarr.json")]
    assert {base + "c/0", base + "a/c/1"} <= {*deleted[1]}


def test_documents_are_compared_and_a_damaged_journal_is_named(empty):
    source, base = empty
    journal = Journal(*empty)
    journal.write({"a/zarr.json": b"1", "zarr.json": b"2"})
    assert journal.holds({"zarr.json": b"2", "a/zarr.json": b"1"})
    assert not journal.holds({"zarr.json": b"3"})
    assert not journal.holds({"none": b"3"})
    assert source.read(Span(f"{base}zarr.json")) == b"2"
    for damage in (b"{", b"[]", b"{}"):
        source.put(f"{base}.zarr-copy/plan.json", damage)
        with pytest.raises(Damaged, match="--overwrite"):
            journal.plan()


MIB = 1 << 20
_sizes = st.integers(1, 30)
_dims = st.lists(st.tuples(_sizes, st.integers(1, 12), st.integers(1, 12)), min_size=0, max_size=3)


def grids_of(dims, item_bytes=4):
    shape, source, dest = (tuple(each[i] for each in dims) for i in range(3))
    return Grids(shape, source, dest, item_bytes)


def counted(grids, cut):
    """Return how often objects of the source are touched, by walking through all regions."""
    return sum(
        prod(ceil(each.stop / step) - each.start // step for each, step in zip(cut[number], grids.source, strict=True))
        for number in range(len(cut))
    )


@given(_dims, st.integers(100, 20_000))
def test_each_element_lies_in_one_region_of_whole_objects(dims, limit_bytes):
    grids = grids_of(dims)
    cut = regions(grids, limit_bytes, max(limit_bytes, memory_bytes(grids, grids.dest)))
    times = np.zeros(grids.shape, int)
    for number in range(len(cut)):
        times[cut[number]] += 1
        for each, dest, size in zip(cut[number], grids.dest, grids.shape, strict=True):
            assert each.start % dest == 0
            assert each.stop % dest == 0 or each.stop == size
    assert (times == 1).all()
    assert object_reads(grids, cut.box) == counted(grids, cut)
    least = memory_bytes(grids, grids.dest)
    assert memory_bytes(grids, cut.box) <= max(limit_bytes, least)


@given(_dims)
def test_with_memory_enough_every_object_of_the_source_is_read_once(dims):
    grids = grids_of(dims)
    cut = regions(grids, 1 << 40, 1 << 40)
    assert object_reads(grids, cut.box) == prod(ceil(a / b) for a, b in zip(grids.shape, grids.source, strict=True))


def test_less_memory_costs_reads_and_none_is_refused():
    grids = Grids((1000, 512, 512), (100, 64, 64), (1, 512, 512), 4)
    reads = [object_reads(grids, regions(grids, size * MIB, size * MIB).box) / 640 for size in (1024, 256, 64)]
    assert reads[0] == 1
    assert reads == sorted(reads)
    assert reads[2] > 1
    with pytest.raises(Unusable, match=r"1x512x512 elements needs \d+ MiB of memory .* 4 MiB are allowed"):
        regions(grids, MIB, 4 * MIB)


def test_regions_that_fill_the_memory_are_taken_where_they_spare_reads():
    grids = Grids((64, 512, 512), (8, 128, 512), (1, 512, 512), 4)
    assert object_reads(grids, regions(grids, 20 * MIB, 48 * MIB).box) == 32
    assert object_reads(grids, regions(grids, 20 * MIB, 20 * MIB).box) > 32


def test_small_chunks_are_copied_many_at_once():
    cut = regions(Grids((10_000, 1000), (1, 1000), (1, 1000), 4), 256 * MIB, 1024 * MIB)
    assert MIB < prod(cut.box) * 4 <= 32 * MIB
    assert object_reads(Grids((10_000, 1000), (1, 1000), (1, 1000), 4), cut.box) == 10_000


def test_an_array_without_dimensions_is_one_region_and_one_without_elements_none():
    assert [Regions((), ())[number] for number in range(len(Regions((), ())))] == [()]
    assert len(regions(Grids((0, 4), (1, 4), (1, 4), 4), MIB, MIB)) == 0
