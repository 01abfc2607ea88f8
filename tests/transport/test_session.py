"""A session carries at most as many calls at once as its options and its store's distance allow, until it is closed."""

import threading

from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from penstock.transport.loop import connect
from tests.transport.calls import Gate, carry, get


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
