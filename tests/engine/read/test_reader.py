"""A reader is a file like any other, over one version of an object, whatever the pattern of reading."""

import io
import os
import zipfile

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
        assert [low for low, _ in asked] == list(range(0, SIZE, BLOCK))
        assert asked[-1][1] == SIZE

    def test_a_large_read_is_one_request_into_the_caller_s_memory(self):
        with serving({"key": DATA}) as (server, engine):
            file, buffer = _reader(engine), np.zeros(SIZE, np.uint8)
            file.seek(10)
            assert file.readinto(buffer[10:]) == SIZE - 10
            assert buffer[10:].tobytes() == DATA[10:]
            assert ranges(server) == [(10, SIZE)]

    def test_seeks_to_nearby_positions_request_no_block_twice(self):
        with serving({"key": DATA}) as (server, engine):
            file = _reader(engine)
            for position in (50, 10, 900, 0):
                file.seek(position)
                assert file.read(5) == DATA[position : position + 5]
            assert ranges(server)[0] == (0, BLOCK)
            assert sorted(set(ranges(server))) == sorted(ranges(server))

    def test_memory_is_bounded(self, served):
        file = _reader(served[1])
        for position in range(0, SIZE, BLOCK):
            file.seek(position)
            file.read(1)
            assert len(file._blocks) <= module._MOST_BLOCKS + module._AHEAD


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
        broken = [True]

        def fault(received, _answer, send):
            if broken[0] and received.range[0] >= BLOCK:
                send(reply(503))
                return True
            return False

        with serving({"key": DATA}, fault, retry=RetryOptions(attempts=1)) as (_, engine):
            file = _reader(engine)
            file.seek(BLOCK - 10)
            argument = 20 if verb == "read" else bytearray(20)
            with pytest.raises(Throttled):
                getattr(file, verb)(argument)
            assert file.tell() == BLOCK - 10
            broken[0] = False
            assert file.read(20) == DATA[BLOCK - 10 : BLOCK + 10], "no byte is lost to whoever tries again"


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
