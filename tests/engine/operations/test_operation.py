"""Verbs other than reading end once: with a result, with their error, or called off."""

import threading
from contextlib import contextmanager
from functools import partial

import pytest

from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.read.reader import read_many
from penstock.engine.transport.loop import connect
from penstock.engine.waiting import Inbox
from penstock.errors import Bug, Cancelled, Damaged
from penstock.events import Timings
from penstock.options import ReadOptions
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.children import python
from tests.engine.fetch.store import DATA, QUICK, Gate, fetcher, serving
from tests.servers.hostile import listing


class TestOperations:
    def test_ctrl_c_calls_an_operation_off_lest_it_happen_later(self):
        script = """
            import os, signal, threading
            from penstock.engine.contracts.driver import Attributes, Payload
            from penstock.testing.servers import Scripted, reply
            from tests.engine.fetch.store import fetcher
            from penstock.options import RetryOptions
            def script(received, send):
                send(reply(503))
                if received.number == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                return True
            with Scripted(script) as server:
                engine = fetcher(server.url, RetryOptions(base_s=0.2, patience_s=60, first_contact_s=60))
                try:
                    engine.run(lambda: engine.driver.put("key", Payload(b"late"), Attributes()))
                except KeyboardInterrupt:
                    before = len(server.received)
                    threading.Event().wait(1.5)  # several retries long
                    print("called off", len(server.received) - before)
        """
        ended = python(script)
        assert ended.stdout == "called off 0\n", ended.stderr

    def test_cancelled_operations_end_before_later_operations_run(self):
        gate = Gate(lambda received: received.method == "HEAD")
        with serving({"key": DATA}, gate) as (server, engine):
            held = [engine.operation(lambda: engine.driver.head("key"), Inbox()) for _ in range(3)]
            engine.send(held)
            gate.wait_for(3)
            engine.call_off(held)
            assert engine.run(lambda: engine.driver.get("key", "")) == DATA
            assert all(type(each.error) is Cancelled for each in held)
            gate.opened.set()
            assert len(server.received) == 4

    def test_driver_exception_is_raised_as_bug_with_its_cause(self):
        class Tripping:
            def __getattr__(self, name):
                return getattr(engine.driver, name)

            def get(self, key, etag):
                exchange = engine.driver.get(key, etag)
                exchange.parse = lambda _response: 1 // 0
                return exchange

        with serving({"key": DATA}) as (_, engine):
            tripping = Fetcher(Tripping(), connect(engine._transport.options), QUICK, ReadOptions())
            for work in (
                lambda: read_many(tripping, [Span("key")]),
                lambda: tripping.run(lambda: tripping.driver.get("key", "")),
            ):
                with pytest.raises(Bug) as caught:
                    work()
                assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("work", ["head", "read"])
def test_failure_of_response_counting_raises_bug_instead_of_hanging(monkeypatch, work):
    """What counts responses raised again and again: the caller waited for ever."""

    def broken(_self, _url):
        raise KeyError("no such host")

    with serving({"key": DATA}, lambda _received, _answer, send: send(reply(404)) or True) as (_, engine):
        monkeypatch.setattr(Timings, "turn", broken)
        with pytest.raises(Bug, match="KeyError"):
            engine.run(partial(engine.driver.head, "key")) if work == "head" else read_many(engine, [Span("key", 0, 9)])


class _Listing:
    """A driver whose listings note the thread that parses them, and what they do there."""

    def __init__(self, driver, parsed=None):
        self._driver, self._parsed, self.threads = driver, parsed, []

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def list(self, prefix):
        exchange = self._driver.list(prefix)
        parse = exchange.parse

        def noted(response):
            self.threads.append(threading.current_thread().name)
            return parse(response) if self._parsed is None else self._parsed(response)

        exchange.parse = noted
        return exchange


@contextmanager
def _listed(keys, parsed=None):
    page = listing([(f"key-{number:07}", 1) for number in range(keys)])
    with Scripted(lambda _received, send: send(reply(200, page)) or True) as server:
        engine = fetcher(server.url)
        driver = _Listing(engine.driver, parsed)
        yield driver, Fetcher(driver, connect(engine._transport.options), QUICK, ReadOptions())


@pytest.mark.parametrize(("keys", "here"), [(1000, False), (20_000, True)])
def test_a_large_answer_is_parsed_by_the_thread_that_takes_it(keys, here):
    with _listed(keys) as (driver, engine):
        page = engine.run(partial(driver.list, ""))
        assert len(page.entries) == keys
        assert driver.threads == [threading.current_thread().name if here else "penstock-io"]


def test_the_fault_of_a_large_answer_is_raised_each_time():
    def broken(_response):
        raise Damaged("no listing")

    for parsed, kind in ((broken, Damaged), (lambda _response: 1 // 0, Bug)):
        with _listed(20_000, parsed) as (driver, engine):
            operation = engine.operation(partial(driver.list, ""), Inbox())
            engine.send([operation])
            operation.wait()
            for _ in range(2):
                with pytest.raises(kind) as caught:
                    operation.result()
                assert (caught.value.attempts, operation.error is None) == (1, False)
            assert len(driver.threads) == 1
