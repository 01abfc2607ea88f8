"""The queue between events and a sink: bounded, in order, and never waited for by what is recorded."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.events import Listed
from penstock.observe import subscription as room
from penstock.observe.subscription import Pump
from tests.observe.reads import Collected

WAIT_S = 60


class Stuck(Collected):
    """Writes only once it is let go."""

    def __init__(self):
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def write(self, records):
        self.begun.set()
        assert self.go.wait(WAIT_S)
        super().write(records)


def event(number=0):
    return Listed("s3://b/", number)


def test_records_come_in_order_with_their_time_and_the_writer_is_closed_once():
    writer = Collected()
    pump = Pump(writer, "a sink")
    for number in range(10_000):
        pump.hear(event(number))
    assert pump.flush(WAIT_S)
    assert writer.closed == 0
    assert pump.close(WAIT_S)
    assert [record.event.count for record in writer.records] == [*range(10_000)]
    times = [record.at_ns for record in writer.records]
    assert times == sorted(times)
    assert (pump.written, pump.dropped, pump.lost, writer.closed) == (10_000, 0, 0, 1)


def test_failed_capture_is_logged_and_records_are_still_written(caplog):
    class Odd(Collected):
        def capture(self, event):
            if event.count == 1:
                raise ValueError("odd")
            return event.count

    writer = Odd()
    pump = Pump(writer, "the sink")
    with caplog.at_level(logging.WARNING, "penstock"):
        for number in range(3):
            pump.hear(event(number))
        assert pump.close(WAIT_S)
    assert [record.context for record in writer.records] == [0, None, 2]
    assert "the sink: its capture failed with ValueError" in caplog.text


def test_pump_without_records_starts_no_thread():
    before, writer = threading.active_count(), Collected()
    pump = Pump(writer, "a sink")
    assert threading.active_count() == before
    assert pump.flush(0)
    assert threading.active_count() == before
    assert pump.close(WAIT_S)
    assert writer.closed == 1


def test_stuck_sink_drops_records_beyond_its_queue_without_blocking(monkeypatch, caplog):
    monkeypatch.setattr(room, "_QUEUED", 100)
    writer = Stuck()
    pump = Pump(writer, "the sink")
    pump.hear(event())
    assert writer.begun.wait(WAIT_S)
    for number in range(1000):
        pump.hear(event(number))
    assert pump.dropped == 900
    assert not pump.flush(0.01)
    writer.go.set()
    with caplog.at_level(logging.WARNING, "penstock"):
        assert pump.close(WAIT_S)
    assert len(writer.records) == 101
    assert "the sink: it is slower than what it" in caplog.text
    assert "900 records were dropped and 0 lost" in caplog.text


def test_a_writer_that_fails_loses_its_records_is_logged_once_and_is_asked_again(caplog):
    writer = Collected()
    fails = [OSError(28, "No space left on device"), AttributeError("secret")]

    def write(records):
        if fails:
            raise fails.pop(0)
        writer.records.extend(records)

    writer.write = write
    pump = Pump(writer, "the sink")
    with caplog.at_level(logging.WARNING, "penstock"):
        for number in range(3):
            pump.hear(event(number))
            assert pump.flush(WAIT_S)
        assert pump.close(WAIT_S)
    assert (pump.lost, pump.written) == (2, 1)
    assert [record.event.count for record in writer.records] == [2]
    (warning,) = caplog.messages
    assert "No space left on device" in warning
    assert "reads go on" in warning


def test_a_writer_that_fails_to_close_is_logged(caplog):
    writer = Collected()
    writer.close = lambda: 1 / 0
    with caplog.at_level(logging.WARNING, "penstock"):
        assert Pump(writer, "the sink").close(WAIT_S)
    assert "closing it failed with ZeroDivisionError" in caplog.text


def test_many_threads_at_once_lose_nothing():
    writer = Collected()
    pump = Pump(writer, "a sink")
    threads = [threading.Thread(target=lambda: [pump.hear(event(n)) for n in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pump.close(WAIT_S)
    assert sorted(record.event.count for record in writer.records) == sorted([*range(1000)] * 8)
    assert [thread.name for thread in threading.enumerate()].count("penstock-observe") <= 1


def test_a_writer_may_capture_something_on_the_thread_of_the_event():
    writer = Collected()
    writer.capture = lambda event: (threading.get_ident(), event.count)
    pump = Pump(writer, "a sink")
    pump.hear(event(7))
    assert pump.close(WAIT_S)
    assert writer.records[0].context == (threading.get_ident(), 7)


@pytest.mark.parametrize("queued", [False, True])
def test_a_copy_that_is_left_writes_nothing(queued):
    writer = Collected()
    pump = Pump(writer, "a sink")
    pump._tokens.pop()  # no thread: as in a forked child
    if queued:
        pump.hear(event())
    pump.leave()
    assert (writer.records, writer.closed, writer.left) == ([], 0, 1)
    assert not pump._queue
