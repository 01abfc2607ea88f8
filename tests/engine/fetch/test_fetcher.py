"""Reads arrive whole, verified and pinned; broken bodies go on from the byte they reached; nobody waits for ever."""

import _thread
import threading

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.read.reader import read_into, read_many, start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Changed, NotFound, Unusable
from penstock.options import ReadOptions
from penstock.values import Span
from tests.engine.fetch.store import DATA, SIZE, Gate, ranges, serving
from tests.threads import until


class TestLong:
    def test_long_reads_go_in_parallel_ranges_of_one_version(self):
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (server, engine):
            spans = [Span("key", 0, SIZE, "e1", whole=True), Span("key", 5, 20_005)]
            assert read_many(engine, spans) == [DATA, DATA[5:20_005]]
            assert len(ranges(server)) == 6 + 3
            methods = [received.method for received in server.received]
            assert methods.count("HEAD") == 1, "only where no version is known"
            gets = [received for received in server.received if received.method == "GET"]
            assert {received.headers.get("if-match") for received in gets} == {'"e1"'}

    def test_a_long_object_that_grew_has_changed(self):
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (_, engine), pytest.raises(Changed):
            read_many(engine, [Span("key", 0, SIZE - 1, whole=True)])

    def test_missing_object_above_split_size_raises_only_in_its_read(self):
        with serving({"a": b"1"}, read=ReadOptions(split_bytes=9_000)) as (_, engine):
            first, second = start_reads(engine, [Span("a", 0, 1), Span("gone", 0, SIZE)], inbox := Inbox())
            inbox.wait(first)
            assert first.take() == b"1"
            with pytest.raises(NotFound):
                second.take()


def test_two_threads_at_one_inbox_are_refused_not_lost():
    gate = Gate()
    with serving({"key": DATA}, gate) as (_, engine):
        inbox = Inbox()
        one, other = start_reads(engine, [Span("key", 0, 10), Span("key", 10, 20)], inbox)
        waiting = threading.Thread(target=inbox.wait, args=(one,))
        waiting.start()
        gate.wait_for(2)
        until(lambda: inbox._waiter)
        with pytest.raises(Unusable, match="two threads"):
            inbox.wait(other)
        gate.opened.set()
        waiting.join(60)
        inbox.wait(other)
        assert (one.take(), other.take()) == (DATA[:10], DATA[10:20])


@pytest.mark.parametrize("verb", ["head", "read", "read into", "part"])
def test_a_signal_that_wakes_no_lock_is_heard_all_the_same(verb):
    """As one that comes just before Python waits: ``interrupt_main`` says that there was one, and wakes nobody."""
    gate, over, late = Gate(), threading.Event(), []
    with serving({"key": DATA}, gate) as (_, engine):
        span = Span("key", 0, SIZE, "e1")

        def part():
            parts = [engine.operation(lambda: engine.driver.head("key"), Inbox())]
            engine.send(parts)
            parts[0].inbox.wait_any(parts)  # as a writer waits for its parts

        def interrupt():
            gate.wait_for(1)
            _thread.interrupt_main()
            late.append(not over.wait(20))
            gate.opened.set()

        verbs = {
            "head": lambda: engine.run(lambda: engine.driver.head("key")),
            "read": lambda: read_many(engine, [span]),
            "read into": lambda: read_into(engine, span, Buffer.allocate(SIZE)),
            "part": part,
        }
        other = threading.Thread(target=interrupt)
        other.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                verbs[verb]()
        finally:
            over.set()
            other.join(60)
        assert late == [False]


def test_waits_reports_without_a_request_if_reads_need_a_prior_request():
    with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (server, engine):
        few, long, pinned = Span("key", 0, 10), Span("key", 0, SIZE, whole=True), Span("key", 0, SIZE, "e1")
        assert engine.waits([few])  # for credentials
        read_many(engine, [few])
        asked = len(server.received)
        assert not engine.waits([few, Span("key"), Span("key", -10)])
        assert engine.waits([few, long])
        assert not engine.waits([few, pinned])
        assert engine.waits([Span("key", -SIZE)])
        assert len(server.received) == asked
