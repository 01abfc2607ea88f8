"""One thread carries every call to its end: answered, failed, called off, or refused; nobody waits for ever."""

import threading
import time
from functools import partial

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.exchange import Request, Work
from penstock.engine.transport import loop
from penstock.engine.transport.loop import connect
from penstock.errors import (
    Bug,
    Cancelled,
    ConfigError,
    InvalidURL,
    NoSpace,
    NotFound,
    PenstockError,
    TimedOut,
    Unreachable,
    Unusable,
)
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from tests.children import in_child, python
from tests.engine.transport.calls import Breaking, Gate, Once, carry, get, hello
from tests.engine.transport.certificates import certified
from tests.threads import at_once, until


@pytest.fixture(scope="module")
def session():
    return connect(TransportOptions())


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    ca, context = certified(tmp_path_factory.mktemp("tls"))
    with Scripted(hello, tls=context) as server:
        yield server, str(ca)


class TestManyCalls:
    def test_stores_take_turns_where_descriptors_are_few(self, monkeypatch):
        ended = []

        class Noted(Once):
            def done(self, response):
                ended.append(self)
                return super().done(response)

        greedy, modest = connect(TransportOptions()), connect(TransportOptions())
        monkeypatch.setattr(greedy._mailbox, "most", 2)
        with Scripted(gate := Gate()) as server:
            many, few = ([Noted(Request("GET", server.url)) for _ in range(count)] for count in (200, 4))
            greedy.submit(many)
            modest.submit(few)
            gate.opened.set()  # not before all of them wait: the greedy ones could have ended by then
            for call in (*many, *few):
                assert call.wait().body == b"hello"
            assert server.connections <= 12, "two, and two more for each of the four calls that others make room for"
        assert max(map(ended.index, few)) < 150

    def test_calls_come_from_any_thread(self, session):
        with Scripted(hello) as server:
            calls = [[get(server.url) for _ in range(20)] for _ in range(8)]
            at_once(*(partial(session.submit, each) for each in calls))
            assert all(call.wait().status == 200 for each in calls for call in each)

    def test_attempts_that_are_due_at_once_are_made(self, seed):
        """They may be due while the thread begins to wait: nothing then may wait for ever."""
        script = """
            import random, sys
            from penstock.options import TransportOptions
            from penstock.engine.contracts.exchange import Work
            from penstock.engine.transport.loop import connect
            from tests.engine.transport.calls import Once, carry

            chance, session = random.Random(int(sys.argv[1])), connect(TransportOptions())
            for _ in range(100):  # local work, so that the thread has nothing in flight, and waits for no socket
                carry(session, Once(Work(int), delays=[chance.uniform(0, 50e-6) for _ in range(100)]))
            print("over")
        """
        ended = python(script, str(seed), limit_s=60)
        assert ended.stdout == "over\n", ended.stderr

    def test_reads_proceed_beside_busy_python(self, session):
        with Scripted(lambda _received, send: send(reply(200, b"x" * 100_000)) or True) as server:
            calls = [get(server.url, Buffer.allocate(100_000)) for _ in range(64)]
            session.submit(calls)
            deadline = time.monotonic() + 60
            while not all(call.over() for call in calls):  # pure Python, holding the GIL as hard as it can
                sum(range(2_000))
                assert time.monotonic() < deadline
        assert all(call.responses[0].received == 100_000 for call in calls)


class TestNoRequest:
    """Verbs of an HTTP dialect for which the store need not be asked."""

    def test_a_call_that_does_not_block_is_carried_out_on_the_way(self, session):
        calls = [Once(Work(lambda number=number: number, blocks=False)) for number in range(300)]
        before = session.handles.count()
        assert [response.body for response in carry(session, *calls)] == list(range(300))
        assert session.handles.active == 0
        assert session.handles.count() <= max(before, 1), "it takes no connection"

    def test_exception_in_work_is_returned_as_the_fault_of_its_call(self, session):
        def refuse():
            raise NotFound("no such thing")

        def fail():
            raise KeyError("key")

        refused, failed = Once(Work(refuse, blocks=False)), Once(Work(fail, blocks=False))
        with Scripted(hello) as server:
            good = get(server.url)
            session.submit((refused, failed, good))
            assert isinstance(refused.wait().fault, NotFound)
            assert isinstance(failed.wait().fault, Bug)
            assert good.wait().body == b"hello"

    def test_work_that_needs_no_request_can_be_retried(self, session):
        call = Once(Work(lambda: "value", blocks=False), delays=(0.0, 0.001))
        session.submit((call,))
        assert call.wait().body == "value"
        assert call.attempts == 3


class TestFailures:
    @pytest.mark.parametrize("target", [None, 100, 10_000])
    def test_a_body_cut_short(self, session, target):
        with Scripted(lambda _received, send: send(reply(200, b"x" * 60, content_length="10000")) and False) as server:
            response = carry(session, get(server.url, target and Buffer.allocate(target)))[0]
        assert type(response.fault) is Unreachable
        assert (response.body, response.received) == ((b"x" * 60, 0) if target is None else (b"", 60))

    def test_a_body_without_a_length_is_whole_to_libcurl(self, session):
        # Trap 15: that is why drivers compare sizes.
        with Scripted(lambda _received, send: send(b"HTTP/1.1 200 OK\r\n\r\nhalf") and False) as server:
            response = carry(session, get(server.url, Buffer.allocate(8)))[0]
        assert (response.fault, response.received) == (None, 4)

    @pytest.mark.parametrize("body", [None, bytes(100_000)])
    def test_a_kept_connection_that_died_costs_nothing(self, session, body):
        def script(received, send):
            send(reply(200, str(len(received.body)).encode()))
            return received.number == 2  # the first answer promises to keep the connection, and breaks that

        with Scripted(script) as server:
            assert carry(session, get(server.url))[0].status == 200
            request = Request("PUT" if body else "GET", server.url, ("Expect:",), body=body)
            response = carry(session, Once(request))[0]
            while isinstance(response.fault, Unreachable):  # libcurl may notice only after it has written
                response = carry(session, Once(request))[0]
        assert response.body == str(len(body or b"")).encode()

    def test_a_refused_connection(self, session):
        response = carry(session, get("http://127.0.0.1:1"))[0]
        assert type(response.fault) is Unreachable
        assert "that the server runs" in str(response.fault)

    def test_unanswered_connection_fails_within_the_connect_timeout(self):
        session = connect(TransportOptions(connect_timeout_s=0.3))
        began = time.monotonic()
        response = carry(session, get("http://192.0.2.1"))[0]  # TEST-NET-1: nobody answers, or no route
        assert isinstance(response.fault, TimedOut | Unreachable)
        assert time.monotonic() - began < 5

    @pytest.mark.parametrize("sent", [b"", reply(200, b"some", content_length="100")])
    def test_a_transfer_that_stalls_is_given_up(self, sent):
        session, over = connect(TransportOptions(stall_timeout_s=1)), threading.Event()

        def script(_received, send):
            send(sent)
            over.wait(60)
            return False

        with Scripted(script) as server:
            began = time.monotonic()
            response = carry(session, get(server.url))[0]
            over.set()
        assert type(response.fault) is TimedOut
        assert 0.5 < time.monotonic() - began < 20, "as long as by default"

    def test_a_slow_transfer_that_moves_is_left_alone(self, monkeypatch):
        # Trap 10: no limit on the whole, only on standing still.
        monkeypatch.setattr("penstock.engine.transport.easy.STALL_BYTES_PER_S", 100)
        session, pace = connect(TransportOptions(stall_timeout_s=3)), threading.Event()

        def script(_received, send):
            send(reply(200, content_length="30000"))
            for _ in range(30):
                send(b"x" * 1000)
                pace.wait(0.15)
            return False

        with Scripted(script) as server:
            response = carry(session, get(server.url))[0]
        assert (response.fault, len(response.body)) == (None, 30_000)

    @pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://", "gopher://x"])
    def test_only_http_is_spoken(self, session, url):
        assert isinstance(carry(session, get(url))[0].fault, InvalidURL)

    def test_no_server_at_all(self, session):
        with Scripted(lambda _received, send: send(b"SSH-2.0-OpenSSH\r\n\r\n") and False) as server:
            response = carry(session, get(server.url))[0]
        assert isinstance(response.fault, PenstockError)


class TestBrokenCalls:
    def test_a_request_that_raises_is_the_caller_s_to_hear(self, session):
        ours, theirs = NotFound("no such thing"), ZeroDivisionError("oops")
        smuggling = Request("GET", "http://127.0.0.1:1", ("a: b\r\nc: d",))
        first, second, work, header = carry(session, *map(Once, (ours, theirs, Work(lambda: None), smuggling)))
        assert first.fault is ours
        assert (type(second.fault), second.fault.__cause__) == (Bug, theirs)
        assert type(work.fault) is Bug
        assert type(header.fault) is Unusable
        with Scripted(hello) as server:
            assert carry(session, get(server.url))[0].body == b"hello", "the thread lives on"

    @pytest.mark.parametrize(
        "where", ["session.ConnectionPool", "session.Transfer", "easy.Easy.load", "easy.Easy.unload", "loop.Multi.add"]
    )
    def test_memory_that_runs_short_for_one_call_ends_that_call_alone(self, monkeypatch, where):
        session = connect(TransportOptions())

        def broken(*_, **__):
            raise MemoryError

        with Scripted(hello) as server:
            with monkeypatch.context() as patch:
                patch.setattr(f"penstock.engine.transport.{where}", broken)
                response = carry(session, get(server.url))[0]
                assert type(response.fault) is NoSpace
                assert "out of memory" in str(response.fault)
            assert carry(session, get(server.url))[0].body == b"hello", "the thread lives on"

    def test_exception_in_done_callback_is_delivered_as_bug_and_the_thread_survives(self, session):
        with Scripted(hello) as server:
            broken = Breaking(Request("GET", server.url))
            carry(session, broken)
            assert carry(session, get(server.url))[0].body == b"hello"
        first, second = broken.responses
        assert (first.body, type(second.fault), type(second.fault.__cause__)) == (b"hello", Bug, ZeroDivisionError)

    def test_another_attempt_comes_after_its_delay(self, session):
        with Scripted(hello) as server:
            call = Once(Request("GET", server.url), delays=[0.0, 0.2])
            began = time.monotonic()
            session.submit([call])
            call.wait()
        assert call.attempts == len(server.received) == 3
        assert time.monotonic() - began >= 0.2

    def test_after_a_broken_connection_another_is_tried(self, session):
        def script(received, send):
            send(reply(200, b"half", content_length="8") if received.number == 1 else reply(200, b"complete"))
            return received.number > 1

        with Scripted(script) as server:
            call = Once(Request("GET", server.url), delays=[0.0])
            session.submit([call])
            assert call.wait().body == b"complete"
            assert [received.connection for received in server.received] == [1, 2]


class TestCancel:
    def test_active_queued_and_delayed_calls_end(self):
        session, gate = connect(TransportOptions(connections=1)), Gate()
        with Scripted(hello) as quick, Scripted(gate) as slow:
            delayed = Once(Request("GET", quick.url), delays=[3600.0])
            session.submit([delayed])
            until(lambda: delayed.responses)
            active, queued, spared = get(slow.url, Buffer.allocate(10_000)), get(slow.url), get(slow.url)
            session.submit([active, queued, spared])
            assert gate.asked.acquire(timeout=60)
            session.cancel([active, queued, delayed])
            for call in (active, queued, delayed):
                assert type(call.wait().fault) is Cancelled
            gate.opened.set()
            assert spared.wait().body == b"hello"
            session.cancel([active, spared])  # they are over: nothing happens
            assert carry(session, get(quick.url))[0].body == b"hello"
            assert [len(call.responses) for call in (active, queued, spared)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "host", "advice"),
    [
        ({"ca_file": "known"}, "127.0.0.1", None),
        ({"verify": False}, "127.0.0.1", None),
        ({}, "127.0.0.1", "ca_file="),
        ({"ca_file": "known"}, "localhost", ""),
        ({"ca_file": "nonsense"}, "127.0.0.1", ""),
    ],
    ids=["known", "not verified", "unknown", "another host's", "no certificate"],
)
def test_only_servers_with_a_certificate_of_a_known_ca_are_spoken_to(secure, tmp_path, given, host, advice):
    server, ca = secure
    (tmp_path / "ca.pem").write_text("nonsense")
    if "ca_file" in given:
        given = {"ca_file": ca if given["ca_file"] == "known" else str(tmp_path / "ca.pem")}
    response = carry(connect(TransportOptions(**given)), get(server.url.replace("127.0.0.1", host)))[0]
    if advice is None:
        assert response.body == b"hello"
    else:
        assert type(response.fault) is ConfigError
        assert advice in str(response.fault)


_FORKS = """
import os, sys, threading
from penstock.options import TransportOptions
from penstock.engine.buffer import Buffer
from penstock.testing.servers import Scripted, reply
from penstock.engine.transport.loop import connect
from tests.children import in_child
from tests.engine.transport.calls import Gate, Once, carry, get, hello
from tests.engine.transport.certificates import certified
from pathlib import Path

ca, context = certified(Path(sys.argv[1])) if len(sys.argv) > 1 else (None, None)
options = TransportOptions(ca_file=ca and str(ca), connections=16)
size = 100_000
stop = threading.Event()

def read(session, url, count=1):
    calls = [get(url, Buffer.allocate(size)) for _ in range(count)]
    for call, response in zip(calls, carry(session, *calls)):
        assert (response.status, response.received, response.fault) == (200, size, None), response

def busy(session, url):
    while not stop.is_set():
        read(session, url, 16)

# The server forks first, so that it lives in a process of its own and no test fork copies its locks.
ready, told = os.pipe()
server_pid = os.fork()
if server_pid == 0:
    with Scripted(lambda received, send: send(reply(200, b"x" * size)) or True, tls=context) as server:
        os.write(told, server.url.encode())
        threading.Event().wait(60)
        os._exit(0)
url = os.read(ready, 100).decode()
session = connect(options)
thread = threading.Thread(target=busy, args=(session, url))
read(session, url)
thread.start()
for number in range(40):
    in_child(lambda: read(connect(options), url, 3))
stop.set()
thread.join()
read(session, url, 16)
os.kill(server_pid, 9)
print("parent and children read on")
"""


class TestForks:
    @pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
    def test_trap_01_children_read_while_the_parent_s_thread_is_busy(self, tls, tmp_path):
        ended = python(_FORKS, *([str(tmp_path)] if tls else []), limit_s=90)
        assert ended.stdout == "parent and children read on\n", ended.stderr

    def test_session_opened_before_a_fork_refuses_requests_in_the_child(self, session):
        with Scripted(hello) as server:
            carry(session, get(server.url))

            def child():
                response = carry(session, get(server.url))[0]
                assert type(response.fault) is Unusable
                assert "fork" in str(response.fault)
                session.cancel([])

            in_child(child)
            assert carry(session, get(server.url))[0].body == b"hello"


class TestEnds:
    def test_an_interpreter_ends_with_transfers_in_flight(self):
        script = """
            import threading
            from penstock.options import TransportOptions
            from penstock.testing.servers import Scripted
            from penstock.engine.transport.loop import connect
            from tests.engine.transport.calls import get
            asked = threading.Event()
            server = Scripted(lambda received, send: asked.set() or threading.Event().wait())
            server.__enter__()
            calls = [get(server.url) for _ in range(300)]
            connect(TransportOptions()).submit(calls)
            assert asked.wait(60)
            print("leaving")
        """
        began = time.monotonic()
        ended = python(script, limit_s=60)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "leaving\n", "")
        assert time.monotonic() - began < 20, "it waited for the answers until they were given up"

    @pytest.mark.parametrize("where", ["finished", "perform", "poll"])
    def test_dying_io_thread_fails_every_waiting_call_with_a_bug(self, where):
        script = """
            import sys, threading
            from penstock.errors import Bug
            from penstock.options import TransportOptions
            from penstock.testing.servers import Scripted, reply
            from penstock.engine.transport.loop import Multi, connect
            from tests.engine.transport.calls import carry, get
            hold = threading.Event()
            def script(received, send):
                if received.path == "/hold":
                    hold.wait(60)
                send(reply(200))
                return True
            with Scripted(script) as server:
                session = connect(TransportOptions(connections=2))
                carry(session, get(server.url))
                held = [get(server.url + "/hold") for _ in range(4)]
                session.submit(held)
                def broken(*_):
                    raise MemoryError("no more")
                sound = getattr(Multi, sys.argv[1])
                setattr(Multi, sys.argv[1], broken)
                late = get(server.url)
                session.submit([late])
                for call in (*held, late):
                    fault = call.wait(60).fault
                    assert type(fault) is Bug and "no more" in str(fault), fault
                after = get(server.url)
                session.submit([after])
                assert type(after.wait(60).fault) is Bug
                hold.set()
                setattr(Multi, sys.argv[1], sound)
                assert carry(connect(TransportOptions()), get(server.url))[0].status == 200, "on another thread"
            print("all were told")
        """
        ended = python(script, where, limit_s=60)
        assert ended.stdout == "all were told\n", ended.stderr

    def test_there_is_one_thread_for_all_stores(self):
        sessions = [connect(TransportOptions()) for _ in range(3)]
        assert len({id(session._mailbox) for session in sessions}) == 1
        assert [thread.name for thread in threading.enumerate()].count("penstock-io") == 1
        assert loop._loop.mailbox is sessions[0]._mailbox


class Turnstile:
    """A gate that has a call wait until it has asked so often."""

    closed = True

    def __init__(self, times):
        self.times, self.asked, self.noted, self.reached = times, 0, [], threading.Event()

    def wait(self, _call):
        self.asked += 1
        self.reached.set()
        return 0.001 if self.asked <= self.times else 0.0

    def failed(self, call, _delay_s):
        self.noted.append(call)
        return 0.0


def _guarded(times):
    session = connect(TransportOptions())
    session.guard(Turnstile(times))
    return session


class TestGates:
    def test_calls_wait_until_the_gate_lets_them_go(self):
        session = _guarded(20)
        with Scripted(hello) as server:
            assert all(each.body == b"hello" for each in carry(session, *(get(server.url) for _ in range(5))))
        assert session.gate.asked == 25
        assert session.gate.noted == []

    def test_an_open_gate_is_not_asked(self):
        session = _guarded(20)
        session.gate.closed = False
        with Scripted(hello) as server:
            carry(session, get(server.url))
        assert session.gate.asked == 0

    def test_gate_receives_each_retried_call_and_allows_every_attempt(self):
        session = _guarded(0)
        with Scripted(hello) as server:
            call = Once(Request("GET", server.url), delays=[3600.0, 3600.0])
            carry(session, call)
        assert session.gate.noted == [call, call]
        assert session.gate.asked == 3

    def test_calls_that_wait_at_the_gate_are_called_off(self):
        session = _guarded(10**9)
        for end in (session.cancel, lambda _calls: session.close()):
            call = get("http://127.0.0.1:9/")
            session.submit([call])
            assert session.gate.reached.wait(60)
            session.gate.reached.clear()
            end([call])
            assert isinstance(call.wait().fault, Cancelled)


class Steward:
    """Hands out shares of a node, or fails."""

    def __init__(self, most):
        self.most, self.asked = most, threading.Semaphore(0)

    def tick(self, now, busy, *, full):
        self.asked.release()
        assert isinstance(full, bool)
        if self.most is None:
            raise OSError(busy)
        return self.most, now + 0.001


class TestShares:
    def test_share_limits_the_number_of_requests_in_flight(self, monkeypatch):
        steward = Steward(2)
        session = connect(TransportOptions())
        carrier = loop._loop
        monkeypatch.setattr(loop, "member", steward)
        monkeypatch.setattr(carrier, "_share_at", 0.0)
        gate = Gate()
        with Scripted(gate) as server:
            carry_on = [get(server.url) for _ in range(20)]
            assert steward.asked.acquire(timeout=60)
            session.submit(carry_on)
            assert gate.asked.acquire(timeout=60)
            assert gate.asked.acquire(timeout=60)
            assert len(carrier._busy) == 2
            gate.opened.set()
            assert all(call.wait().body == b"hello" for call in carry_on)
            assert server.connections <= 4
        monkeypatch.undo()
        carrier._share = float("inf")

    def test_requests_proceed_without_limit_if_a_share_is_unavailable(self, monkeypatch):
        session = connect(TransportOptions())
        carrier = loop._loop
        steward = Steward(None)
        before = carrier._share_at
        monkeypatch.setattr(loop, "member", steward)
        carrier._share_at = 0.0
        with Scripted(hello) as server:
            carry(session, *(get(server.url) for _ in range(5)))
            assert steward.asked.acquire(timeout=60)
        assert carrier._share == carrier._share_at == float("inf")
        carrier._share_at = before
