"""Reading ahead keeps the order and the budget, tells errors in their place, and leaves nothing running."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.budget import Budget
from penstock.engine.cache.layer import CachedRead
from penstock.engine.read import lookahead as room
from penstock.engine.read.lookahead import Lookahead
from penstock.errors import NotFound, Unusable
from penstock.options import ReadOptions
from penstock.values import PAUSE, Span
from tests.amounts import examples
from tests.children import in_child
from tests.engine.fetch.store import Gate, serving
from tests.threads import until

SIZE = 1_000
DATA = {f"k{number:03}": bytes([number % 251]) * SIZE for number in range(100)}


def _spans(names=DATA, size=SIZE):
    return iter([Span(name, 0, size, "e1", whole=True) for name in names])


def test_lookahead_yields_bytes_in_order_despite_delayed_responses():
    def fault(received, _answer, _send):
        if received.number % 3 == 0:
            threading.Event().wait(0.01)
        return False

    with serving(DATA, fault) as (_, engine):
        assert list(Lookahead(engine, _spans(), Budget(1 << 20, 16))) == list(DATA.values())


@settings(max_examples=examples(10))
@given(st.integers(1, 12), st.integers(1, 12 * SIZE))
def test_the_budget_is_never_exceeded(items, limit_bytes):
    lock, flying, most = threading.Lock(), [0], [0]

    def fault(_received, _answer, _send):
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        threading.Event().wait(0.001)
        with lock:
            flying[0] -= 1
        return False

    with serving(DATA, fault) as (_, engine):
        ahead = Lookahead(engine, _spans(list(DATA)[:40]), Budget(limit_bytes, items))
        assert len(list(ahead)) == 40
        assert (ahead._budget.items_held, ahead._budget.bytes_held) == (0, 0)
    allowed = max(1, min(items, limit_bytes // SIZE))
    assert most[0] <= allowed, f"{most[0]} in flight at once, {allowed} allowed"


def test_time_of_cache_reads_in_lookahead_counts_as_waiting(monkeypatch):
    now = [0.0]

    class Cache:
        def prepare_reads(self, wanted, _owner):
            now[0] += 1.0
            return [CachedRead(span, DATA[span.key], None) for span, _ in wanted]

        def send_reads(self, reads):
            assert reads

        def concurrency(self):
            return 8

    monkeypatch.setattr(room, "monotonic", lambda: now[0])
    ahead = Lookahead(Cache(), _spans(), Budget(1 << 20, 16))
    assert list(ahead) == list(DATA.values())
    assert (ahead.counts.waiting_s, ahead.counts.opening_s, ahead.counts.cached) == (now[0], 0.0, 100)


def test_nothing_is_sent_before_it_is_asked_for_nor_beyond_the_window():
    with serving(DATA) as (server, engine):
        drawn = []
        ahead = Lookahead(engine, (drawn.append(span.key) or span for span in _spans()), Budget(1 << 20, 8))
        assert (drawn, server.received) == ([], [])
        next(ahead)
        assert len(drawn) <= 9, "the window, and the one that did not fit"
        ahead.close()


def test_a_pause_ends_nothing_and_the_spans_are_asked_again_once_reads_were_taken():
    with serving(DATA) as (server, engine):
        known = []

        def spans():
            for span in _spans():
                while span.key not in known:
                    yield PAUSE
                yield span

        ahead = Lookahead(engine, spans(), Budget(1 << 20, 8))
        for name, data in list(DATA.items())[:20]:
            known.append(name)
            assert next(ahead) == data
        assert len(server.received) == 20
        known += DATA
        assert list(ahead) == list(DATA.values())[20:]


def test_the_window_is_filled_at_once():
    gate = Gate()
    with serving(DATA, gate) as (_, engine):
        ahead = Lookahead(engine, _spans(), Budget(1 << 20, 16))
        with ThreadPoolExecutor(1) as consumer:
            consumer.submit(next, ahead)
            gate.wait_for(16)
            gate.opened.set()
        ahead.close()


def test_a_consumer_that_keeps_up_has_a_short_queue_and_one_that_pauses_a_long_one():
    spans = (span for _ in range(30) for span in _spans())
    with serving(DATA, connections=4) as (_, engine), Lookahead(engine, spans, Budget(1 << 30, 512)) as ahead:

        def ahead_after(count):
            for _ in range(count):
                next(ahead)
            return ahead._budget.items_held

        assert ahead_after(1) == 511
        assert ahead_after(1_500) <= 128, "four are in flight: more than the least window would only queue"
        for read in ahead._reads:  # a pause in which all of them come, and the transport has nothing left to do
            ahead._inbox.wait(read)
        assert ahead_after(130) > 128


def test_an_error_comes_in_its_place_and_ends_it():
    names = list(DATA)[:10]
    names[5] = "gone"
    with serving(DATA) as (_, engine):
        ahead = Lookahead(engine, _spans(names), Budget(1 << 20, 16))
        assert [next(ahead) for _ in range(5)] == [DATA[name] for name in names[:5]]
        with pytest.raises(NotFound, match="gone"):
            next(ahead)
        assert list(ahead) == []


def test_a_long_object_without_a_version_fails_in_its_place_too():
    with serving(DATA, read=ReadOptions(split_bytes=100)) as (_, engine):
        spans = iter([Span("k000", 0, SIZE), Span("gone", 0, SIZE), Span("k001", 0, SIZE)])
        ahead = Lookahead(engine, spans, Budget(1 << 20, 16))
        assert next(ahead) == DATA["k000"]
        with pytest.raises(NotFound, match="gone"):
            next(ahead)


def test_spans_that_cannot_be_drawn_lose_no_object_in_silence():
    def drawing():
        yield from _spans(list(DATA)[:3])
        raise ZeroDivisionError

    with serving(DATA) as (_, engine):
        ahead = Lookahead(engine, drawing(), Budget(1 << 20, 16))
        with pytest.raises(ZeroDivisionError):
            next(ahead)
        assert list(ahead) == [], "it has ended: going on would skip what was drawn"


@pytest.mark.parametrize("leave", ["close", "with", "drop"])
def test_leaving_a_lookahead_cancels_reads_in_flight(leave):
    gate = Gate(lambda received: not received.path.endswith("k000"))
    with serving(DATA, gate, connections=4) as (server, engine):
        ahead = Lookahead(engine, _spans(), Budget(1 << 20, 50))
        assert next(ahead) == DATA["k000"]
        gate.wait_for(4)
        if leave == "close":
            ahead.close()
        elif leave == "with":
            with ahead:
                pass
        else:
            del ahead
        engine.run(lambda: engine.driver.get("k000", ""))  # gets a place at once, for the others are gone
        assert len(server.received) == 1 + 4 + 1
        gate.opened.set()


def test_objects_of_unknown_size():
    with serving(DATA) as (_, engine):
        assert list(Lookahead(engine, (Span(name) for name in DATA), Budget(5 << 20, 16))) == list(DATA.values())


def test_an_empty_iterator_is_at_its_end():
    with serving({}) as (_, engine):
        assert list(Lookahead(engine, iter([]), Budget(1, 1))) == []


def test_trap_01_one_that_was_begun_before_a_fork_refuses_after_it():
    with serving(DATA) as (_, engine):
        ahead = Lookahead(engine, _spans(), Budget(1 << 20, 16))
        next(ahead)

        def child():
            assert os.getpid()
            with pytest.raises(Unusable, match="fork"):
                next(ahead)

        in_child(child)
        assert list(ahead) == list(DATA.values())[1:]


def test_has_ready_counts_the_next_reads_that_are_complete():
    held = threading.Event()

    def fault(received, _answer, _send):
        if received.path.endswith("k002"):
            held.wait(10)
        return False

    with serving(DATA, fault) as (_, engine):
        ahead = Lookahead(engine, _spans(list(DATA)[:4]), Budget(1 << 20, 4))
        assert not ahead.has_ready(1), "nothing was sent"
        ahead.begin()
        ahead.advance()
        until(lambda: ahead.has_ready(1))
        assert not ahead.has_ready(2)
        held.set()
        ahead.advance()
        until(lambda: ahead.has_ready(2))
        assert not ahead.has_ready(3), "only two are left"
        ahead.close()
        assert not ahead.has_ready(1)
