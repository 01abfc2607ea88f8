"""Objects of unknown size: one request each, whole and of one version, however large the buffer was thought to be."""

import os
from contextlib import contextmanager

import pytest

from penstock.engine.budget import Budget
from penstock.engine.read.lookahead import Lookahead
from penstock.engine.read.reader import read_many
from penstock.errors import Changed, ChecksumMismatch, Damaged, NotFound, PenstockError, Transient, Unusable
from penstock.testing.servers import reply
from penstock.values import Span
from tests.engine.fetch.store import ETAG, ONCE, SLOW_DOWN, first, ranges, serving, serving_whole

SMALL, LARGE = os.urandom(9000), os.urandom(300_000)


def _learn(engine):
    for _ in range(8):
        engine._policy.scratch.sizes.add(9000)


@contextmanager
def _learned(data, fault=None, learn=_learn, **options):
    """Serve objects to an engine that has learned how large the small ones are; it has its buffers back in the end."""
    with serving(data, fault, **options) as (server, engine):
        learn(engine)
        yield server, engine
        assert engine._policy.scratch._held_bytes == 0, "every buffer was given back"


def test_objects_that_fit_cost_one_request_each():
    data = {str(number): os.urandom(number * 997 % 9000) for number in range(40)}
    data |= {"empty": b"", "full": LARGE[:16384]}
    with _learned(data) as (server, engine):
        for _ in range(2):
            assert read_many(engine, [Span(key) for key in data]) == list(data.values())
        assert ranges(server) == [None] * 2 * len(data)


def test_a_bound_of_the_callers_is_the_size_of_the_buffer():
    with _learned({"key": LARGE, "small": SMALL}, learn=id) as (server, engine):
        assert read_many(engine, [Span("key", most=300_000), Span("small", most=1)]) == [LARGE, SMALL]
        assert sorted(ranges(server), key=str) == [(4096, 9000), None, None]
        assert read_many(engine, [Span("key", most=1 << 40)]) == [LARGE], "no such buffer is made"


def test_an_object_larger_than_many_of_the_same_bound_is_continued():
    with _learned({"key": LARGE, "small": SMALL}, learn=id) as (server, engine):
        for _ in range(70):
            assert read_many(engine, [Span("small", most=300_000)]) == [SMALL]
        assert read_many(engine, [Span("key", most=300_000)]) == [LARGE]
        assert ranges(server)[70:] == [None, (16384, len(LARGE))]
        assert read_many(engine, [Span("key", most=300_000)]) == [LARGE]
        assert ranges(server)[72:] == [None], "there is room for another one"


def test_a_span_without_an_end_that_does_not_begin_at_the_start_is_refused():
    with serving({"key": LARGE}) as (_, engine), pytest.raises(Unusable, match="needs a stop"):
        read_many(engine, [Span("key", 5)])


def test_an_object_that_does_not_fit_is_continued_where_the_buffer_ended():
    with _learned({"key": LARGE, "small": SMALL}) as (server, engine):
        assert read_many(engine, [Span("key")]) == [LARGE]
        assert ranges(server) == [None, (16384, len(LARGE))]
        assert server.received[-1].headers["if-match"] == ETAG
        assert read_many(engine, [Span("key", etag="e1"), Span("small")]) == [LARGE, SMALL]


def test_an_object_that_changes_between_the_two_requests_is_changed_and_never_mixed():
    def fault(received, _answer, send):
        if received.range is None:
            return False
        send(reply(412, b"<Error><Code>PreconditionFailed</Code></Error>"))
        return True

    with _learned({"key": LARGE}, fault) as (_, engine), pytest.raises(Changed):
        read_many(engine, [Span("key")])


def test_without_a_version_to_name_the_object_is_read_anew_and_without_a_buffer():
    for etag in (None, 'W/"weak"'):
        with _learned({"key": LARGE}, etags={"key": etag}) as (server, engine):
            assert read_many(engine, [Span("key")]) == [LARGE]
            assert ranges(server) == [None, None]


def test_a_server_that_ignores_range_is_asked_for_the_whole_once_more():
    with serving_whole({"key": LARGE, "small": SMALL}) as (_, server, engine):
        _learn(engine)
        assert read_many(engine, [Span("key"), Span("small")]) == [LARGE, SMALL]
        assert read_many(engine, [Span("key"), Span("small")]) == [LARGE, SMALL]
        assert {each.method for each in server.received} == {"GET"}


@pytest.mark.parametrize("size", [0, 9000, 300_000])
def test_chunked_answers_have_no_length_and_are_whole_all_the_same(size):
    data = LARGE[:size]
    pieces = [data[at : at + 5000] for at in range(0, size, 5000)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    chunked = b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\netag: "e1"\r\n\r\n' + body
    with _learned({"key": b""}, first(9, chunked)) as (_, engine):
        assert read_many(engine, [Span("key")]) == [data]


def test_a_body_of_no_stated_length_is_refused():
    endless = first(99, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + SMALL)
    with (
        _learned({"key": b""}, endless) as (_, engine),
        pytest.raises(Damaged, match="does not report the object's size"),
    ):
        read_many(engine, [Span("key")])


def test_a_body_that_breaks_off_is_read_again_and_a_store_that_fails_is_tried_again():
    for broken in (lambda answer: answer[:5000], SLOW_DOWN):
        with _learned({"key": SMALL}, first(2, broken)) as (_, engine):
            assert read_many(engine, [Span("key")]) == [SMALL]


def test_errors_are_those_of_a_read_of_known_size():
    with _learned({"key": SMALL}) as (_, engine):
        with pytest.raises(NotFound, match="gone"):
            read_many(engine, [Span("gone")])
        with pytest.raises(Changed):
            read_many(engine, [Span("key", etag="e0")])
        assert issubclass(Transient, PenstockError)


def test_the_stores_digest_is_compared():
    fault = first(1, reply(200, SMALL, etag=ETAG, x_amz_checksum_crc32="AAAAAA=="))
    with _learned({"key": SMALL}, fault, retry=ONCE) as (_, engine), pytest.raises(ChecksumMismatch):
        read_many(engine, [Span("key")])


def test_lookahead_budgets_unknown_sizes_by_sizes_of_earlier_objects():
    data = {str(number): SMALL for number in range(300)}
    with serving(data) as (_, engine):
        budget, most = Budget(4 << 20, 256), 0
        for body in Lookahead(engine, (Span(key) for key in data), budget):
            assert body == SMALL
            most = max(most, budget.items_held)
        assert most > 100, "each counts for 16 KiB soon, and no more for a MiB"
        assert (budget.items_held, budget.bytes_held) == (0, 0)


def test_object_above_bound_for_unknown_size_reads_is_refused(monkeypatch):
    with _learned({"key": LARGE}) as (_, engine):
        get = engine.driver.get
        monkeypatch.setattr(engine.driver, "get", lambda *of, **more: get(*of, **{"most_bytes": 200_000} | more))
        with pytest.raises(Unusable, match="more than 200000 bytes"):
            read_many(engine, [Span("key")])
