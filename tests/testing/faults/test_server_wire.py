"""Each fault does on the wire what it says, seen through a bare socket."""

from __future__ import annotations

import select
import time
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest

from penstock.testing.faults import FAULTS, Match
from tests.testing.faults.raw import everything, opened, reply, signed

DATA = bytes(range(256)) * 40
QUIET_S = 0.2  # how long a silence is listened to


@pytest.fixture
def ask(server):
    """Return a function that plants a fault, asks for an object, and returns the connection and the request's bytes."""
    name = uuid4().hex
    server.put(name, "k", DATA)
    with opened(server) as connection:

        def ask(fault, method="GET", body=b"", query="", **headers):
            fault = FAULTS[fault] if isinstance(fault, str) else fault
            server.fail(fault, when=Match(bucket=name))
            path = f"/{name}/k{query}" if query != "list" else f"/{name}?list-type=2"
            connection.sendall(signed(server, method, path, body, headers=headers))
            return connection

        ask.stored = lambda: server.objects(name)["k"]
        ask.seen = lambda: [(seen.fault, seen.status, seen.outcome) for seen in server.seen(bucket=name)]
        ask.again = lambda: connection.sendall(signed(server, "GET", f"/{name}/k"))
        yield ask


def test_no_fault_no_difference(ask):
    connection = ask(replace(FAULTS["reset"], verbs=frozenset()))
    status, headers, body = reply(connection)
    assert (status, headers["content-length"], body) == (200, str(len(DATA)), DATA)
    ask.again()
    assert reply(connection)[2] == DATA
    assert ask.seen() == [("", 200, "answered")] * 2


@pytest.mark.parametrize("name", ["reset", "lost"])
def test_a_reset_is_a_reset_and_only_the_lost_request_took_effect(name, ask):
    connection = ask(name, "PUT", b"new")
    with pytest.raises(ConnectionResetError):
        everything(connection)
    assert ask.stored() == (b"new" if name == "lost" else DATA)
    assert ask.seen() == [(name, 200 if name == "lost" else 0, "reset")]


@pytest.mark.parametrize(("name", "most"), [("reset-headers", 0), ("reset-body", len(DATA) // 2)])
def test_a_reset_can_come_half_way(name, most, ask):
    connection, came = ask(name), b""
    with pytest.raises(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            came += chunk
    assert not came or came.startswith(b"HTTP/1.1 200 OK\r\n")  # a reset may overtake what was sent before it
    assert len(came.partition(b"\r\n\r\n")[2]) <= most


def test_an_empty_answer_is_a_quiet_end(ask):
    assert everything(ask("empty", "PUT", b"new")) == b""
    assert ask.stored() == DATA


def test_an_idle_connection_dies_under_the_second_request_only(ask):
    connection = ask("idle")
    assert reply(connection)[2] == DATA
    ask.again()
    with suppress(ConnectionResetError):
        assert everything(connection) == b""
    assert ask.seen() == [("", 200, "answered"), ("idle", 0, "close")]


@pytest.mark.parametrize("name", ["truncate", "truncate-unsized"])
def test_a_truncated_body_ends_half_way(name, ask):
    head, _, body = everything(ask(name)).partition(b"\r\n\r\n")
    assert body == DATA[: len(DATA) // 2]
    assert (b"Content-Length: %d" % len(DATA) in head) == (name == "truncate")


@pytest.mark.parametrize(("name", "half"), [("stall", 0), ("stall-body", len(DATA) // 2)])
def test_stall_sends_nothing_further_and_keeps_connection_open(name, half, ask):
    connection, came = ask(name), b""
    while select.select([connection], [], [], QUIET_S)[0]:
        came += connection.recv(1 << 16)
    assert came.partition(b"\r\n\r\n")[2] == DATA[:half]
    assert ask.seen() == [(name, 200 if half else 0, "stall")]


def test_drip_sends_no_faster_than_its_configured_rate(ask):
    began = time.monotonic()
    assert reply(ask(replace(FAULTS["drip"], bytes_per_s=40_000)))[2] == DATA
    assert time.monotonic() - began >= len(DATA) / 40_000 * 0.9
    assert FAULTS["slow"].bytes_per_s > 1024 > FAULTS["drip"].bytes_per_s  # easy.STALL_BYTES_PER_S between


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.status])
def test_a_refusal_is_worded_as_s3_words_it_and_nothing_is_done(name, ask):
    fault = FAULTS[name]
    multipart = {"query": "?uploadId=x"} if name == "error-200" else {}
    connection = ask(name, "POST" if multipart else "PUT", b"new", **multipart)
    status, headers, body = reply(connection)
    assert status == fault.status
    assert ask.stored() == DATA
    if fault.code:
        assert f"<Code>{fault.code}</Code>".encode() in body
    else:
        assert body.startswith(b"<html>")
        assert len(body) > 100_000
    assert headers.get("retry-after") == dict(fault.headers).get("Retry-After")
    if fault.region:
        assert headers["x-amz-bucket-region"] == fault.region
        assert f"<Region>{fault.region}</Region>".encode() in body


@pytest.mark.parametrize("name", ["301", "307", "malformed"])
def test_moved_bucket_is_served_in_the_region_of_the_fault(name, server):
    bucket = f"moved-{name}"
    server.put(bucket, "k", DATA)
    server.fail(FAULTS[name], when=Match(bucket=bucket))
    statuses = []
    for region in (server.settings.region, server.settings.region, FAULTS[name].region):
        with opened(server) as connection:
            connection.sendall(signed(server, "GET", f"/{bucket}/k", region=region))
            statuses.append(reply(connection)[0])
    assert statuses == [FAULTS[name].status, 400, 200]


@pytest.mark.parametrize(("name", "by"), [("longer", 7), ("shorter", -7)])
def test_a_wrong_length_is_wrong_by_seven(name, by, ask):
    connection = ask(name, Connection="close")
    head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % (len(DATA) + by) in head
    assert body == DATA


def test_etag_fault_replaces_the_etag_and_keeps_the_body(ask):
    _, headers, body = reply(ask("etag"))
    assert (headers["etag"], body) == (f'"{"0" * 32}"', DATA)


def test_corrupt_fault_changes_exactly_one_body_byte(ask):
    _, _, body = reply(ask("corrupt"))
    assert sum(ours != theirs for ours, theirs in zip(body, DATA, strict=True)) == 1


def test_an_upload_that_is_corrupt_on_its_way_is_refused(ask):
    status, _, body = reply(ask("corrupt", "PUT", b"new"))
    assert (status, b"XAmzContentSHA256Mismatch" in body, ask.stored()) == (400, True, DATA)


@pytest.mark.parametrize(
    ("name", "status", "span"),
    [("range-whole", 200, None), ("range-200", 200, (10, 20)), ("range-other", 206, (11, 21))],
)
def test_a_range_is_answered_in_another_way(name, status, span, ask):
    got, headers, body = reply(ask(name, Range="bytes=10-19"))
    assert got == status
    assert body == (DATA[slice(*span)] if span else DATA)
    assert headers.get("content-range") == (f"bytes {span[0]}-{span[1] - 1}/{len(DATA)}" if span else None)


@pytest.mark.parametrize(
    ("name", "status", "last"), [("range-whole", 200, 0), ("range-200", 200, 10), ("range-other", 206, 11)]
)
def test_an_end_is_answered_in_another_way(name, status, last, ask):
    got, headers, body = reply(ask(name, Range="bytes=-10"))
    assert (got, body) == (status, DATA[-last:])
    size = len(DATA)
    assert headers.get("content-range") == (f"bytes {size - last}-{size - 1}/{size}" if last else None)


def test_a_duplicate_is_the_answer_twice(ask):
    connection = ask("duplicate")
    first, second = reply_twice(connection)
    assert first == second
    assert first.endswith(DATA)


def reply_twice(connection):
    came = b""
    while came.count(DATA) < 2:
        came += connection.recv(1 << 16)
    return came[: len(came) // 2], came[len(came) // 2 :]


def test_garbage_takes_the_place_of_xml(ask):
    status, _, body = reply(ask("garbage", query="list"))
    assert (status, body[:6]) == (200, b"<html>")


@pytest.mark.parametrize(
    ("name", "least", "most"), [("headers", 250, 300), ("headers-many", 300, 400), ("headers-long", 100, 150)]
)
def test_headers_are_as_huge_as_they_say(name, least, most, ask):
    head, _, body = everything(ask(name, Connection="close")).partition(b"\r\n\r\n")
    assert least << 10 < len(head) < most << 10
    assert body == DATA
    assert (max(map(len, head.split(b"\r\n"))) > 100 << 10) == (name == "headers-long")


def test_head_error_response_has_no_body(ask):
    for fault in ("500", "502"):
        connection = ask(fault, "HEAD")
        assert reply(connection, "HEAD")[0] == int(fault)
    ask.again()
    assert reply(connection)[2] == DATA
