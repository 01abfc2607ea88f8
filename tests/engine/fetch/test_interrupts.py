"""Whoever leaves a read by Ctrl-C has its memory alone: nothing is written there later, whenever the interrupt came."""

from functools import partial

import pytest

from penstock.engine.budget import Budget
from penstock.engine.buffer import Buffer
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.read.reader import read_into, scatter
from penstock.engine.transport.work import Threads
from penstock.options import ReadOptions, RetryOptions
from penstock.stores.local import driver as local
from penstock.values import Span
from tests.threads import interrupt

SIZE, PIECE = 400, 100


@pytest.fixture
def engine(tmp_path):
    """Return an engine for local files with one thread: what was queued first is over once what came last is."""
    (tmp_path / "key").write_bytes(b"x" * SIZE)
    return Fetcher(local.LocalDriver(), Threads(1), RetryOptions(), ReadOptions(split_bytes=PIECE))


def _in_ranges(engine, key, etag, memory):
    read_into(engine, Span(key, 0, SIZE, etag), Buffer.borrow(memory))


def _scattered(engine, key, etag, memory):
    starts, view = range(0, SIZE, PIECE), memoryview(memory)
    places = [(Span(key, at, at + PIECE, etag), Buffer.borrow(view[at : at + PIECE])) for at in starts]
    assert len([*scatter(engine, iter(places), Budget(SIZE, 99))]) == len(places)


@pytest.fixture(params=[_in_ranges, _scattered], ids=["in-ranges", "scattered"])
def read(request, engine, tmp_path):
    """Return what fills a buffer of ``SIZE``."""
    key = str(tmp_path / "key").lstrip("/")
    etag = engine.run(lambda: engine.driver.head(key)).etag
    return lambda memory: request.param(engine, key, etag, memory)


def _settled(engine, tmp_path):
    engine.run(lambda: engine.driver.head(str(tmp_path / "key").lstrip("/")))


def test_interrupt_at_any_step_of_submit_leaves_no_late_memory_writes(engine, read, tmp_path):
    whole = bytearray(SIZE)
    read(whole)
    assert whole == b"x" * SIZE
    interrupted = 0
    for at in range(1, 200):
        memory = bytearray(SIZE)
        interrupted += interrupt(partial(read, memory), at, Threads.submit)
        left_behind = bytes(memory)
        _settled(engine, tmp_path)
        assert memory == left_behind, f"interrupted at step {at} of submit"
    assert 30 < interrupted < 199, "every step was tried"


def test_a_read_that_a_transport_begins_after_its_caller_left_asks_for_nothing(engine, read, tmp_path, monkeypatch):
    """The worst case: the transport has the calls, and what calls them off has not reached it."""
    taken, memory = [], bytearray(SIZE)

    def submit(calls):
        taken.extend(calls)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine._transport, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        read(memory)
    monkeypatch.undo()
    assert len(taken) == SIZE // PIECE
    engine._transport.submit(taken)
    _settled(engine, tmp_path)
    assert memory == bytes(SIZE)
