"""Coroutines around a source: results on the caller's loop, however busy, on several loops, and after a fork."""

import asyncio
import gc
import multiprocessing
import threading
import uuid
from collections import Counter
from queue import SimpleQueue

import pytest

import penstock as ps
from penstock.errors import Cancelled, Changed, NotFound
from penstock.events import RequestStarted, subscribe
from penstock.interop.awaiting import call, read, read_each, read_many, stat, stat_each
from penstock.source import open_source
from penstock.stores.memory import MemoryDriver
from penstock.values import Span
from tests.children import forked

KEYS = [f"{number:03}" for number in range(100)]


@pytest.fixture
def source():
    """Return a set in memory whose objects hold their keys."""
    found, _ = open_source(f"memory://{uuid.uuid4().hex}/")
    for key in KEYS:
        found.put(key, key.encode())
    return found


def test_reads_come_in_order_and_the_first_error_in_order_is_raised(source):
    spans = [Span(key, 0, 3) for key in reversed(KEYS)]
    assert asyncio.run(read_many(source, spans)) == [key.encode() for key in reversed(KEYS)]
    assert asyncio.run(read_many(source, [])) == []
    assert asyncio.run(read(source, Span("007", 1, 3))) == b"07"
    assert asyncio.run(read(source, Span("007", -2))) == b"07"
    assert asyncio.run(read(source, Span("007"))) == b"007"
    wrong = [Span("001", 0, 3), Span("none"), Span("002", 0, 3, "another")]
    with pytest.raises(NotFound, match="none"):
        asyncio.run(read_many(source, wrong))
    found = asyncio.run(read_each(source, wrong))
    assert found[0] == b"001"
    assert [type(each) for each in found[1:]] == [NotFound, Changed]


def test_objects_are_described_in_order(source):
    found = asyncio.run(stat_each(source, ["001", "none", "002"]))
    assert [getattr(each, "key", None) for each in found] == ["001", None, "002"]
    assert isinstance(found[1], NotFound)
    assert asyncio.run(stat(source, "003")).size == 3
    assert asyncio.run(stat_each(source, [])) == []
    with pytest.raises(NotFound, match="none"):
        asyncio.run(stat(source, "none"))


def test_a_long_span_is_read_in_parts_of_one_version(bucket):
    data = bytes(range(256)) * (70 << 10)  # 17.5 MiB
    small = ps.S3Options(**{**_fields(bucket.store), "read": ps.ReadOptions(split_bytes=1 << 20)})
    source, key = open_source(f"{bucket.url}long", small)
    source.put(key, data)
    span = Span(key, 1, len(data) - 1)
    found = asyncio.run(read_each(source, [span, Span(key, -(2 << 20)), Span("none", 0, 2 << 20)]))
    assert found[:2] == [data[1:-1], data[-(2 << 20) :]]
    assert isinstance(found[2], NotFound)


def test_two_loops_share_a_source(source):
    async def many():
        return [await asyncio.gather(*(read(source, Span(key, 0, 3)) for key in KEYS)) for _ in range(3)]

    found = []
    loops = [threading.Thread(target=lambda: found.append(asyncio.run(many()))) for _ in range(2)]
    for each in loops:
        each.start()
    for each in loops:
        each.join(60)
    assert found == [[[key.encode() for key in KEYS]] * 3] * 2


def test_pending_read_does_not_block_the_event_loop(source, monkeypatch):
    gate = threading.Event()
    _hold(monkeypatch, gate)

    async def main():
        reading = asyncio.create_task(read(source, Span("001", 0, 3)))
        for _ in range(100):  # a loop that was blocked would never open the gate
            await asyncio.sleep(0)
        assert not reading.done()
        gate.set()
        return await asyncio.wait_for(reading, 60)

    assert asyncio.run(main()) == b"001"


def test_long_reads_are_polled_until_they_finish(source, monkeypatch):
    gate, looks = threading.Event(), SimpleQueue()
    _hold(monkeypatch, gate)
    monkeypatch.setattr("penstock.interop.awaiting.LOOK_S", 0.001)
    monkeypatch.setattr("penstock.engine.read.spanread.SpanRead.look", lambda each: looks.put(each.span.key))

    async def main():
        for keys in ({"001", "002"}, {"003"}):  # the second time after a pause in which nothing is looked at
            reading = [asyncio.create_task(read(source, Span(key, 0, 3))) for key in keys]
            seen = Counter()
            while any(seen[key] < 2 for key in keys):
                seen[await asyncio.to_thread(looks.get, timeout=60)] += 1
            gate.set()
            await asyncio.gather(*reading)
            await asyncio.sleep(0.01)
            while not looks.empty():
                looks.get()
            await asyncio.sleep(0.01)
            assert looks.empty()
            gate.clear()

    asyncio.run(main())


def test_a_cancelled_task_calls_its_reads_off(source, monkeypatch):
    gate, begun = threading.Event(), threading.Event()
    _hold(monkeypatch, gate, begun)

    async def main():
        reading = asyncio.create_task(read_many(source, [Span(key, 0, 3) for key in KEYS]))
        assert await asyncio.to_thread(begun.wait, 60)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        gate.set()
        return await read(source, Span("001", 0, 3))  # and nothing that comes late disturbs the loop

    assert asyncio.run(main()) == b"001"


def test_a_loop_that_was_closed_meanwhile_harms_no_one(source, monkeypatch):
    gate, begun = threading.Event(), threading.Event()
    _hold(monkeypatch, gate, begun)
    loop = asyncio.new_event_loop()
    task = loop.create_task(read(source, Span("001", 0, 3)))
    while not begun.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    gate.set()
    assert source.read(Span("002", 0, 3)) == b"002"
    task._log_destroy_pending = False
    del task
    gc.collect()


def test_closing_the_source_cancels_an_awaited_read():
    refused = ps.S3Options(endpoint="http://127.0.0.1:9", access_key="a", secret_key="b", region="us-east-1")
    source, key = open_source("s3://bucket/key", refused)

    begun = threading.Event()
    stop = subscribe(lambda event: isinstance(event, RequestStarted) and begun.set())

    async def main():
        reading = asyncio.create_task(read(source, Span(key, 0, 1)))
        assert await asyncio.to_thread(begun.wait, 60)
        source.close()
        with pytest.raises(Cancelled):
            await asyncio.wait_for(reading, 60)

    try:
        asyncio.run(main())
    finally:
        stop()


def test_a_call_runs_on_a_thread_and_its_error_is_raised():
    def refuse(value, *, other):
        assert threading.current_thread().name.startswith("penstock-await")
        raise KeyError(value + other)

    with pytest.raises(KeyError, match="ab"):
        asyncio.run(call(refuse, "a", other="b"))


def test_events_of_a_coroutine_belong_to_its_operation(source):
    seen = []
    stop = subscribe(seen.append)
    try:
        asyncio.run(read(source, Span("001", 0, 3)))
    finally:
        stop()
    kinds = {type(each).__name__: each for each in seen}
    assert kinds["RequestStarted"].parent == kinds["OperationStarted"].id
    assert kinds["OperationEnded"].outcome == "done"


def test_async_read_works_in_forked_and_spawned_children(bucket):
    source, key = open_source(f"{bucket.url}k", bucket.store)
    source.put(key, b"data")
    assert asyncio.run(read(source, Span(key, 0, 4))) == b"data"
    asyncio.run(call(source.head, key))
    with forked(lambda: _child(source, key)) as status:
        assert status() == 0
    child = multiprocessing.get_context("spawn").Process(target=_child, args=(source, key))
    child.start()
    child.join(120)
    assert child.exitcode == 0


def _child(source, key):
    async def main():
        assert await read(source, Span(key, 0, 4)) == b"data"
        assert (await call(source.head, key)).size == 4

    asyncio.run(asyncio.wait_for(main(), 60))


def _hold(monkeypatch, gate, begun=None):
    """Let no read of an object in memory end before ``gate`` is open."""
    whole = MemoryDriver.read

    def held(self, span, target):
        exchange = whole(self, span, target)
        run = exchange.request.run

        def wait():
            if begun is not None:
                begun.set()
            assert gate.wait(60)
            return run()

        exchange.request.run = wait
        return exchange

    monkeypatch.setattr(MemoryDriver, "read", held)


def _fields(options):
    return {name: getattr(options, name) for name in options.__dataclass_fields__}
