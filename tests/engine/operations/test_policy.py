"""Failures that may pass are tried again within bounds, and told to whoever waits; others are raised at once."""

import logging
import re
import threading
from dataclasses import replace
from time import monotonic

import pytest

from penstock.engine import waiting
from penstock.engine.contracts.driver import MOVED
from penstock.engine.operations import policy
from penstock.engine.read.reader import read_many
from penstock.errors import ChecksumMismatch, Forbidden, Throttled, Unreachable
from penstock.events import RangeRead, Retried
from penstock.options import RetryOptions
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.testing.servers import reply
from penstock.values import Span
from tests.engine.fetch.store import DATA, QUICK, SIZE, SLOW_DOWN, fetcher, first, hearing, serving


class TestRetries:
    def test_transient_failures_are_retried_and_emit_retried_events(self):
        # A name of its own: an engine that another test left behind may still tell of its retries.
        url = "s3://bucket/throttled"
        serve = serving({"throttled": DATA}, first(3, SLOW_DOWN))
        with hearing(Retried, RangeRead) as heard, serve as (server, engine):
            assert read_many(engine, [Span("throttled", 0, SIZE, whole=True)]) == [DATA]
            assert len(server.received) == 4
            seen = [each for each in heard if each.url == url]
        assert [type(each).__name__ for each in seen] == ["Retried"] * 3 + ["RangeRead"]
        assert (seen[-1].attempts, seen[-1].size_bytes, seen[-1].url) == (4, SIZE, url)
        assert all(isinstance(each.error, Throttled) for each in seen[:3])

    def test_permanent_failure_is_raised_without_a_retry(self):
        with serving({}, lambda _received, _answer, send: send(reply(403)) or True) as (server, engine):
            with pytest.raises(Forbidden):
                engine.run(lambda: engine.driver.head("key"))
            assert len(server.received) == 1

    def test_unreachable_store_raises_within_seconds_after_retries(self):
        engine = fetcher("http://127.0.0.1:1", RetryOptions(first_contact_s=0.3))
        for work in (
            lambda: engine.run(lambda: engine.driver.head("key")),
            lambda: read_many(engine, [Span("key", 0, 9)]),
        ):
            with pytest.raises(Unreachable) as caught:
                work()
            assert caught.value.attempts > 1
            assert caught.value.elapsed_s < 5
            assert caught.value.url == "s3://bucket/key"

    def test_many_that_fail_together_are_patient_together(self, monkeypatch):
        """Once the purse they share is empty, they are tried again less often, and none of them gives up."""
        monkeypatch.setattr(policy, "_TOKENS", 7)
        retry = RetryOptions(base_s=1e-6, cap_s=0.1)
        with serving({"key": DATA}, first(60, reply(503)), retry=retry) as (server, engine):
            assert read_many(engine, [Span("key", 0, 10)] * 20) == [DATA[:10]] * 20
            assert len(server.received) == 60 + 20


class TestWarnings:
    """A store that stalls, throttles or refuses is told, while there is patience left, by the thread that waits."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr(policy, "_FIRST_S", 0.1)
        monkeypatch.setattr(waiting, "LOOK_S", 0.02)

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (lambda send: send(SLOW_DOWN), "Throttled: .*SlowDown"),
            (lambda send: send(b"HTTP/1.1 200 ."), "Unreachable: "),
            (lambda _send: threading.Event().wait(3), "TimedOut: "),
        ],
        ids=["throttles", "hangs up", "stalls"],
    )
    def test_persistent_failure_is_logged_once_with_the_remaining_patience(self, caplog, answer, said):
        def fault(received, _answer, send):
            if received.number <= 2 or monotonic() < until:
                answer(send)
                return True
            return False

        until, retry = monotonic() + 0.6, replace(QUICK, cap_s=0.1, patience_s=99)
        with serving({"key": DATA}, fault, stall_timeout_s=1, retry=retry) as (_, engine):
            engine._policy.succeeded()
            with caplog.at_level("WARNING", "penstock"):
                assert engine.run(lambda: engine.driver.get("key", "")) == DATA
                assert read_many(engine, [Span("key", 0, 10)]) == [DATA[:10]]
        assert len(caplog.records) == 1
        assert re.search(rf"failing for \d s \(\d+ attempts\); last error: {said}", caplog.messages[0])
        assert "s3://bucket/key" in caplog.messages[0]
        assert re.search(r"retrying for up to 9\d s more", caplog.messages[0])
        assert caplog.records[0].threadName == threading.current_thread().name

    def test_many_throttled_responses_are_logged_although_each_request_succeeds(self, caplog, monkeypatch):
        monkeypatch.setattr(policy, "_FIRST_S", 99)
        monkeypatch.setattr(policy, "_MANY", 3)

        retry = replace(QUICK, base_s=0.2, cap_s=0.2)
        with serving({"key": DATA}, first(4, SLOW_DOWN), retry=retry) as (_, engine):
            with caplog.at_level("WARNING", "penstock"):
                for _ in range(2):
                    assert engine.run(lambda: engine.driver.get("key", "")) == DATA
                engine._policy.warn(Throttled("again"), "key", 1, monotonic())
            where = engine._policy.timings.where
        assert re.fullmatch(r"127\.0\.0\.1:\d+", where)
        (told,) = caplog.messages
        assert re.match(rf"{re.escape(where)} rate-limited [34] requests \(0 before that\)", told)

    def test_refused_connection_is_logged_and_broken_log_handler_stops_no_retry(self, monkeypatch):
        told = []
        patient = RetryOptions(first_contact_s=60, cap_s=0.1)
        engine = fetcher("http://127.0.0.1:1", patient)

        class Broken(logging.Handler):
            def emit(self, record):
                told.append(record.getMessage())
                if len(told) == 2:  # it was told again after the handler had broken: patience may end
                    engine._policy._retry = replace(patient, first_contact_s=0.01)
                raise OSError("the disk that logs go to is full")

        monkeypatch.setattr(policy, "_EVERY_S", 0.2)
        logger, handler = logging.getLogger("penstock"), Broken()
        logger.addHandler(handler)
        try:
            with pytest.raises(Unreachable):
                read_many(engine, [Span("key", 0, 9)])
        finally:
            logger.removeHandler(handler)
        assert 2 <= len(told) <= 6
        assert all("Unreachable: " in each for each in told)


def test_moved_error_is_retried_at_once_without_spending_a_retry_token(monkeypatch):
    monkeypatch.setattr(policy, "_TOKENS", 1)
    error = Forbidden("elsewhere")
    error.code, error.retries = MOVED, 1
    asked = policy.RetryPolicy(fetcher("http://127.0.0.1:9").driver, RetryOptions(attempts=1))
    assert [asked.decide(error, attempt, monotonic() - 1000.0) for attempt in (1, 2, 10)] == [0.0, 0.0, 0.0]
    assert asked.tokens.left == 1
    assert asked.decide(error, 1000, monotonic()) is None


def test_credentials_that_expire_in_an_outage_are_renewed():
    with FaultServer.start() as server:
        server.put("bucket", "key", b"data")
        server.fail(*[FAULTS["503"]] * 6, FAULTS["expired"], when=Match(verb="get"))
        with open_source("s3://bucket/", replace(server.store, retry=RetryOptions(base_s=0.01)))[0] as source:
            assert source.read(Span("key", 0, 4)) == b"data"


def test_damage_after_other_failures_is_retried_as_often_as_at_first():
    options, tokens = RetryOptions(), policy.Tokens(9, 9)
    waits = [
        policy.delay(
            policy.Failure(attempt, 1.0, answered=True, retries=ChecksumMismatch.retries, row=row), options, tokens, 0.5
        )
        for attempt, row in ((7, 1), (8, 2), (9, 3))
    ]
    assert [each is not None for each in waits] == [True, True, False]
    # The first of them comes soon, although the attempts before took ever longer.
    assert waits[0] == options.base_s / 2
