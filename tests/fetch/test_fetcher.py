"""Reads arrive whole, verified and pinned; broken bodies go on from the byte they reached; nobody waits for ever."""

import _thread
import gc
import logging
import random
import re
import sys
import threading
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import events, waiting
from penstock.buffer import Buffer
from penstock.errors import Cancelled, Changed, Forbidden, NotFound, Throttled, Truncated, Unreachable, Unusable
from penstock.fetch import policy
from penstock.fetch.batch import read_into, read_many, start_reads
from penstock.fetch.fetcher import Fetcher
from penstock.options import ReadOptions, RetryOptions
from penstock.testing.servers import reply
from penstock.transport.loop import connect
from penstock.values import Span
from penstock.waiting import Inbox
from tests.children import python
from tests.fetch.store import QUICK, Gate, fetcher, ranges, serving

SIZE = 50_000
DATA = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8).tobytes()


def _cut(rng, most):
    """A fault that sends a random piece of the first ``most`` answers and hangs up."""
    left = [most]

    def fault(received, answer, send):
        if received.method != "GET" or left[0] <= 0:
            return False
        left[0] -= 1
        head = answer.index(b"\r\n\r\n") + 4
        send(answer[: rng.randrange(head, len(answer))])
        return True

    return fault


class TestResume:
    @settings(max_examples=15)
    @given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([SIZE, 5_000, 300]))
    def test_a_broken_body_goes_on_from_the_byte_it_reached(self, seed, whole, size):
        data = DATA[:size]
        with serving({"key": data}, _cut(random.Random(seed), 5)) as (server, engine):
            assert read_many(engine, [Span("key", 0, size, "e1", whole)]) == [data]
            asked = ranges(server)
        assert len(asked) == 6
        assert asked[0] is None if whole else (0, size)
        starts = [each[0] for each in asked[1:] if each is not None]
        assert starts == sorted(starts), "what arrived is not asked for again"
        assert all(each is None or each[1] == size for each in asked)
        assert starts == [] or starts[-1] > 0 or size < 300

    def test_the_next_range_begins_exactly_there(self):
        def fault(received, answer, send):
            if received.number == 1:
                send(answer[: answer.index(b"\r\n\r\n") + 4 + 12_345])
            return received.number == 1

        with serving({"key": DATA}, fault) as (server, engine):
            assert read_many(engine, [Span("key", 1_000, SIZE, "e1")]) == [DATA[1_000:]]
            assert ranges(server) == [(1_000, SIZE), (13_345, SIZE)]
            assert [received.headers["if-match"] for received in server.received] == ['"e1"', '"e1"']

    def test_without_a_version_it_starts_again(self):
        with serving({"key": DATA}, _cut(random.Random(0), 3)) as (server, engine):
            assert read_many(engine, [Span("key", 0, SIZE)]) == [DATA]
            assert ranges(server) == [(0, SIZE)] * 4

    def test_trap_04_a_new_version_is_not_joined_to_the_old(self):
        with serving({"key": DATA}) as (server, engine):
            script = server._answer

            def fault(received, answer, send):
                if received.number == 1:
                    script.data["key"], script.etags["key"] = DATA[::-1], '"e2"'
                    send(answer[:20_000])
                return received.number == 1

            script.fault = fault
            with pytest.raises(Changed):
                read_many(engine, [Span("key", 0, SIZE, "e1")])

    def test_an_object_that_ends_early_is_truncated_at_once(self):
        with serving({"key": b"short"}) as (server, engine):
            for span in (Span("key", 0, 10), Span("key", 0, 10, "e1"), Span("key", 7, 10)):
                with pytest.raises(Truncated):
                    read_many(engine, [span])
            assert len(server.received) == 3

    def test_bodies_that_always_break_give_up(self):
        with serving({"key": DATA}, _cut(random.Random(0), 10**9), retry=RetryOptions(base_s=0.001, attempts=4)) as (
            server,
            engine,
        ):
            with pytest.raises(Unreachable) as caught:
                read_many(engine, [Span("key", 0, SIZE)])
            assert (caught.value.attempts, len(server.received)) == (4, 4)
            assert "after 4 attempts" in str(caught.value)


class TestRetries:
    def test_what_may_pass_is_tried_again(self):
        def fault(received, _answer, send):
            if received.number < 4:
                send(reply(503, b"<Error><Code>SlowDown</Code></Error>"))
            return received.number < 4

        heard = []
        stop = events.subscribe(heard.append)
        with serving({"key": DATA}, fault) as (server, engine):
            assert read_many(engine, [Span("key", 0, SIZE, whole=True)]) == [DATA]
            stop()
            assert len(server.received) == 4
        seen = [each for each in heard if isinstance(each, events.Retried | events.RangeRead)]
        assert [type(each).__name__ for each in seen] == ["Retried"] * 3 + ["RangeRead"]
        assert (seen[-1].attempts, seen[-1].size_bytes, seen[-1].url) == (4, SIZE, "s3://bucket/key")
        assert all(isinstance(each.error, Throttled) for each in seen[:3])

    def test_what_will_not_pass_is_not(self):
        with serving({}, lambda _received, _answer, send: send(reply(403)) or True) as (server, engine):
            with pytest.raises(Forbidden):
                engine.run(lambda: engine.driver.head("key"))
            assert len(server.received) == 1

    def test_a_store_that_is_down_is_told_in_seconds(self):
        engine = fetcher("http://127.0.0.1:1", RetryOptions(first_contact_s=0.3))
        for work in (
            lambda: engine.run(lambda: engine.driver.head("key")),
            lambda: read_many(engine, [Span("key", 0, 9)]),
        ):
            with pytest.raises(Unreachable) as caught:
                work()
            assert caught.value.attempts > 1
            assert caught.value.elapsed_s < 5
            assert caught.value.url == "s3://bucket/key"

    def test_many_that_fail_together_are_patient_together(self):
        """Once the purse they share is empty, they are tried again less often, and none of them gives up."""

        def fault(received, _answer, send):
            if received.number <= 60:
                send(reply(503))
            return received.number <= 60

        with serving({"key": DATA}, fault, retry=RetryOptions(base_s=1e-6, cap_s=0.1, tokens=7)) as (server, engine):
            assert read_many(engine, [Span("key", 0, 10)] * 20) == [DATA[:10]] * 20
            assert len(server.received) == 60 + 20


class TestWarnings:
    """A store that stalls, throttles or refuses is told, while there is patience left, by the thread that waits."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(policy, "_FIRST_S", 0.1)
        monkeypatch.setattr(waiting, "LOOK_S", 0.02)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (lambda send: send(reply(503, b"<Error><Code>SlowDown</Code></Error>")), "Throttled: .*SlowDown"),
            (lambda send: send(b"HTTP/1.1 200 ."), "Unreachable: "),
            (lambda _send: threading.Event().wait(3), "TimedOut: "),
        ],
        ids=["throttles", "hangs up", "stalls"],
    )
    def test_a_store_without_success_is_told_once_with_the_patience_left(self, caplog, answer, said):
        def fault(received, _answer, send):
            if received.number <= 2 or monotonic() < until:
                answer(send)
                return True
            return False

        until = monotonic() + 0.6
        with serving({"key": DATA}, fault, stall_timeout_s=1, retry=replace(QUICK, cap_s=0.1, patience_s=99)) as (
            _,
            engine,
        ):
            engine._policy.succeeded()
            with caplog.at_level("WARNING", "penstock"):
                assert engine.run(lambda: engine.driver.get("key", "")) == DATA
                assert read_many(engine, [Span("key", 0, 10)]) == [DATA[:10]]
        assert len(caplog.records) == 1
        assert re.search(rf"no success for \d s in \d+ attempts, the last was {said}", caplog.messages[0])
        assert "s3://bucket/key" in caplog.messages[0]
        assert re.search(r"tried again for 9\d s more", caplog.messages[0])
        assert caplog.records[0].threadName == threading.current_thread().name

    def test_a_refused_connection_is_told_and_a_handler_that_breaks_breaks_nothing(self, monkeypatch):
        told = []

        class Broken(logging.Handler):
            def emit(self, record):
                told.append(record.getMessage())
                raise OSError("the disk that logs go to is full")

        monkeypatch.setattr(policy, "_EVERY_S", 0.2)
        engine = fetcher("http://127.0.0.1:1", RetryOptions(first_contact_s=1))
        logger, handler = logging.getLogger("penstock"), Broken()
        logger.addHandler(handler)
        try:
            with pytest.raises(Unreachable):
                read_many(engine, [Span("key", 0, 9)])
        finally:
            logger.removeHandler(handler)
        assert 2 <= len(told) <= 6
        assert all("Unreachable: " in each for each in told)


class TestMany:
    def test_bytes_come_in_order(self):
        data = {f"k{number}": DATA[: number * 97] for number in range(300)}
        with serving(data) as (_, engine):
            known = [Span(key, 0, len(each), "e1", whole=True) for key, each in data.items()]
            assert read_many(engine, known) == list(data.values())
            assert read_many(engine, [Span(key) for key in data]) == list(data.values())
            assert read_many(engine, []) == []

    def test_trap_03_an_error_is_raised_never_swallowed(self):
        with serving({"a": b"1", "c": b"3"}) as (_, engine), pytest.raises(NotFound, match="s3://bucket/b"):
            read_many(engine, [Span(key, 0, 1) for key in "abc"])

    def test_the_first_error_in_order_is_the_one(self):
        def fault(received, _answer, _send):
            if received.path.endswith("late"):
                threading.Event().wait(0.2)
            return False

        with serving({}, fault) as (_, engine), pytest.raises(NotFound, match="late"):
            read_many(engine, [Span("late", 0, 1), Span("early", 0, 1)])

    def test_long_reads_go_in_parallel_ranges_of_one_version(self):
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (server, engine):
            assert read_many(engine, [Span("key", 0, SIZE, "e1", whole=True), Span("key", 5, 20_005)]) == [
                DATA,
                DATA[5:20_005],
            ]
            assert len(ranges(server)) == 6 + 3
            assert [received.method for received in server.received].count("HEAD") == 1, (
                "only where no version is known"
            )
            assert {received.headers.get("if-match") for received in server.received if received.method == "GET"} == {
                '"e1"'
            }

    def test_a_long_object_that_grew_has_changed(self):
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (_, engine), pytest.raises(Changed):
            read_many(engine, [Span("key", 0, SIZE - 1, whole=True)])

    def test_a_long_object_that_is_missing_is_told_in_its_turn(self):
        with serving({"a": b"1"}, read=ReadOptions(split_bytes=9_000)) as (_, engine):
            first, second = start_reads(engine, [Span("a", 0, 1), Span("gone", 0, SIZE)], inbox := Inbox())
            inbox.wait(first)
            assert first.take() == b"1"
            with pytest.raises(NotFound):
                second.take()


class TestInto:
    def test_a_buffer_is_filled_and_nothing_else(self):
        buffer = np.full(SIZE + 20, 7, np.uint8)
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (_, engine):
            read_into(engine, Span("key", 100, SIZE, "e1"), Buffer.borrow(buffer[10 : SIZE - 90]))
        assert buffer[10 : SIZE - 90].tobytes() == DATA[100:]
        assert set(buffer[:10]) | set(buffer[SIZE - 90 :]) == {7}

    @pytest.mark.parametrize("size", [0, 99, 101])
    def test_a_buffer_of_another_size_is_refused(self, size):
        with serving({"key": DATA}) as (server, engine):
            with pytest.raises(Unusable, match=f"100 bytes .* a buffer of {size}"):
                read_into(engine, Span("key", 0, 100), Buffer.borrow(bytearray(size)))
            assert server.received == []

    def test_nothing_is_a_range_too(self):
        with serving({"key": DATA}) as (_, engine):
            read_into(engine, Span("key", 5, 5), Buffer.borrow(bytearray()))
            with pytest.raises(NotFound):
                read_into(engine, Span("gone", 5, 5), Buffer.borrow(bytearray()))

    def test_after_an_error_nobody_writes(self):
        gate = Gate(lambda received: received.range[0] > 0)

        def fault(received, answer, send):
            gate(received, answer, send)
            if received.range[0] == 0:
                send(reply(403))
                return True
            return False

        with serving({"key": DATA}, fault, read=ReadOptions(split_bytes=25_000)) as (_, engine):
            buffer, told = bytearray(SIZE), []
            reading = threading.Thread(
                target=lambda: told.append(
                    _error(lambda: read_into(engine, Span("key", 0, SIZE, "e1"), Buffer.borrow(buffer)))
                )
            )
            reading.start()
            gate.wait_for(1)
            assert reading.is_alive(), "a part is still on its way into the buffer"
            gate.opened.set()
            reading.join(60)
            assert type(told[0]) is Forbidden

    def test_ctrl_c_leaves_no_writer(self):
        script = """
            import os, signal, threading
            from penstock.fetch.batch import read_into
            from penstock.options import ReadOptions
            from penstock.buffer import Buffer
            from penstock.values import Span
            from tests.fetch.store import serving
            size, sent, go = 1 << 20, threading.Semaphore(0), threading.Event()
            def slowly(received, answer, send):
                send(answer[:100_000])
                sent.release()
                go.wait(60)
                send(answer[100_000:])
                return True
            with serving({"key": b"x" * size}, slowly, read=ReadOptions(split_bytes=size // 4)) as (server, engine):
                def interrupt():
                    for _ in range(4):
                        sent.acquire()
                    os.kill(os.getpid(), signal.SIGINT)
                threading.Thread(target=interrupt).start()
                buffer = bytearray(size)
                try:
                    read_into(engine, Span("key", 0, size, "e1"), Buffer.borrow(buffer))
                except KeyboardInterrupt:
                    buffer[:] = bytes(size)
                    go.set()
                    print("interrupted", buffer.count(b"x"))
                again = bytearray(size)
                read_into(engine, Span("key", 0, size, "e1"), Buffer.borrow(again))
                print(again.count(b"x") == size, buffer.count(b"x"))
        """
        ended = python(script)
        assert ended.stdout == "interrupted 0\nTrue 0\n", ended.stderr


def _error(work):
    try:
        work()
    except Exception as error:  # noqa: BLE001  handed to the thread that asked
        return error


class TestOperations:
    def test_ctrl_c_calls_an_operation_off_lest_it_happen_later(self):
        script = """
            import os, signal, threading
            from penstock.protocols.driver import Attributes, Payload
            from penstock.testing.servers import Scripted, reply
            from tests.fetch.store import fetcher
            from penstock.options import RetryOptions
            def script(received, send):
                send(reply(503))
                if received.number == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                return True
            with Scripted(script) as server:
                engine = fetcher(server.url, RetryOptions(base_s=0.2, patience_s=60, first_contact_s=60))
                try:
                    engine.run(lambda: engine.driver.put("key", Payload(b"late"), Attributes()))
                except KeyboardInterrupt:
                    before = len(server.received)
                    threading.Event().wait(1.5)  # several retries long
                    print("called off", len(server.received) - before)
        """
        ended = python(script)
        assert ended.stdout == "called off 0\n", ended.stderr

    def test_called_off_operations_end_before_what_comes_after(self):
        gate = Gate(lambda received: received.method == "HEAD")
        with serving({"key": DATA}, gate) as (server, engine):
            held = [engine.operation(lambda: engine.driver.head("key"), Inbox()) for _ in range(3)]
            engine.send(held)
            gate.wait_for(3)
            engine.call_off(held)
            assert engine.run(lambda: engine.driver.get("key", "")) == DATA
            assert all(type(each.error) is Cancelled for each in held)
            gate.opened.set()
            assert len(server.received) == 4

    def test_a_driver_that_trips_is_a_bug_that_is_told(self):
        class Tripping:
            def __getattr__(self, name):
                return getattr(engine.driver, name)

            def get(self, key, etag):
                exchange = engine.driver.get(key, etag)
                exchange.parse = lambda _response: 1 // 0
                return exchange

        with serving({"key": DATA}) as (_, engine):
            tripping = Fetcher(Tripping(), connect(engine._transport.options), QUICK, ReadOptions())
            for work in (
                lambda: read_many(tripping, [Span("key")]),
                lambda: tripping.run(lambda: tripping.driver.get("key", "")),
            ):
                error = _error(work)
                assert type(error).__name__ == "Bug"
                assert isinstance(error.__cause__, ZeroDivisionError)


def test_two_threads_at_one_inbox_are_refused_not_lost():
    gate = Gate()
    with serving({"key": DATA}, gate) as (_, engine):
        inbox = Inbox()
        one, other = start_reads(engine, [Span("key", 0, 10), Span("key", 10, 20)], inbox)
        waiting = threading.Thread(target=inbox.wait, args=(one,))
        waiting.start()
        gate.wait_for(2)
        while not inbox._waiter:
            threading.Event().wait(0.01)
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


def test_memory_of_a_cancelled_read_lives_until_libcurl_lets_go():
    gate = Gate(lambda received: received.path.endswith("held"))
    with serving({"held": DATA, "key": DATA}, gate) as (_, engine):
        for _ in range(20):
            reads = start_reads(engine, [Span("held", 0, SIZE, "e1", whole=True)], Inbox())
            gate.wait_for(1)
            engine.cancel_reads(reads)
            del reads
        gate.opened.set()
        assert read_many(engine, [Span("key", 0, SIZE, "e1", whole=True)]) == [DATA]


def test_what_was_read_is_held_by_nobody_but_who_asked_for_it():
    with serving({"key": DATA}, read=ReadOptions(split_bytes=10_000)) as (_, engine):
        gc.disable()  # memory must not wait for the collector
        try:
            target = Buffer.allocate(SIZE)
            read_into(engine, Span("key", 0, SIZE, "e1"), target)
            read_many(engine, [Span("key", 0, 10, "e1")])  # the I/O thread has let go of what went before
            assert sys.getrefcount(target) == 2
        finally:
            gc.enable()
