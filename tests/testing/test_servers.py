"""The scripted server sends what its script says, byte for byte, and records what it was sent."""

import socket
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from penstock.testing.servers import Scripted, reply


def _connected(server):
    return HTTPConnection(urlsplit(server.url).netloc, timeout=60)


def test_requests_are_recorded_as_they_came_with_their_connection():
    with Scripted(lambda _received, send: send(reply(200, b"ok")) or True) as server:
        one, other = _connected(server), _connected(server)
        one.request("PUT", "/a%20b?x=+", b"\x00body", {"X-Name": "value", "Range": "bytes=3-9"})
        assert one.getresponse().read() == b"ok"
        other.request("GET", "/second")
        assert other.getresponse().read() == b"ok"
        one.request("GET", "/third")
        assert one.getresponse().read() == b"ok"
        one.close()
        other.close()
    first, second, third = server.received
    assert (first.method, first.path, first.body, first.range) == ("PUT", "/a%20b?x=+", b"\x00body", (3, 10))
    assert first.headers["x-name"] == "value"
    assert (second.range, [each.number for each in server.received]) == (None, [1, 2, 3])
    assert (first.connection, second.connection, third.connection, server.connections) == (1, 2, 1, 2)


def test_received_request_repr_shows_no_body_or_header():
    with Scripted(lambda _received, send: send(reply(200)) or False) as server:
        client = _connected(server)
        client.request("PUT", "/", b"secret-body", {"Authorization": "secret-key"})
        client.getresponse().read()
        client.close()
    assert "secret" not in repr(server.received)


@pytest.mark.parametrize("keeps", [True, False])
def test_script_return_value_decides_if_connection_stays_open(keeps):
    with Scripted(lambda _received, send: send(reply(200)) or keeps) as server:
        with socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port), 60) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16) == reply(200)
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16) == (reply(200) if keeps else b"")
        assert len(server.received) == 1 + keeps


def test_open_connections_are_closed_when_server_block_ends():
    with Scripted(lambda _received, send: send(reply(200)) or True) as server:
        address = (urlsplit(server.url).hostname, urlsplit(server.url).port)
        client = socket.create_connection(address, 60)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(1 << 16) == reply(200)
    with client:
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 60)


def test_a_length_that_is_given_is_sent_true_or_not():
    assert reply(206, b"abc", content_range="bytes 0-2/9") == (
        b"HTTP/1.1 206 .\r\ncontent-length: 3\r\ncontent-range: bytes 0-2/9\r\n\r\nabc"
    )
    assert reply(200, b"abc", content_length="7") == b"HTTP/1.1 200 .\r\ncontent-length: 7\r\n\r\nabc"
