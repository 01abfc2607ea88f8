"""A session carries at most as many calls at once as its options and its store's distance allow, until it is closed."""

import threading

from penstock.engine.contracts.exchange import Request
from penstock.engine.transport.loop import connect
from penstock.engine.transport.session import Session
from penstock.errors import Cancelled, Unusable
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from tests.engine.transport.calls import Gate, Once, carry, get, hello, mailbox


def test_no_more_are_in_flight_than_allowed():
    session, gate = connect(TransportOptions(connections=3)), Gate()
    with Scripted(gate) as server:
        calls = [get(server.url) for _ in range(10)]
        session.submit(calls)
        for _ in range(3):
            assert gate.asked.acquire(timeout=60)
        assert len(server.received) == 3
        gate.opened.set()
        assert [call.wait().body for call in calls] == [b"hello"] * 10
        assert server.connections == 3


def test_a_distant_store_has_many_in_flight_after_its_first_answers():
    def script(_received, send):
        threading.Event().wait(0.05)
        send(reply(200))
        return True

    with Scripted(script) as server:
        session = connect(TransportOptions())
        before = session.concurrency()
        carry(session, *[get(server.url) for _ in range(before)])
    assert session.concurrency() == 256 > before


def test_calls_that_come_after_the_end_are_refused_and_those_before_it_are_called_off():
    session, gate = connect(TransportOptions(connections=1)), Gate()
    with Scripted(gate) as server:
        active, queued, late = (get(server.url) for _ in range(3))
        session.submit([active, queued])
        assert gate.asked.acquire(timeout=60)
        assert session.usable()
        session.close()
        assert not session.usable()
        session.submit([late])
        for call in (active, queued):
            assert type(call.wait().fault) is Cancelled
        assert type(late.wait().fault) is Unusable
        gate.opened.set()
        assert len(server.received) == 1


def test_the_process_allows_no_session_more_than_its_descriptors_do():
    box = mailbox()
    many, few = (Session(box, TransportOptions(connections=count)) for count in (256, 2))
    assert (many.concurrency(), few.concurrency()) == (3, 2)
    assert not few.full()
    few.handles.active = 2
    assert few.full()


def test_handles_are_kept_for_the_next_call_and_freed_with_their_session():
    box = mailbox()
    session = Session(box, TransportOptions())
    one, other = session.transfer(), session.transfer()
    assert one is not other
    assert one.free() is session
    assert session.transfer() is one
    for transfer in (one, other):
        transfer.free()
    handles = session.handles
    assert handles.count() == 2
    assert not box.discarded
    del session
    assert [*box.discarded] == [handles], "no cycle keeps a session that nobody holds"
    handles.close()
    assert handles.count() == 0


def test_failing_gate_is_removed_and_requests_still_succeed():
    class Broken:
        closed = True

        def wait(self, _call):
            raise RuntimeError("on purpose")

        def failed(self, _call, _delay_s):
            raise RuntimeError("on purpose")

    with Scripted(hello) as server:
        session = connect(TransportOptions())
        session.guard(Broken())
        assert carry(session, get(server.url))[0].body == b"hello"
        assert session.gate is None
        session.guard(Broken())
        session.gate.closed = False
        call = Once(Request("GET", server.url), delays=(0.001,))
        assert carry(session, call)[0].body == b"hello"
        assert call.attempts == 2
        assert session.gate is None
