"""Calls that take long are shown to what watches their store; what it asks for besides goes first, and elsewhere."""

import socket
import threading
from contextlib import contextmanager

import pytest

from penstock.engine.contracts.exchange import Request
from penstock.engine.transport import loop
from penstock.engine.transport.loop import connect
from penstock.errors import Cancelled
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from tests.engine.transport.calls import WAIT_S, Gate, Once, carry, get, hello
from tests.threads import until


class Watching:
    """A watch that keeps the traffic that it is shown, releases ``looks`` for each, and asks for ``extra`` once."""

    def __init__(self, extra=None, late=0.02):
        self.extra, self.late = extra, late
        self.looks = threading.Semaphore(0)
        self.seen = []

    def late_s(self, _now):
        return self.late

    def look(self, traffic):
        self.seen.append(traffic)
        extra, self.extra = self.extra, None
        self.looks.release()
        return [(traffic.under_way[0].operation, extra)] if extra is not None else []


def watched(url, watch, **options):
    """Send a call whose session is watched."""
    session = connect(TransportOptions(**options))
    session.watch(watch)
    session.submit([call := get(url)])
    return session, call


@contextmanager
def twice(first, second):
    """Yield a server on two addresses of loopback, one port, and the URL that names the first."""
    with Scripted(first) as server, Scripted(second) as other:
        port = int(server.url.rpartition(":")[2])
        other._listener.close()
        other._listener = socket.create_server(("127.0.0.2", port), backlog=16)
        threading.Thread(target=other._accept, daemon=True).start()
        yield f"http://localhost:{port}/key", other


def test_watch_sees_a_waiting_call_and_its_waiting_time():
    gate = Gate()
    with Scripted(gate) as server:
        session = connect(TransportOptions())
        gate.opened.set()
        carry(session, get(server.url))
        gate.opened.clear()
        session.watch(watch := Watching())
        session.submit([call := get(server.url)])
        assert watch.looks.acquire(timeout=WAIT_S)
        traffic = watch.seen[0]
        assert traffic.transport is session
        assert traffic.ended == 1
        (shown,) = traffic.under_way
        assert shown.operation is call
        assert shown.waited_s >= 0.02
        assert (shown.connecting, shown.received, shown.body_s, shown.passed) == (False, 0, 0.0, 0)
        gate.opened.set()
        assert call.wait().body == b"hello"


def test_a_body_under_way_is_shown_with_its_bytes():
    go = threading.Event()

    def half(_received, send):
        whole = reply(200, b"x" * 10_000)
        send(whole[:-5_000])
        assert go.wait(WAIT_S)
        send(whole[-5_000:])
        return True

    with Scripted(half) as server:
        _, call = watched(server.url, watch := Watching())
        while not watch.seen or not watch.seen[-1].under_way[0].body_s:
            assert watch.looks.acquire(timeout=WAIT_S)
        shown = watch.seen[-1].under_way[0]
        assert shown.received == 5_000
        assert shown.waited_s >= shown.body_s > 0
        go.set()
        assert len(call.wait().body) == 10_000


def test_a_connection_that_is_not_answered_is_shown_as_such():
    with socket.socket() as full:  # a listener whose queue is full: handshakes get no answer
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        filling = [socket.socket() for _ in range(4)]
        try:
            for each in filling:
                each.settimeout(0)
                each.connect_ex(full.getsockname())
            url = f"http://127.0.0.1:{full.getsockname()[1]}/"
            session, call = watched(url, watch := Watching(), connect_timeout_s=60)
            assert watch.looks.acquire(timeout=WAIT_S)
            assert watch.seen[0].under_way[0].connecting
            session.cancel([call])
            assert type(call.wait().fault) is Cancelled
        finally:
            for each in filling:
                each.close()


def test_extra_request_precedes_waiting_calls_and_opens_a_new_connection():
    gate = Gate()
    with Scripted(lambda received, send: (gate if received.path == "/held" else hello)(received, send)) as server:
        session = connect(TransportOptions(connections=1))
        carry(session, get(server.url))
        extra = get(f"{server.url}/extra")
        session.watch(Watching(extra))
        held = get(f"{server.url}/held")
        waiting = [get(f"{server.url}/waiting") for _ in range(10)]
        session.submit([held, *waiting])
        assert gate.asked.acquire(timeout=WAIT_S)
        until(lambda: session.ready and session.ready[0][0] is extra)
        gate.opened.set()
        for call in (extra, held, *waiting):
            assert call.wait().body == b"hello"
        assert [each.path for each in server.received].index("/extra") == 2
        assert server.connections == 2


@pytest.mark.parametrize("used", ["127.0.0.1", "127.0.0.2"])
def test_another_address_of_the_host_is_used_where_there_is_one(monkeypatch, used):
    gate = Gate()
    addresses = [(None, None, None, None, (each, 0)) for each in (used, "127.0.0.1", "127.0.0.2")]
    with twice(gate, hello) as (url, other):
        extra = get(url)
        session, call = watched(url, watch := Watching())
        assert gate.asked.acquire(timeout=WAIT_S)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        known = loop._loop._lookout._addresses._known
        known.pop(("localhost", int(url.split(":")[2].partition("/")[0])), None)
        loop._loop._lookout._addresses.other(url, "")
        until(lambda: any(found for _, found in known.values()))
        watch.extra = extra
        assert extra.wait().body == b"hello"
        assert len(other.received) == 1
        assert other.received[0].headers["host"].startswith("localhost:"), "its name stays what was asked for"
        gate.opened.set()
        assert call.wait().body == b"hello"
        carry(session, get(url))
        assert len(other.received) == 1, "the address was for one request"


class BreaksInLook(Watching):
    def look(self, traffic):
        super().look(traffic)
        raise RuntimeError("on purpose")


class BreaksBefore(Watching):
    def late_s(self, _now):
        self.looks.release()
        raise RuntimeError("on purpose")


@pytest.mark.parametrize(("broken", "seen"), [(BreaksInLook, 1), (BreaksBefore, 0)])
def test_failing_watch_is_removed_and_calls_still_succeed(broken, seen):
    gate = Gate()
    with Scripted(gate) as server:
        session, call = watched(server.url, watch := broken())
        assert watch.looks.acquire(timeout=WAIT_S)
        gate.opened.set()
        assert call.wait().body == b"hello"
        assert carry(session, get(server.url))[0].body == b"hello"
        assert session.handles.watch is None
        assert len(watch.seen) == seen


def test_nothing_is_shown_while_nothing_is_late():
    gate = Gate()
    with Scripted(gate) as server:
        sessions = [connect(TransportOptions()) for _ in range(3)]
        never, late = Watching(late=float("inf")), Watching()
        sessions[0].watch(never)
        sessions[1].watch(late)
        calls = [Once(Request("GET", server.url)) for _ in sessions]
        for session, call in zip(sessions, calls, strict=True):
            session.submit([call])
        for _ in range(3):
            assert late.looks.acquire(timeout=WAIT_S)
        assert never.seen == []
        assert {each.operation for traffic in late.seen for each in traffic.under_way} == {calls[1]}
        gate.opened.set()
        for call in calls:
            assert call.wait().body == b"hello"
