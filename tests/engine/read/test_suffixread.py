"""The last bytes of an object: one request, held to one version; a look first where the store has no such range."""

import os
from dataclasses import replace

import pytest

from penstock.engine.budget import Budget
from penstock.engine.buffer import Buffer
from penstock.engine.read.lookahead import Lookahead
from penstock.engine.read.openread import resolve_suffix
from penstock.engine.read.reader import read_into, read_many, start_reads
from penstock.engine.waiting import Inbox
from penstock.errors import Cancelled, Changed, Damaged, NotFound, PenstockError, Unusable
from penstock.events import RangeRead, RequestEnded
from penstock.options import ReadOptions
from penstock.testing.servers import reply
from penstock.values import ObjectMeta, Span
from tests.engine.fetch.store import ETAG, SLOW_DOWN, Gate, body_at, first, hearing, ranges, serving, serving_whole

DATA = os.urandom(300_000)


def _asked(server):
    return [(received.method, received.range) for received in server.received]


@pytest.mark.parametrize("size", [1, 2, 4095, 4096, 100_000, 299_999, 300_000, 300_001, 1 << 20])
@pytest.mark.parametrize("etag", ["", "e1"])
def test_the_last_bytes_cost_one_request(size, etag):
    with serving({"key": DATA}) as (server, engine):
        assert read_many(engine, [Span("key", -size, etag=etag)]) == [DATA[-size:]]
        assert _asked(server) == [("GET", (-size, 0))]
        assert server.received[0].headers["range"] == f"bytes=-{size}"
        assert server.received[0].headers.get("if-match", "") == (ETAG if etag else "")


def test_many_ends_are_read_side_by_side_and_beside_other_spans():
    data = {str(number): os.urandom(100 + number) for number in range(50)}
    spans = [Span(key, -10) for key in data] + [Span(key, 0, 10) for key in data] + [Span(key) for key in data]
    wanted = [body[-10:] for body in data.values()] + [body[:10] for body in data.values()] + list(data.values())
    with serving(data) as (server, engine):
        assert read_many(engine, spans) == wanted
        assert len(server.received) == 150


def test_suffix_read_of_empty_object_returns_no_bytes_after_head_request():
    with serving({"key": b""}) as (server, engine):
        assert read_many(engine, [Span("key", -5), Span("key", -5, etag="e1")]) == [b"", b""]
        assert sorted(each.method for each in server.received) == ["GET", "GET", "HEAD", "HEAD"]
        with pytest.raises(Changed):
            read_many(engine, [Span("key", -5, etag="e0")])


def test_suffix_read_succeeds_after_range_error_when_object_has_become_nonempty():
    def fault(received, _answer, send):
        if received.range != (-5, 0):
            return False
        send(reply(416, b"<Error><Code>InvalidRange</Code></Error>"))
        return True

    with serving({"key": DATA}, fault) as (server, engine):
        assert read_many(engine, [Span("key", -5)]) == [DATA[-5:]]
        assert _asked(server) == [("GET", (-5, 0)), ("HEAD", None), ("GET", (299_995, 300_000))]
        assert server.received[-1].headers["if-match"] == ETAG


def test_an_empty_object_that_is_answered_with_200_is_empty_in_one_request():
    def fault(_received, _answer, send):
        send(reply(200, b"", etag=ETAG))
        return True

    with serving({"key": b""}, fault) as (server, engine):
        assert read_many(engine, [Span("key", -5)]) == [b""]
        assert len(server.received) == 1


@pytest.mark.parametrize("size", [5000, 299_999])
def test_a_server_that_ignores_range_is_known_after_the_first_and_its_objects_are_read_whole(size):
    with serving_whole({"key": DATA, "small": DATA[:3000]}) as (_, server, engine):
        assert read_many(engine, [Span("small", -size)]) == [DATA[:3000]], "the whole object is the end"
        assert _asked(server) == [("GET", (-size, 0))]
        assert engine.driver.abilities.ranges is None
        for _ in range(2):
            assert read_many(engine, [Span("key", -size, etag="e1")]) == [DATA[-size:]]
            assert engine.driver.abilities.ranges is False
        assert ranges(server) == [(-size, 0), (-size, 0), (0, 300_000)], "not asked in vain again, and read once"


def test_a_driver_without_such_a_range_looks_first(monkeypatch):
    with serving({"key": DATA, "empty": b"", "short": b"abc"}) as (server, engine):
        monkeypatch.setattr(engine.driver, "suffix", None, raising=False)
        spans = [Span("key", -5), Span("empty", -5), Span("short", -5), Span("key", -5, etag="e1")]
        assert read_many(engine, spans) == [DATA[-5:], b"", b"abc", DATA[-5:]]
        assert sorted(ranges(server), key=str) == [(299_995, 300_000)] * 2 + [None]
        with pytest.raises(Changed):
            read_many(engine, [Span("key", -5, etag="e0")])
        with pytest.raises(NotFound, match="gone"):
            read_many(engine, [Span("gone", -5)])


def test_suffix_above_split_size_is_looked_up_and_read_in_parts():
    read = ReadOptions(split_bytes=100_000)
    with serving({"key": DATA, "short": DATA[:5000], "empty": b""}, read=read) as (server, engine):
        spans = [Span("key", -250_000), Span("short", -250_000), Span("empty", -250_000), Span("key", -1 << 60)]
        assert read_many(engine, spans) == [DATA[-250_000:], DATA[:5000], b"", DATA]
        assert (50_000, 133_333) in ranges(server)
        with pytest.raises(Changed):
            read_many(engine, [Span("key", -250_000, etag="e0")])
        with pytest.raises(NotFound, match="gone"):
            read_many(engine, [Span("short", -5), Span("gone", -250_000)])


def test_a_body_that_breaks_off_is_continued_where_it_ended():
    with serving({"key": DATA}, first(1, lambda answer: answer[: body_at(answer) + 50_000])) as (server, engine):
        assert read_many(engine, [Span("key", -200_000)]) == [DATA[-200_000:]]
        (begun, (start, stop)) = ranges(server)
        assert begun == (-200_000, 0)
        assert (100_000 < start <= 150_000, stop) == (True, 300_000)
        assert server.received[-1].headers["if-match"] == ETAG


def test_without_a_version_a_body_that_breaks_off_is_asked_for_anew():
    fault = first(2, lambda answer: answer[: body_at(answer) + 50_000])
    with serving({"key": DATA}, fault, etags={"key": None}) as (server, engine):
        assert read_many(engine, [Span("key", -200_000)]) == [DATA[-200_000:]]
        assert ranges(server) == [(-200_000, 0)] * 3


def test_an_object_that_changes_before_the_rest_is_read_is_changed_and_never_mixed():
    def fault(received, answer, send):
        if received.range == (-200_000, 0):
            send(answer[: body_at(answer) + 50_000])
        else:
            send(reply(412, b"<Error><Code>PreconditionFailed</Code></Error>"))
        return True

    with serving({"key": DATA}, fault) as (_, engine), pytest.raises(Changed):
        read_many(engine, [Span("key", -200_000)])


@pytest.mark.parametrize("named", ["bytes 0-9/300000", "bytes 299989-299998/300000", "bytes 299990-299999/*", "", "x"])
def test_another_range_than_the_end_is_damaged(named):
    fault = first(99, reply(206, DATA[:10], etag=ETAG, content_range=named))
    with serving({"key": DATA}, fault) as (_, engine), pytest.raises(Damaged, match="the last 10 bytes"):
        read_many(engine, [Span("key", -10)])


def test_errors_are_those_of_any_read():
    with serving({"key": DATA}) as (server, engine):
        for span, kind in ((Span("gone", -5), NotFound), (Span("key", -5, etag="e0"), Changed)):
            with pytest.raises(kind) as caught:
                read_many(engine, [span])
            assert caught.value.url.endswith(span.key)
        assert len(server.received) == 2
        with pytest.raises(Unusable, match="buffer of 5"):
            read_into(engine, Span("key", -5), Buffer.borrow(bytearray(5)))


def test_a_store_that_fails_is_tried_again():
    with serving({"key": DATA}, first(2, SLOW_DOWN)) as (server, engine):
        (read,) = start_reads(engine, [Span("key", -5)], inbox := Inbox())
        inbox.wait(read)
        assert (read.take(), read.attempts, read.retries, read.size_bytes) == (DATA[-5:], 3, 2, 5)
        assert (read.span, read.version) == (Span("key", -5), ETAG.strip('"'))
        assert len(server.received) == 3


def test_cancelled_suffix_read_raises_cancelled():
    gate = Gate()
    with serving({"key": DATA}, gate) as (_, engine):
        (read,) = start_reads(engine, [Span("key", -5)], inbox := Inbox())
        gate.arrived.acquire()
        engine.cancel_reads([read])
        inbox.wait(read)
        with pytest.raises(Cancelled):
            read.take()
        gate.opened.set()


def test_a_lookahead_counts_ends_by_their_size_and_learns_nothing_of_objects_by_them():
    with serving({"key": DATA}) as (_, engine):
        budget = Budget(1000, 64)
        ahead = Lookahead(engine, (Span("key", -100) for _ in range(30)), budget)
        most = 0
        for body in ahead:
            most = max(most, budget.bytes_held)
            assert body == DATA[-100:]
        assert 0 < most <= 1000
        assert (budget.bytes_held, ahead._sizes.bound, ahead.counts.size_bytes) == (0, 0, 3000)


def test_events_name_the_bytes_that_were_read():
    with serving({"key": DATA, "empty": b""}) as (_, engine), hearing(RangeRead, RequestEnded) as heard:
        read_many(engine, [Span("key", -100)])
        read_many(engine, [Span("empty", -100)])
    read, ended = ([each for each in heard if isinstance(each, kind)] for kind in (RangeRead, RequestEnded))
    assert [(each.start, each.size_bytes) for each in read] == [(299_900, 100), (0, 0)]
    assert [each.attempt for each in ended] == [1, 1, 2]


def test_an_end_as_a_span_of_a_version():
    meta = ObjectMeta("key", 10, "e1")
    assert resolve_suffix(Span("key", -3), meta, "") == Span("key", 7, 10, "e1")
    for start in (-10, -99):
        assert resolve_suffix(Span("key", start), meta, "") == Span("key", 0, 10, "e1", whole=True)
    assert resolve_suffix(Span("key", -3, etag="e1"), replace(meta, etag=""), "") == Span("key", 7, 10, "e1")
    with pytest.raises(PenstockError, match="has changed since"):
        resolve_suffix(Span("key", -3, etag="e0"), meta, "u")
