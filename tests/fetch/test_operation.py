"""Verbs other than reading end once: with a result, with their error, or called off."""

from functools import partial

import numpy as np
import pytest

from penstock.errors import Bug, Cancelled
from penstock.events import Timings
from penstock.fetch.fetcher import Fetcher
from penstock.fetch.reading.batch import read_many
from penstock.options import ReadOptions
from penstock.testing.servers import reply
from penstock.transport.loop import connect
from penstock.values import Span
from penstock.waiting import Inbox
from tests.children import python
from tests.fetch.store import QUICK, Gate, serving

SIZE = 50_000


DATA = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8).tobytes()


def _error(work):
    try:
        work()
    except Exception as error:  # noqa: BLE001  handed to the thread that asked
        return error


class TestOperations:
    def test_ctrl_c_calls_an_operation_off_lest_it_happen_later(self):
        script = """
            import os, signal, threading
            from penstock.protocols.driver import Attributes, Payload
            from penstock.testing.servers import Scripted, reply
            from tests.fetch.store import fetcher
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

    def test_called_off_operations_end_before_what_comes_after(self):
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

    def test_a_driver_that_trips_is_a_bug_that_is_told(self):
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
                error = _error(work)
                assert type(error).__name__ == "Bug"
                assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("work", ["head", "read"])
def test_what_cannot_be_counted_ends_all_the_same(monkeypatch, work):
    """What counts responses raised again and again: the caller waited for ever."""

    def broken(_self, _url):
        raise KeyError("no such host")

    with serving({"key": DATA}, lambda _received, _answer, send: send(reply(404)) or True) as (_, engine):
        monkeypatch.setattr(Timings, "turn", broken)
        with pytest.raises(Bug, match="KeyError"):
            engine.run(partial(engine.driver.head, "key")) if work == "head" else read_many(engine, [Span("key", 0, 9)])
