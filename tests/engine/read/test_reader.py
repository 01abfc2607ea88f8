"""A reader is a file like any other, over one version of an object, whatever the pattern of reading."""

import io
import itertools
import os
import random
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest

from penstock.engine.read import reader as module
from penstock.engine.read.reader import Reader
from penstock.errors import Changed, Throttled
from penstock.options import RetryOptions
from penstock.testing.servers import reply
from penstock.values import ObjectMeta
from tests.children import in_child
from tests.engine.fetch.store import fetcher, ranges, serving

BLOCK = 1_000
SIZE = 12_345
DATA = (b"a line of text\n" * 900)[:SIZE]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", BLOCK)


_LARGE = ObjectMeta("key", 100_000_000, "e1")


class _NotingFetching:
    """An engine that notes the ranges of the reads that it sends."""

    def __init__(self, engine, asked):
        self._engine, self._asked = engine, asked

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def send_reads(self, reads):
        self._asked += [(read.span.start, read.span.stop) for read in reads]
        self._engine.send_reads(reads)


@contextmanager
def _large():
    """Yield the ranges requested of an object of 100 MB, in order, and an engine."""
    asked = []
    with serving({"key": bytes(_LARGE.size)}) as (_, engine):
        yield asked, _NotingFetching(engine, asked)


def _read_runs(file, runs):
    for start, count in runs:
        file.seek(start)
        while (missing := start + count - file.tell()) > 0:
            file.read(min(missing, 32 << 10))


def _reader(engine, data=DATA, etag="e1"):
    return Reader(lambda: engine, ObjectMeta("key", len(data), etag), "s3://bucket/key")


@pytest.fixture(scope="module")
def served():
    with serving({"key": DATA, "empty": b""}) as (server, engine):
        yield server, engine


def test_an_empty_object(served):
    file = Reader(lambda: served[1], ObjectMeta("empty", 0, "e1"), "s3://bucket/empty")
    assert (file.read(), file.read(5), file.readinto(bytearray(5))) == (b"", b"", 0)
    assert (file.readline(), list(file)) == (b"", [])


def test_zip_and_numpy_read_from_it():
    array, packed, stored = np.arange(3000.0), io.BytesIO(), io.BytesIO()
    np.save(stored, array)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.txt", DATA)
    for data, check in (
        (stored.getvalue(), lambda file: (np.load(file) == array).all()),
        (packed.getvalue(), lambda file: zipfile.ZipFile(file).read("inside.txt") == DATA),
    ):
        with serving({"key": data}) as (_, engine):
            assert check(_reader(engine, data))


class TestRequests:
    def test_reading_in_order_asks_for_every_byte_once(self):
        with serving({"key": DATA}) as (server, engine):
            file = _reader(engine)
            assert b"".join(iter(lambda: file.read(100), b"")) == DATA
            asked = sorted(ranges(server))
        assert [low for low, _ in asked] == [0, *(high for _, high in asked[:-1])]
        assert asked[-1][1] == SIZE
        assert len(asked) <= 2 + SIZE // BLOCK

    def test_a_large_read_is_one_request_into_the_caller_s_memory(self):
        with serving({"key": DATA}) as (server, engine):
            file, buffer = _reader(engine), np.zeros(SIZE, np.uint8)
            file.seek(10)
            assert file.readinto(buffer[10:]) == SIZE - 10
            assert buffer[10:].tobytes() == DATA[10:]
            assert ranges(server) == [(10, SIZE)]

    def test_seeks_to_nearby_positions_request_no_byte_twice(self):
        with serving({"key": DATA}) as (server, engine):
            file = _reader(engine)
            for position in (50, 10, 900, 0, 850, 3_000, 2_950, 3_070):
                file.seek(position)
                assert file.read(5) == DATA[position : position + 5]
            asked = sorted(ranges(server))
        assert asked[0][0] == 0
        assert all(high <= low for (_, high), (low, _) in itertools.pairwise(asked))

    def test_an_object_of_one_block_is_one_request_in_any_order_of_reading(self):
        with serving({"key": DATA[:900]}) as (server, engine):
            file = _reader(engine, DATA[:900])
            for position in (800, 0, 400):
                file.seek(position)
                assert file.read(50) == DATA[position : position + 50]
            assert ranges(server) == [None]

    def test_memory_is_bounded(self, served):
        file = _reader(served[1])
        for position in [*range(0, SIZE, BLOCK), *range(SIZE - 1, 0, -BLOCK // 3)]:
            file.seek(position)
            file.read(1)
            held = sum(read.span.stop - read.span.start for read in file._held._reads.values())
            assert held <= module._MOST_BLOCKS * BLOCK


class TestSizes:
    """Requests and bytes of readers that seek, with blocks of 4 MiB, over 100 MB."""

    @pytest.fixture(autouse=True)
    def _whole_blocks(self, monkeypatch, _small_blocks):
        monkeypatch.setattr(module, "_BLOCK_BYTES", 4 << 20)

    def test_a_clip_of_a_video_reads_at_most_half_more_than_it_asks_for(self):
        # The reads of PyAV 18.1 for two seconds from the middle, with the index in front and at the end.
        for runs, requests in (
            ([(0, 185_605), (47_250_758, 5_957_675)], 8),
            ([(0, 32_768), (99_992_197, 7_803), (48, 177_580), (47_228_628, 5_960_808)], 9),
            ([(0, 185_605), (47_250_758, 3_600_000)], 7),
        ):
            with _large() as (asked, engine):
                _read_runs(Reader(lambda: engine, _LARGE, "s3://bucket/key"), runs)
            assert sum(high - low for low, high in asked) <= 1.5 * sum(count for _, count in runs)
            assert len(asked) <= requests

    def test_a_sequence_from_the_middle_reads_at_most_half_more_than_it_asks_for(self):
        for megabytes in (5, 9, 13, 17, 22, 29, 37, 48):
            with _large() as (asked, engine):
                _read_runs(Reader(lambda: engine, _LARGE, "s3://bucket/key"), [(40_000_000, megabytes * 1_000_000)])
            assert sum(high - low for low, high in asked) <= 1.5 * megabytes * 1_000_000, megabytes
            assert len({low for low, _ in asked}) == len(asked) <= 45

    def test_reading_from_the_front_keeps_three_blocks_ahead_from_the_second_request_on(self):
        with _large() as (asked, engine):
            file = Reader(lambda: engine, _LARGE, "s3://bucket/key")
            file.read(1)
            assert asked == [(0, 512 << 10)]
            _read_runs(file, [(1, 512 << 10)])
            assert max(high for _, high in asked) == 16 << 20
            assert len(asked) == 5

    def test_random_reads_of_a_large_object_request_little(self):
        with _large() as (asked, engine):
            file = Reader(lambda: engine, _LARGE, "s3://bucket/key")
            for block in (20, 3, 11, 7, 16):
                file.seek((block << 22) + 12_345)
                file.read(4096)
        assert [high - low for low, high in asked] == [256 << 10] * 5

    def test_second_seek_into_a_block_reads_the_rest_of_it(self):
        with _large() as (asked, engine):
            file = Reader(lambda: engine, _LARGE, "s3://bucket/key")
            for position in ((20 << 20) + 5, (23 << 20), (21 << 20), (22 << 20)):
                file.seek(position)
                file.read(4096)
        assert asked == [(20 << 20, (20 << 20) + (256 << 10)), ((20 << 20) + (256 << 10), 24 << 20)]

    def test_a_footer_that_is_read_backwards_is_one_request(self):
        with _large() as (asked, engine):
            file = Reader(lambda: engine, _LARGE, "s3://bucket/key")
            for back in (22, 65_557, 300_000):
                file.seek(-back, io.SEEK_END)
                file.read(22)
        assert len(asked) == 1

    def test_given_sizes_hold_from_the_first_request_on(self):
        for sizes, runs, expected in (
            ({"block_bytes": 1 << 20, "read_ahead": 0}, [(50 << 20, 3 << 20)], [(50, 51), (51, 52), (52, 53)]),
            ({"block_bytes": 1 << 20}, [(50 << 20, (1 << 20) + 1)], [(50, 51), (51, 52), (52, 53), (53, 54), (54, 55)]),
            ({"block_bytes": 2 << 20, "read_ahead": 2 << 20}, [(0, (2 << 20) + 1)], [(0, 2), (2, 4), (4, 6)]),
            ({"read_ahead": 0}, [(50 << 20, 1 << 20)], [(50, 50.25), (50.25, 50.5), (50.5, 50.75), (50.75, 51)]),
            ({"read_ahead": 7 << 20}, [(48 << 20, (256 << 10) + 1)], [(48, 48.25), (48.25, 52.25), (52.25, 56)]),
        ):
            with _large() as (asked, engine):
                _read_runs(Reader(lambda: engine, _LARGE, "s3://bucket/key", **sizes), runs)
            assert sorted((low / (1 << 20), high / (1 << 20)) for low, high in asked) == expected, sizes

    def test_random_reads_return_the_bytes_of_their_place(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)
        chance = random.Random(seed)
        data = random.Random(1).randbytes(3 << 20)
        for _ in range(12):
            sizes = chance.choice([{}, {"block_bytes": 5_000}, {"read_ahead": 70_000}, {"read_ahead": 0}])
            with serving({"key": data}) as (_, engine), pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "_BLOCK_BYTES", chance.choice([16, 1000, 64 << 10]) * 7)
                file = Reader(lambda: engine, ObjectMeta("key", len(data), "e1"), "s3://bucket/key", **sizes)
                at = 0
                for _ in range(40):
                    if chance.random() < 0.5:
                        at = chance.choice([chance.randrange(len(data)), max(0, at + chance.randrange(-9000, 9000))])
                        file.seek(at)
                    count = chance.choice([1, 100, 5_000, 40_000])
                    assert file.read(count) == data[at : at + count]
                    at = min(at + count, max(at, len(data)))


class TestChange:
    def test_trap_04_a_replaced_object_is_changed_midway(self):
        with serving({"key": DATA}) as (server, engine):
            file = _reader(engine)
            assert file.read(10) == DATA[:10]
            server._answer.etags["key"] = '"e2"'
            file.seek(5 * BLOCK)
            with pytest.raises(Changed):
                file.read(10)
            with pytest.raises(Changed):
                file.read()

    @pytest.mark.parametrize("verb", ["read", "readinto"])
    def test_after_an_error_the_position_is_where_it_was(self, verb):
        broken = [False]

        def fault(_received, _answer, send):
            if broken[0]:
                send(reply(503))
                return True
            return False

        with serving({"key": DATA}, fault, retry=RetryOptions(attempts=1)) as (_, engine):
            file = _reader(engine)
            file.seek(2 * BLOCK)
            file.read(1)
            broken[0], at = True, file._held.find(2 * BLOCK).span.stop - 10
            file.seek(at)
            argument = 20 if verb == "read" else bytearray(20)
            with pytest.raises(Throttled):
                getattr(file, verb)(argument)
            assert file.tell() == at
            broken[0] = False
            assert file.read(20) == DATA[at : at + 20], "no byte is lost to whoever tries again"


class TestManners:
    def test_reader_reports_capabilities_size_and_etag(self, served):
        file = _reader(served[1])
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert (file.size, file.etag) == (SIZE, "e1")

    def test_closed_is_closed(self, served):
        file = _reader(served[1])
        file.read(1)
        for _ in range(2):
            file.close()
        for verb in (file.read, lambda: file.seek(0), lambda: file.readinto(bytearray(1))):
            with pytest.raises(ValueError, match="closed"):
                verb()

    def test_trap_01_forked_child_continues_reading_with_a_separate_engine(self):
        with serving({"key": DATA}) as (server, engine):
            parent = os.getpid()
            again = lambda: engine if os.getpid() == parent else fetcher(server.url)  # noqa: E731
            file = Reader(again, ObjectMeta("key", SIZE, "e1"), "s3://bucket/key")
            file.read(2 * BLOCK + 5)
            file.read(10)

            def child():
                assert file.read(50) == DATA[2 * BLOCK + 15 : 2 * BLOCK + 65]

            in_child(child)
            assert file.read(50) == DATA[2 * BLOCK + 15 : 2 * BLOCK + 65]
