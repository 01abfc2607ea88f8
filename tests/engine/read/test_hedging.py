"""Reads that take long are asked for a second time, on a connection of their own: what comes first is taken, once."""

import threading
from contextlib import contextmanager
from math import inf
from time import monotonic
from types import SimpleNamespace

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.read import hedging
from penstock.engine.read.hedging import Usual
from penstock.engine.read.reader import read_into, read_many, start_reads
from penstock.engine.waiting import Inbox
from penstock.events import Hedged, RangeRead, RequestEnded, RequestStarted
from penstock.options import ReadOptions, RetryOptions
from penstock.testing.servers import reply
from penstock.values import VERSION, Span
from tests.engine.fetch.store import DATA, ETAG, SIZE, SLOW_DOWN, hearing, serving
from tests.threads import until

WAIT_S = 60
SMALL = Span("small", 0, 100, "e1", whole=True)
WHOLE = Span("key", 0, SIZE, "e1", whole=True)


class Held:
    """A fault that has requests for ``key`` wait for ``go``: the first, or those of these numbers; ``came`` counts all.

    Before the wait ``begun`` is sent, and then the rest of the answer.
    """

    def __init__(self, numbers=(1,), begun=b""):
        self.numbers, self.begun = numbers, begun
        self.came = threading.Semaphore(0)
        self.go = threading.Event()
        self.left = threading.Semaphore(0)
        self.connections = []
        self._lock = threading.Lock()

    def wait_for(self, count):
        """Return once so many more requests came."""
        for _ in range(count):
            assert self.came.acquire(timeout=WAIT_S)

    def __call__(self, received, answer, send):
        if "key" not in received.path:
            return False
        with self._lock:
            self.connections.append(received.connection)
            number = len(self.connections)
        self.came.release()
        if number not in self.numbers:
            return False
        try:
            send(self.begun)
            assert self.go.wait(WAIT_S)
            send(answer[len(self.begun) :])
        except OSError:
            pass
        self.left.release()
        return True


@contextmanager
def well(fault, data=None, **engine):
    """Yield a server and an engine that knows it well: what its answers take, and that it gives them.

    That is told, and not measured: on a busy machine a few answers would be late, and use the second requests up.
    """
    objects = {"key": DATA, "small": b"x" * 100, **(data or {})}
    engine = {"retry": RetryOptions(), "stall_timeout_s": 600, **engine}  # what waits, waits until it is ended
    with serving(objects, fault, **engine) as (server, made):
        try:
            watch = made._transport.handles.watch
            watch._usual, watch._computed_at, watch._allowance.left = Usual(0.001), inf, 16
            read_many(made, [SMALL])
            made.counted = counted(made)
            yield server, made
        finally:
            if isinstance(fault, Held):
                fault.go.set()


def counted(engine):
    """Return what was counted since the server began: another test's may have had its port."""
    host = engine._policy.timings.host
    before = getattr(engine, "counted", (0, 0, 0))
    return host.hedged - before[0], host.hedges_won - before[1], host.wasted_bytes - before[2]


def received(engine):
    engine._policy.timings.settle()
    return engine._policy.timings.host.received_bytes


class TestWins:
    @pytest.mark.parametrize("span", [WHOLE, Span("key"), Span("key", -SIZE)], ids=["known", "unknown", "suffix"])
    @pytest.mark.parametrize("begun", [b"", reply(200, DATA, etag=ETAG)[: -SIZE // 2]], ids=["waits", "stands still"])
    def test_bytes_that_the_second_request_brought_count_once(self, span, begun):
        with well(Held(begun=begun)) as (_, engine):
            before = received(engine)
            assert read_many(engine, [span]) == [DATA]
            assert counted(engine)[:2] == (1, 1)
            assert received(engine) - before == SIZE

    def test_a_read_that_waits_is_answered_on_another_connection(self):
        held = Held()
        with well(held) as (_, engine):
            assert read_many(engine, [WHOLE]) == [DATA]
            assert not held.go.is_set()
            assert len(set(held.connections)) == 2
            assert counted(engine) == (1, 1, 0)
            assert not engine._policy.hedges.open

    def test_the_second_request_is_held_to_the_version(self):
        with well(Held()) as (server, engine):
            read_many(engine, [WHOLE, WHOLE._replace(start=7, whole=False)])
            asked = [each for each in server.received if "key" in each.path]
            assert len(asked) == 3
            assert {each.headers.get("if-match") for each in asked} == {ETAG}

    @pytest.mark.parametrize("begun", [b"", reply(200, DATA, etag=ETAG)[: -SIZE // 2]], ids=["waits", "stands still"])
    def test_every_request_names_the_version_id(self, begun):
        etag = f"e1{VERSION}v+1"
        for span in (WHOLE._replace(etag=etag), Span("key", etag=etag), Span("key", -SIZE, etag=etag)):
            with well(Held(begun=begun)) as (server, engine):
                assert read_many(engine, [span]) == [DATA]
                asked = [each for each in server.received if "key" in each.path]
                assert len(asked) == 2
                assert {(each.path, each.headers.get("if-match")) for each in asked} == {
                    ("/bucket/key?versionId=v%2B1", ETAG)
                }

    def test_stalled_body_is_replaced_by_a_hedge_and_never_writes_later(self):
        garbage = reply(200, b"\0" * SIZE, etag=ETAG)
        held = Held(begun=garbage[: len(garbage) // 2])
        with well(held) as (_, engine):
            memory = bytearray(SIZE)
            read_into(engine, WHOLE, Buffer.borrow(memory))
            assert memory == DATA
            held.go.set()
            assert held.left.acquire(timeout=WAIT_S)
            assert memory == DATA
            made, won, wasted_bytes = counted(engine)
            assert (made, won) == (1, 1)
            assert 0 < wasted_bytes < SIZE

    @pytest.mark.parametrize(
        ("span", "wanted"),
        [
            (Span("key"), DATA),
            (Span("key", most=1000), DATA),
            (Span("key", -700), DATA[-700:]),
            (Span("key", -2 * SIZE), DATA),
            (Span("key", 5, 6, "e1"), DATA[5:6]),
        ],
    )
    def test_reads_of_every_kind_have_a_second_request(self, span, wanted):
        with well(Held()) as (_, engine):
            assert read_many(engine, [span]) == [wanted]
            assert counted(engine)[:2] == (1, 1)

    def test_the_rest_of_an_object_of_unknown_size_has_one(self):
        with well(Held(numbers=(2,))) as (_, engine):
            assert read_many(engine, [Span("key", most=1000)]) == [DATA]
            assert counted(engine)[:2] == (1, 1)

    def test_parts_of_a_long_read_have_one_each(self):
        with well(Held(numbers=(1, 2)), read=ReadOptions(split_bytes=SIZE // 4)) as (_, engine):
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            inbox.wait(read)
            assert read.take() == DATA
            assert (read.attempts, read.retries) == (6, 0)
            assert counted(engine)[:2] == (2, 2)

    def test_stalled_retry_of_a_truncated_body_is_hedged_from_reached_byte(self):
        def fault(received, answer, send):
            if "key" in received.path and not held.connections:
                held.connections.append(received.connection)
                send(answer[: len(answer) // 2])
                return True  # and hangs up
            return held(received, answer, send)

        held = Held(numbers=(2,))
        with well(fault, retry=RetryOptions(base_s=0.001)) as (server, engine):
            engine._policy.tokens.left = 10**9
            engine._policy.tokens.limit = 0  # a failure does not keep it from hedging here
            assert read_many(engine, [WHOLE]) == [DATA]
            held.go.set()
            ranges = [each.range for each in server.received if "key" in each.path]
            assert ranges[1] == ranges[2] != (0, SIZE)


class TestLosses:
    def test_the_first_answer_is_taken_where_the_second_is_later(self):
        first, second = Held(), Held(numbers=(2,))

        def fault(received, answer, send):
            if second.connections:
                return second(received, answer, send)
            if "key" in received.path:
                second.connections.append(received.connection)
                second.came.release()
            return first(received, answer, send)

        with well(fault) as (_, engine):
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            second.wait_for(2)
            first.go.set()
            inbox.wait(read)
            assert read.take() == DATA
            assert not engine._policy.hedges.open
            _settled(engine)
            assert not second.go.is_set(), "the second request was ended, not answered"
            assert counted(engine)[:2] == (1, 0)
            second.go.set()

    @pytest.mark.parametrize(
        "answer",
        [
            reply(500, b"<Error><Code>InternalError</Code></Error>"),
            reply(412, b"<Error><Code>PreconditionFailed</Code></Error>"),
            reply(404, b"<Error><Code>NoSuchKey</Code></Error>"),
            reply(200, DATA[:-1], etag=ETAG),
            reply(200, DATA, etag='"e2"'),
        ],
    )
    def test_a_second_request_that_fails_harms_nothing(self, answer):
        held = Held()
        with well(_then(held, answer)) as (_, engine):
            looks = _looks(engine)
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            held.wait_for(2)
            _settled(engine)
            while looks.acquire(blocking=False):
                pass
            for _ in range(3):
                assert looks.acquire(timeout=WAIT_S)
            held.go.set()
            inbox.wait(read)
            assert read.take() == DATA
            assert len(held.connections) == 2, "one second request, whatever comes of it"

    def test_a_read_that_is_stopped_ends_both(self):
        held = Held(numbers=(1, 2))
        with well(held) as (_, engine):
            memory = bytearray(SIZE)
            reads = engine.prepare_reads([(WHOLE, Buffer.borrow(memory))], Inbox())
            engine.send_reads(reads)
            held.wait_for(2)
            (hedge,) = engine._policy.hedges.open.values()
            assert not hedge.complete
            engine.stop_reads(reads)
            held.go.set()
            for _ in range(2):
                assert held.left.acquire(timeout=WAIT_S)
            assert memory == bytes(SIZE)
            assert not engine._policy.hedges.open
            until(lambda: hedge.complete)  # where it waited for its turn, others no longer wait behind it

    def test_closing_ends_both(self):
        held = Held(numbers=(1, 2))
        with well(held) as (_, engine):
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            held.wait_for(2)
            engine.close()
            inbox.wait(read)
            assert type(read.error).__name__ == "Cancelled"


class TestRestraint:
    def test_store_that_answers_no_request_gets_no_hedges(self):
        go = threading.Event()
        many = 32

        def fault(received, _answer, _send):
            return "key" in received.path and not go.wait(WAIT_S)

        with well(fault) as (server, engine):
            looks = _looks(engine)
            reads = start_reads(engine, [WHOLE] * many, inbox := Inbox())
            for _ in range(20):
                assert looks.acquire(timeout=WAIT_S)
            assert sum("key" in each.path for each in server.received) == many
            go.set()
            for read in reads:
                inbox.wait(read)
                assert read.take() == DATA

    def test_no_second_request_while_the_store_throttles(self):
        held = Held()
        with well(held) as (_, engine):
            engine._policy.throttled()
            asked = _looks(engine, "late_s")
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            for _ in range(5):
                assert asked.acquire(timeout=WAIT_S)
            assert len(held.connections) <= 1
            held.go.set()
            inbox.wait(read)
            assert counted(engine) == (0, 0, 0)

    def test_a_second_request_that_is_throttled_is_the_last_for_now(self):
        held = Held()
        with well(_then(held, SLOW_DOWN)) as (_, engine):
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            held.wait_for(2)
            _settled(engine)
            held.go.set()
            inbox.wait(read)
            assert read.take() == DATA
            assert engine._transport.handles.watch.late_s(threading.TIMEOUT_MAX) == float("inf") or (
                engine._policy.hedges.throttled_at > 0
            )

    def test_hedging_is_disabled_by_option(self):
        with serving({"small": b"x"}, read=ReadOptions(hedge=False)) as (_, engine):
            assert engine._transport.handles.watch is None

    def test_single_attempt_option_sends_no_hedge(self):
        held = Held()
        with well(held, retry=RetryOptions(attempts=1)) as (_, engine):
            looks = _looks(engine)
            (read,) = start_reads(engine, [WHOLE], inbox := Inbox())
            for _ in range(5):
                assert looks.acquire(timeout=WAIT_S)
            assert len(held.connections) == 1
            held.go.set()
            inbox.wait(read)
            assert read.take() == DATA

    def test_reads_finish_by_hedges_when_one_percent_of_requests_stall(self):
        slow = {f"key-{number}": DATA for number in range(6)}
        seen = set()
        go = threading.Event()

        def fault(received, _answer, _send):
            if "key" not in received.path or received.path in seen:
                return False
            seen.add(received.path)
            return not go.wait(WAIT_S)

        with well(fault, slow) as (server, engine):
            before = len(server.received)
            spans = [SMALL] * 600
            for number in range(6):
                spans[100 * number + 50] = WHOLE._replace(key=f"key-{number}")
            found = [got for at in range(0, 600, 50) for got in read_many(engine, spans[at : at + 50])]
            wanted = [b"x" * 100 if span is SMALL else DATA for span in spans]
            assert found == wanted
            assert not go.is_set()
            # A second request that the first answer overtakes may be cancelled before the server has read it.
            assert 606 <= len(server.received) - before <= 600 + engine._policy.hedges.made
            go.set()

    def test_a_store_is_known_after_fifty_answers(self, monkeypatch):
        monkeypatch.setattr(hedging, "_LEAST", 50)  # conftest lets no store be known
        with serving({"small": b"x" * 100}) as (_, engine):
            watch = engine._transport.handles.watch
            assert watch.late_s(monotonic()) == inf
            read_many(engine, [SMALL] * 300)
            assert watch.late_s(monotonic() + 2) < inf


def test_events_tell_of_both_requests_and_of_the_race():
    with well(Held()) as (_, engine), hearing() as events:
        read_many(engine, [WHOLE])
        (hedged,) = [each for each in events if isinstance(each, Hedged)]
        assert hedged.won
        assert hedged.waited_s > 0
        started = [each.id for each in events if isinstance(each, RequestStarted)]
        ended = {each.id: each.outcome for each in events if isinstance(each, RequestEnded)}
        assert len(started) == 2
        assert [ended[each] for each in started] == ["cancelled", "done"]
        assert sum(isinstance(each, RangeRead) for each in events) == 1, "it is one read"


def _then(held, answer):
    """Return a fault that holds the first request, and answers the others so."""

    def fault(received, right, send):
        if not held.connections or "key" not in received.path:
            return held(received, right, send)
        held.connections.append(received.connection)
        send(answer)
        held.came.release()
        return True

    return fault


def _settled(engine):
    """Return once the second request has ended: it is counted then."""
    until(lambda: counted(engine)[0])


def _looks(engine, name="look"):
    """Return a semaphore that is released for each look at calls that are late."""
    watch, looks = engine._transport.handles.watch, threading.Semaphore(0)
    real = getattr(watch, name)
    ways = {"late_s": watch.late_s, "look": watch.look, name: lambda given: (looks.release(), real(given))[1]}
    engine._transport.handles.watch = SimpleNamespace(**ways)
    return looks
