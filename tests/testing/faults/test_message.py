"""Requests are read whole or refused, and named by what they ask for."""

from __future__ import annotations

import pytest

from tests.testing.faults.raw import everything, opened


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000,
    ],
    ids=["tls", "length", "chunks", "huge"],
)
def test_what_is_no_request_is_refused_and_let_go(request_bytes, server):
    with opened(server) as connection:
        connection.sendall(request_bytes)
        try:
            assert everything(connection).startswith(b"HTTP/1.1 4")
        except ConnectionResetError:  # it was let go before all of it was read
            assert len(request_bytes) > 65_536
