"""Two objects have the same bytes where an ETag proves it, and else where both were read."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.errors import Changed
from penstock.jobs.copying.copy import CopyJob
from penstock.jobs.copying.evidence import same_bytes, same_digest
from penstock.options import WriteOptions
from penstock.source import open_source

MIB = 1 << 20


@pytest.fixture
def server(s3_process, request):
    s3_process.bucket = f"b{abs(hash(request.node.name))}"
    s3_process.make(s3_process.bucket)
    return s3_process


def stored(server, key, data, part_bytes=16 * MIB):
    """Write an object in parts of a size; returns its source and what its store says of it."""
    store = replace(server.store, write=WriteOptions(part_bytes=part_bytes))
    source, _ = open_source(f"s3://{server.bucket}/", store)
    with source.open_write(key) as file:
        file.write(data)
    return source, source.head(key)


@pytest.fixture
def here(tmp_path, seed):
    """Return a file of 11 MiB, as a source and what is known of it, and its bytes."""
    data = random.Random(seed).randbytes(11 * MIB)
    (tmp_path / "file").write_bytes(data)
    source, key = open_source(tmp_path / "file")
    return source, source.head(key), data


def gets(server):
    return len(server.seen("get", server.bucket))


@pytest.mark.parametrize("part_bytes", [5 * MIB, 8 * MIB, 16 * MIB], ids=["two", "8", "whole"])
@pytest.mark.parametrize("up", [True, False])
def test_a_file_makes_the_etag_of_its_parts_and_the_object_is_not_read(here, server, part_bytes, up):
    file, meta, data = here
    store, found = stored(server, "k", data, part_bytes)
    before = gets(server)
    job, there = (CopyJob(file, meta, store, "k"), found) if up else (CopyJob(store, found, file, meta.key), meta)
    assert same_digest(job, there)
    assert same_bytes(job, there)
    assert gets(server) == before


@pytest.mark.parametrize("up", [True, False])
def test_bytes_that_differ_are_found_in_the_first_piece_that_does(here, server, up):
    file, meta, data = here
    store, found = stored(server, "k", b"x" + data[1:], 5 * MIB)
    job, there = (CopyJob(file, meta, store, "k"), found) if up else (CopyJob(store, found, file, meta.key), meta)
    assert not same_digest(job, there)
    assert not same_bytes(job, there)
    last = stored(server, "k", data[:-1] + b"x" * (data[-1:] != b"x") + b"y" * (data[-1:] == b"x"), 5 * MIB)
    job, there = (CopyJob(file, meta, last[0], "k"), last[1]) if up else (CopyJob(*last, file, meta.key), meta)
    assert not same_bytes(job, there)


def test_etag_without_digest_proves_nothing_and_both_objects_are_read(here, server):
    file, meta, data = here
    odd = 7 * MIB + 1  # no tool's
    store, found = stored(server, "k", data, odd)
    before = gets(server)
    assert not same_digest(CopyJob(file, meta, replace_write(server), "k"), found)
    assert gets(server) == before
    assert same_bytes(CopyJob(file, meta, replace_write(server), "k"), found)
    assert gets(server) > before
    encrypted = replace(found, etag="0" * 32)
    with pytest.raises(Changed):  # it is read as the version that was listed, or not at all
        same_bytes(CopyJob(file, meta, store, "k"), encrypted)


def replace_write(server):
    """Return the bucket as another program sees it, which does not know how its objects were cut."""
    return open_source(f"s3://{server.bucket}/", server.store)[0]


def test_two_objects_of_stores_are_one_by_their_etag_or_their_bytes(here, server):
    _, _, data = here
    store, one = stored(server, "one", data, 5 * MIB)
    _, alike = stored(server, "alike", data, 5 * MIB)
    _, other = stored(server, "other", data, 8 * MIB)
    before = gets(server)
    assert same_bytes(CopyJob(store, one, store, "alike"), alike)
    assert gets(server) == before
    assert same_bytes(CopyJob(store, one, store, "other"), other)
    _, changed = stored(server, "changed", data[:-1] + bytes([data[-1] ^ 1]), 8 * MIB)
    assert not same_bytes(CopyJob(store, one, store, "changed"), changed)


def test_two_files_are_compared_by_their_bytes(here, tmp_path):
    file, meta, data = here
    for number, body in enumerate((data, data[:-1] + bytes([data[-1] ^ 1]))):
        (tmp_path / "other").write_bytes(body)
        there = file.head(f"{meta.key.rpartition('/')[0]}/other")
        assert same_bytes(CopyJob(file, meta, file, there.key), there) is (number == 0)


def test_empty_objects_are_alike(server, tmp_path):
    (tmp_path / "empty").touch()
    file, key = open_source(tmp_path / "empty")
    store, found = stored(server, "empty", b"")
    assert same_bytes(CopyJob(file, file.head(key), store, "empty"), found)
