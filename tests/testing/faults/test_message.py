"""Requests are read whole or refused, and named by what they ask for."""

from __future__ import annotations

import socket

import pytest

from penstock.testing.faults.message import Refused, Request, receive
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
def test_malformed_request_is_refused_and_connection_closed(request_bytes, server):
    with opened(server) as connection:
        connection.sendall(request_bytes)
        try:
            assert everything(connection).startswith(b"HTTP/1.1 4")
        except ConnectionResetError:  # it was let go before all of it was read
            assert len(request_bytes) > 65_536


@pytest.mark.parametrize(
    ("method", "target", "headers", "verb"),
    [
        ("GET", "/bucket/?list-type=2", {}, "list"),
        ("GET", "/bucket/?uploads", {}, "uploads"),
        ("GET", "/bucket/key", {}, "get"),
        ("HEAD", "/bucket/key", {}, "head"),
        ("PUT", "/bucket/key", {}, "put"),
        ("PUT", "/bucket/key", {"x-amz-copy-source": "b/k"}, "copy"),
        ("POST", "/bucket/key?uploads", {}, "create"),
        ("PUT", "/bucket/key?partNumber=1&uploadId=u", {}, "part"),
        ("PUT", "/bucket/key?partNumber=1&uploadId=u", {"x-amz-copy-source": "b/k"}, "copy-part"),
        ("POST", "/bucket/key?uploadId=u", {}, "complete"),
        ("DELETE", "/bucket/key?uploadId=u", {}, "abort"),
        ("DELETE", "/bucket/key", {}, "delete"),
        ("PATCH", "/bucket/key", {}, ""),
    ],
)
def test_request_verb_is_derived_from_method_target_and_headers(method, target, headers, verb):
    path, _, query = target.partition("?")
    assert Request(method, path, query, headers, bytearray()).verb == verb


def test_names_are_unescaped_once_and_a_plus_stays_a_plus():
    request = Request("PUT", "/bucket/a%2520b%2Fc+d", "uploadId=u%2B+%26&partNumber=2", {}, bytearray())
    assert (request.bucket, request.key) == ("bucket", "a%20b/c+d")
    assert request.parameters == {"uploadId": "u++&", "partNumber": "2"}


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nx: 1\r\n", b"PUT /b/k HTTP/1.1\r\ncontent-length: 9\r\n\r\nhalf"]
)
def test_a_client_that_dies_half_way_has_sent_no_request(sent):
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as reader:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)
        assert receive(reader, theirs) is None


def test_a_body_that_waits_for_leave_gets_it_and_the_next_request_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as reader:
        ours.sendall(
            b"PUT /b/k HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\nbodyGET /b/next HTTP/1.1\r\n\r\n"
        )
        first, second = receive(reader, theirs), receive(reader, theirs)
        assert ours.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (bytes(first.body), second.key) == (b"body", "next")


def test_an_error_is_worded_in_xml_and_names_its_region_in_a_header_too():
    answer = Refused(301, "PermanentRedirect", "<&\r>", region="eu-test-1").answer()
    assert answer.headers["x-amz-bucket-region"] == "eu-test-1"
    assert answer.body.endswith(
        b"<Error><Code>PermanentRedirect</Code><Message>&lt;&amp;&#13;&gt;</Message><Region>eu-test-1</Region></Error>"
    )
    assert answer.line == "HTTP/1.1 301 Moved Permanently"
