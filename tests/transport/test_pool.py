"""Connections are kept for the next request of the same store, shared with no other, and closed with their pool."""

from penstock.options import TransportOptions
from penstock.testing.servers import Scripted
from penstock.transport.loop import connect
from tests.transport.calls import carry, get, hello


def test_connections_are_used_again():
    session = connect(TransportOptions(connections=4))
    with Scripted(hello) as server:
        for _ in range(3):
            assert {response.body for response in carry(session, *[get(server.url) for _ in range(256)])} == {b"hello"}
        assert len(server.received) == 768
        assert server.connections <= 4
