"""Connections are kept for the next request of the same store, shared with no other, and closed with their pool."""

import time

from penstock.engine.contracts.exchange import Request
from penstock.engine.transport.easy import Easy
from penstock.engine.transport.libcurl import OK, ConnectionPool
from penstock.engine.transport.loop import Multi, connect
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted
from tests.engine.transport.calls import WAIT_S, carry, get, hello
from tests.threads import until


def test_connections_are_used_again():
    session = connect(TransportOptions(connections=4))
    with Scripted(hello) as server:
        for _ in range(3):
            assert {response.body for response in carry(session, *[get(server.url) for _ in range(256)])} == {b"hello"}
        assert len(server.received) == 768
        assert server.connections <= 4


def _carry(multi, easy, url):
    """Carry one GET out over the connections that the transfer shares."""
    easy.load(Request("GET", url), fresh=False)
    multi.add(easy)
    ends_at = time.monotonic() + WAIT_S
    while not (ended := multi.finished()):
        assert time.monotonic() < ends_at
        assert multi.perform()
        assert multi.poll(1)
    multi.remove(easy)
    assert ended == [(easy.pointer, OK)]
    assert easy.unload(OK).body == b"hello"


def test_the_transfers_of_one_pool_share_their_connections_and_those_of_another_do_not():
    multi, mine, others = Multi(8), ConnectionPool(), ConnectionPool()
    transfers = [Easy(TransportOptions(), pool) for pool in (mine, mine, others, others)]
    with Scripted(hello) as server:
        for easy in (*transfers, *transfers):
            _carry(multi, easy, server.url)
        assert [received.connection for received in server.received] == [1, 1, 2, 2] * 2
        for easy in transfers:
            easy.close()
        others.close()
        mine.close()


def test_a_pool_that_is_closed_closes_its_connections_and_no_other():
    multi, mine, others = Multi(8), ConnectionPool(), ConnectionPool()
    one, other = Easy(TransportOptions(), mine), Easy(TransportOptions(), others)
    with Scripted(hello) as server:
        for easy in (one, other):
            _carry(multi, easy, server.url)
        one.close()
        mine.close()
        until(lambda: len(server._open) <= 1)
        _carry(multi, other, server.url)
        assert server.connections == 2
        other.close()
        others.close()
