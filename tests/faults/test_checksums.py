"""Whole objects are compared with the checksum that their store names, however many requests bring them."""

from __future__ import annotations

import contextlib
import os

import pytest

import penstock as ps
from penstock.errors import ChecksumMismatch
from penstock.interop.fsspec.filesystem import PenstockFileSystem
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.values import Span
from tests.emulators import settings

DIALECTS = ("s3", "gcs-keys", "oss", "azure-key")
SIZES = (1 << 10, 4 << 20, 9 << 20, 40 << 20)
PIECE_BYTES = 1_000_003
DATA = os.urandom(SIZES[-1])


@pytest.fixture(scope="module", params=DIALECTS)
def server(request):
    with FaultServer.start(settings(request.param)) as found:
        for size in SIZES:
            found.put("bucket", f"{size}/key", DATA[:size])
        yield found


def _opened(url, store, _to):
    with ps.open(url, store=store) as file:
        return file.read()


def _in_pieces(url, store, _to):
    with ps.open(url, store=store) as file:
        return b"".join(iter(lambda: file.read(PIECE_BYTES), b""))


def _by_lines(url, store, _to):
    with ps.open(url, store=store) as file:
        return b"".join(file)


def _into_memory(url, store, _to):
    with ps.open(url, store=store) as file:
        memory = bytearray(file.size)
        assert file.readinto(memory) == file.size
        return memory


def _as_listed(url, store, _to):
    source, key = open_source(url, store)
    (meta,) = ps.list(url, store=store)
    return source.read(Span(key, 0, meta.size, meta.etag, whole=True))


def _of_unknown_size(url, store, _to):
    source, key = open_source(url, store)
    return source.read(Span(key))


def _of_a_map_dataset(url, store, _to):
    return ps.MapDataset.from_prefix(url.removesuffix("key"), store=store)[0].read()


def _of_an_iterable_dataset(url, store, _to):
    (sample,) = ps.IterableDataset.from_prefix(url.removesuffix("key"), store=store)
    return sample.read()


def _copied(url, store, to):
    ps.copy(url, to / "copy", store=store)
    return (to / "copy").read_bytes()


def _synced(url, store, to):
    ps.sync(url.removesuffix("key"), f"{to}/tree", store=store)
    return (to / "tree" / "key").read_bytes()


def _fsspec_cat(url, store, _to):
    return PenstockFileSystem(store=store).cat_file(url)


def _fsspec_get(url, store, to):
    PenstockFileSystem(store=store).get_file(url, to / "got")
    return (to / "got").read_bytes()


WAYS = (
    *(_opened, _in_pieces, _by_lines, _into_memory, _as_listed, _of_unknown_size),
    *(_of_a_map_dataset, _of_an_iterable_dataset, _copied, _synced, _fsspec_cat, _fsspec_get),
)
QUICK = (_opened, _in_pieces, _as_listed, _synced)  # the others are one of these beneath


@pytest.mark.parametrize(
    ("size", "way"),
    [(size, way) for size in SIZES for way in (WAYS if size == SIZES[2] else QUICK)],
    ids=lambda value: value.__name__.strip("_") if callable(value) else f"{value >> 10}KiB",
)
def test_corrupt_answer_is_read_again_or_raises(server, size, way, tmp_path):
    url = f"{server.scheme}://bucket/{size}/key"
    server.fail(FAULTS["corrupt"], when=Match(verb="get", key=f"{size}/key"))
    got = None
    try:
        with contextlib.suppress(ChecksumMismatch):
            got = way(url, server.store, tmp_path)
    finally:
        server.heal()
    assert got in (None, DATA[:size])
    if got is None:
        assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is published"
    assert way(url, server.store, tmp_path) == DATA[:size]


@pytest.mark.parametrize("size", SIZES[1:3])
def test_object_that_is_always_corrupt_raises(server, size):
    key = f"{size}/key"
    server.fail(FAULTS["corrupt"], when=Match(verb="get", key=key, times=None))
    try:
        for way in (_opened, _in_pieces):
            with pytest.raises(ChecksumMismatch):
                way(f"{server.scheme}://bucket/{key}", server.store, None)
    finally:
        server.heal()


def test_reader_of_corrupt_object_raises_before_its_last_bytes_and_ever_after(server):
    size = SIZES[2]
    server.fail(FAULTS["corrupt"], when=Match(verb="get", key=f"{size}/key"))
    try:
        with ps.open(f"{server.scheme}://bucket/{size}/key", store=server.store) as file:
            for _ in range(2):
                file.read(4 << 20)
            for _ in range(2):
                with pytest.raises(ChecksumMismatch):
                    file.read(4 << 20)
            file.seek(0)
            with pytest.raises(ChecksumMismatch):
                file.read(10)
                file.read(5 << 20)
    finally:
        server.heal()


def test_whole_object_continued_after_a_broken_body_is_compared(server):
    size = SIZES[1]
    when = Match(verb="get", key=f"{size}/key")
    server.fail(FAULTS["reset-body"], FAULTS["corrupt"], when=when)
    try:
        for way in (_as_listed, _of_unknown_size):
            assert way(f"{server.scheme}://bucket/{size}/key", server.store, None) == DATA[:size]
    finally:
        server.heal()


def test_parts_of_an_object_are_not_compared_with_the_sum_of_the_whole(server):
    with ps.open(f"{server.scheme}://bucket/{SIZES[2]}/key", store=server.store) as file:
        file.seek(3 << 20)
        assert file.read() == DATA[3 << 20 : SIZES[2]]
        file.seek(0)
        assert file.read(10) == DATA[:10]
        assert file.read(8 << 20) == DATA[10 : 10 + (8 << 20)]
        file.seek(0)
        assert file.read() == DATA[: SIZES[2]]
