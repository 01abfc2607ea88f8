"""Spans land in the memory that was named for them, in order, a window at a time, and nowhere else afterwards."""

import gc
import os
import threading

import pytest

from penstock.engine.budget import Budget
from penstock.engine.buffer import Buffer
from penstock.engine.contracts.exchange import Request
from penstock.engine.read.reader import scatter
from penstock.errors import Forbidden, Unusable
from penstock.testing.servers import reply
from penstock.values import Span
from tests.children import in_child
from tests.engine.fetch.store import Gate, ranges, serving
from tests.engine.transport.calls import Once

SIZE = 5_000
DATA = {f"k{number}": os.urandom(SIZE) for number in range(20)}


def _places(buffers, drawn=None):
    for key, buffer in buffers.items():
        if drawn is not None:
            drawn.append(key)
        yield Span(key, 0, len(buffer), "e1"), Buffer.borrow(buffer)


def _buffers(count=None):
    return {key: bytearray(SIZE) for key in [*DATA][:count]}


def test_scatter_yields_filled_spans_in_order_despite_delayed_responses():
    second = threading.Event()

    def fault(received, _answer, _send):
        if received.path.endswith("k1"):
            second.set()
        elif received.path.endswith("k0"):
            assert second.wait(60)
        return False

    buffers = _buffers()
    with serving(DATA, fault) as (_, engine):
        told = []
        for span in scatter(engine, _places(buffers), Budget(SIZE * 4, 99)):
            assert buffers[span.key] == DATA[span.key], "a span is full when it is told"
            told.append(span.key)
    assert told == [*DATA]


@pytest.mark.parametrize("window", [1, SIZE, SIZE * 3])
def test_no_more_is_drawn_than_the_window_and_one_place_more(window):
    drawn, told = [], 0
    with serving(DATA) as (_, engine):
        for _ in scatter(engine, _places(_buffers(), drawn), Budget(window, 99)):
            told += 1
            assert (len(drawn) - told) * SIZE < window + SIZE
    assert len(drawn) == told == len(DATA)


def test_a_window_that_is_changed_meanwhile_counts_at_once():
    drawn, told, window = [], 0, Budget(SIZE * 8, 99)
    with serving(DATA) as (_, engine):
        for _ in scatter(engine, _places(_buffers(), drawn), window):
            told += 1
            assert len(drawn) - told < (8 if told <= 8 else 2)
            window.bytes_limit = SIZE if told < 15 else SIZE * 2
    assert len(drawn) == told == len(DATA)


def test_empty_span_is_yielded_in_order_without_a_request():
    buffers = {"k0": bytearray(), "k1": bytearray(SIZE), "k2": bytearray()}
    with serving(DATA) as (server, engine):
        assert [span.key for span in scatter(engine, _places(buffers), Budget(SIZE, 99))] == ["k0", "k1", "k2"]
        assert ranges(server) == [(0, SIZE)]
        assert [*scatter(engine, iter(()), Budget(SIZE, 99))] == []


def test_the_first_error_in_order_ends_it_and_no_read_writes_afterwards():
    gate = Gate(lambda received: received.path.endswith("k2"))

    def fault(received, answer, send):
        if received.path.endswith("k1"):
            send(reply(403))
            return True
        return gate(received, answer, send)

    buffers, told = _buffers(4), []
    with serving(DATA, fault) as (_, engine):
        reads = scatter(engine, _places(buffers), Budget(SIZE * 4, 99))
        with pytest.raises(Forbidden):
            told.extend(span.key for span in reads)
        assert told == ["k0"]
        for buffer in buffers.values():
            buffer[:] = bytes(SIZE)
        gate.opened.set()
        assert engine.run(lambda: engine.driver.get("k3", "")) == DATA["k3"]
    assert not any(any(buffer) for buffer in buffers.values())


def test_closing_scatter_early_cancels_reads_in_flight():
    gate = Gate(lambda received: not received.path.endswith("k0"))
    buffers = _buffers(4)
    with serving(DATA, gate) as (_, engine):
        reads = scatter(engine, _places(buffers), Budget(SIZE * 4, 99))
        assert next(reads).key == "k0"
        gate.wait_for(1)
        reads.close()
        gate.opened.set()
        assert engine.run(lambda: engine.driver.get("k0", "")) == DATA["k0"]
    assert [key for key, buffer in buffers.items() if any(buffer)] == ["k0"]


def test_garbage_may_be_collected_on_the_thread_that_reads():
    gate = Gate(lambda received: received.path.endswith(("k1", "k2", "k3")))
    with serving(DATA, gate) as (server, engine):
        places = _places(_buffers(4))
        reads = scatter(engine, places, Budget(SIZE * 4, 99))
        assert next(reads).key == "k0"
        gate.wait_for(1)
        circle = [reads]
        circle.append(circle)  # only the collector finds it, on whatever thread that runs
        call = Once(lambda: gc.collect() and Request("GET", f"{server.url}/bucket/k4"))
        gc.disable()
        try:
            del reads, circle
            engine._transport.submit([call])
            assert call.wait().status, "waiting there would hold up every transfer of the process for ever"
        finally:
            gc.enable()
            gate.opened.set()


def test_trap_01_reads_that_were_begun_before_a_fork_are_refused_after_it():
    with serving(DATA) as (_, engine):
        reads = scatter(engine, _places(_buffers(3)), Budget(SIZE * 3, 99))
        next(reads)

        def child():
            with pytest.raises(Unusable, match="after a fork"):
                next(reads)

        in_child(child)
        assert [span.key for span in reads] == ["k1", "k2"], "the parent reads on"
