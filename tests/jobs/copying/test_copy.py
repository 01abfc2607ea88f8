"""One object is copied whole or not at all, and a source goes only after its copy was seen."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from threading import Event

import pytest

import penstock as ps
from penstock.engine.write.parts import Parts
from penstock.errors import Cancelled, Changed, Damaged, NotFound
from penstock.jobs.copying.copy import CopyJob, copy, cost_bytes, delete_source
from penstock.source import open_source
from penstock.values import ObjectMeta
from tests.jobs.carry import carry

MIB = 1 << 20


def test_a_file_that_changes_while_it_goes_up_publishes_nothing(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(bytes(40 * MIB))
    source, key = open_source(path)
    target, _ = open_source("memory://changing/")
    job = CopyJob(source, source.head(key), target, "copy")
    sizes = []

    def write_to_it(moved_bytes):
        sizes.append(moved_bytes)
        if sum(sizes) == 40 * MIB:  # all of it was read, and was right then
            with path.open("ab") as file:
                file.write(b"more")

    with pytest.raises(Changed, match="written to while it was copied"):
        carry(copy(job, write_to_it, Event()))
    assert list(ps.list("memory://changing/")) == []
    assert sum(sizes) == 40 * MIB


def test_an_object_that_was_replaced_since_it_was_listed_is_not_mixed_with_its_successor():
    source, _ = open_source("memory://replaced/")
    target, _ = open_source("memory://replacing/")
    source.put("key", b"old")
    listed = replace(source.head("key"), content_type="")  # as stores list it
    source.put("key", b"new", metadata={"of": "new"})
    with pytest.raises(Changed):
        carry(copy(CopyJob(source, listed, target, "copy"), lambda _: None, Event()))
    assert target.page("").entries == ()


@pytest.fixture
def job(request):
    """Put an object under a name of this test's own; it is to go elsewhere."""
    source, key = open_source(f"memory://from-{request.node.name}/a")
    target, to = open_source(f"memory://to-{request.node.name}/b")
    source.put(key, b"first")
    return CopyJob(source, source.head(key), target, to)


def test_a_source_is_deleted_once_its_copy_was_seen_whole(job):
    carry(copy(job, lambda _: None, stop=None))
    carry(delete_source(job))
    assert job.target.head("b").size == 5
    with pytest.raises(NotFound):
        job.source.head("a")


def test_a_copy_of_another_size_saves_the_source(job):
    job.target.put("b", b"trunc"[:2])
    with pytest.raises(Damaged, match="5 bytes were copied, but the copy has 2; the source was not deleted"):
        carry(delete_source(job))
    assert job.source.head("a").size == 5


def test_a_copy_that_is_not_there_saves_the_source(job):
    with pytest.raises(NotFound):
        carry(delete_source(job))
    assert job.source.head("a").size == 5


def test_a_source_that_was_written_since_is_not_deleted(job):
    carry(copy(job, lambda _: None, stop=None))
    job.source.put("a", b"other")
    with pytest.raises(Changed):
        carry(delete_source(job))
    assert job.source.head("a").size == 5


def test_copy_costs_the_size_of_a_small_object_or_one_stream_buffer():
    assert [cost_bytes(ObjectMeta("a", size)) for size in (0, 8 * MIB)] == [0, 8 * MIB]
    assert cost_bytes(ObjectMeta("a", 8 * MIB + 1)) == cost_bytes(ObjectMeta("a", 1 << 40)) == 128 * MIB


SIZES, PARTS = (16 * MIB, 16 * MIB + 1, 40 * MIB), (5 * MIB, 12 * MIB, 16 * MIB, 32 * MIB)
MORE = (200 * MIB + 7, 12 * MIB)  # than is buffered at a time, in parts that do not divide it: seconds of work, so once


@pytest.mark.parametrize(("size", "part_bytes"), [*product(SIZES, PARTS), MORE])
def test_large_object_is_copied_completely_for_any_part_size(tmp_path, size, part_bytes, seed):
    data = random.Random(seed).randbytes(MIB + 1) * (size // MIB + 1)
    path = tmp_path / "long"
    path.write_bytes(memoryview(data)[:size])
    here, key = open_source(path)
    options = ps.StoreOptions(write=ps.WriteOptions(part_bytes=part_bytes))
    there, _ = open_source(f"memory://whole-{size}-{part_bytes}/", options)
    back, to = open_source(tmp_path / "back", options)
    moved = []
    carry(copy(CopyJob(here, here.head(key), there, "a"), moved.append, Event()))
    carry(copy(CopyJob(there, there.head("a"), back, to), moved.append, Event()))
    assert sum(moved) == 2 * size
    assert (tmp_path / "back").read_bytes() == data[:size]


def test_parts_are_read_into_memory_that_is_used_again(tmp_path, monkeypatch):
    path = tmp_path / "long"
    path.write_bytes(bytes(400 * MIB))
    source, key = open_source(path)
    target, _ = open_source("memory://reused/")
    asked, new = [], []
    buffer = Parts.buffer

    def watched(self, size):
        found = buffer(self, size)
        asked.append(size)
        if not any(found is each for each in new):
            new.append(found)  # held, so that no other has its place
        return found

    monkeypatch.setattr(Parts, "buffer", watched)
    carry(copy(CopyJob(source, source.head(key), target, "a"), lambda _: None, Event()))
    assert len(asked) == 25
    assert len(new) <= 8
    assert target.head("a").size == 400 * MIB


def test_a_copy_that_is_called_off_publishes_nothing_and_reads_no_more(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(bytes(100 * MIB))
    source, key = open_source(path)
    target, _ = open_source("memory://called-off/")
    stop, moved = Event(), []

    def count(size):
        moved.append(size)
        stop.set()

    with pytest.raises(Cancelled):
        carry(copy(CopyJob(source, source.head(key), target, "a"), count, stop))
    assert moved == [8 * MIB]
    assert target.page("").entries == ()
    assert [*target.unfinished("")] == []
