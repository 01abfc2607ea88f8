"""Sinks are open in the process that asks, in those it forks and spawns, and gone when they are closed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from penstock.errors import Unusable
from penstock.events import Listed, listening
from penstock.observe import JsonLines, subscription, to
from penstock.observe import subscription as room
from penstock.observe.subscription import Pump
from tests.children import forked, python
from tests.observe.reads import Collected, keys_of, lines_of, read_all, read_one, source_of


@pytest.fixture(autouse=True)
def _no_sink_is_left():
    assert not listening()
    yield
    assert not listening()
    assert not subscription._open


def test_a_sink_hears_until_it_is_closed(tmp_path):
    source, keys, sink = source_of(tmp_path), keys_of(tmp_path), Collected()
    with to(sink) as observed:
        read_all(source, keys)
        assert observed.flush()
        assert observed.written == len(sink.records) == 20
    assert observed.close()
    assert observed.flush(limit_s=1e9)
    read_all(source, keys)
    assert (len(sink.records), observed.dropped, sink.closed, sink.first) == (20, 0, 1, True)
    assert {type(record.event).__name__ for record in sink.records} == {"RequestStarted", "RequestEnded"}


def test_several_sinks_hear_the_same(tmp_path):
    source, keys, one, other = source_of(tmp_path), keys_of(tmp_path), Collected(), Collected()
    with to(one, other):
        read_all(source, keys)
    assert [record.event for record in one.records] == [record.event for record in other.records] != []


def test_a_sink_without_events_makes_no_record():
    sink = Collected()
    sink.events = False
    with to(sink):
        assert not listening()
    assert (sink.opened, sink.closed) == (1, 1)


@pytest.mark.parametrize("sinks", [(), (JsonLines,), ("events.jsonl",), (None,)])
def test_invalid_sink_argument_is_refused(sinks):
    with pytest.raises(Unusable, match="sink"):
        to(*sinks)


def test_a_sink_that_cannot_be_opened_is_the_callers_to_know_and_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        to(Collected(), JsonLines(tmp_path / "no" / "folder"))


@pytest.mark.parametrize(("method", "count"), [("fork", 3), ("forkserver", 1), ("spawn", 1)])
def test_processes_that_are_started_write_too_and_to_the_last_record(tmp_path, caplog, method, count):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "events.jsonl"
    context = multiprocessing.get_context(method)

    class Here(Collected):
        """A sink that cannot be pickled, which keeps no process from being spawned."""

    with to(JsonLines(path), Here()), caplog.at_level(logging.WARNING, "penstock"):
        read_all(source, keys[:1])
        children = [context.Process(target=read_all, args=(source, keys)) for _ in range(count)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    assert caplog.text.count("Here records nothing in processes that are spawned") == (method != "fork")
    records = lines_of(path)
    by_process: dict[int, list[str]] = {}
    for each in records:
        by_process.setdefault(each["pid"], []).append(each["event"])
    assert sorted(by_process) == sorted([os.getpid(), *(child.pid for child in children)])
    assert by_process.pop(os.getpid()) == ["RequestStarted", "RequestEnded"]
    assert all(events == ["RequestStarted", "RequestEnded"] * 10 for events in by_process.values())


def test_a_child_begins_with_an_operation_and_repeats_no_record_of_its_parent(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "events.jsonl"

    def work():
        read_one(source, keys[3])
        (each,) = subscription._open.values()
        assert each.flush()

    with to(JsonLines(path)):
        source.head(keys[0])
        with forked(work) as status:
            assert status() == 0
    lines = lines_of(path)
    records = [each for each in lines if each["pid"] != os.getpid()]
    assert len(lines) == len(records) + 2
    kinds = [each["event"] for each in records]
    assert [kind for kind in kinds if "Operation" in kind] == ["OperationStarted", "OperationEnded"]
    opened = {each["id"] for each in records if each["event"] == "OperationStarted"}
    assert {each["parent"] for each in records if each["event"] == "RequestStarted"} == opened


def test_a_sink_that_a_child_cannot_open_is_logged_there_and_the_child_reads(tmp_path, caplog):
    source, keys = source_of(tmp_path), keys_of(tmp_path)

    class OnceOnly(Collected):
        def open(self, *, first):
            if not first:
                raise OSError(24, "Too many open files")
            return super().open(first=first)

    def work():
        with caplog.at_level(logging.WARNING, "penstock"):
            read_all(source, keys)
        assert "could not be opened in process" in caplog.text
        assert "Too many open files" in caplog.text

    with to(OnceOnly()), forked(work) as status:
        assert status() == 0


def test_a_child_that_reads_nothing_opens_nothing():
    sink = Collected()

    def work():
        assert (sink.opened, sink.left) == (1, 1)

    with to(sink), forked(work) as status:
        assert status() == 0


def test_interpreter_exit_writes_pending_events_and_operation_ends(tmp_path):
    path = tmp_path / "events.jsonl"
    script = """
        import sys
        from penstock.events import operation
        from penstock.observe import JsonLines, to
        to(JsonLines(sys.argv[1]))
        scope = operation("read", str, "file:///x")
    """
    result = python(script, str(path))
    assert (result.returncode, result.stderr) == (0, "")
    started, ended = lines_of(path)
    assert (started["event"], ended["event"], ended["outcome"]) == ("OperationStarted", "OperationEnded", "cancelled")


def test_closing_a_child_s_copy_leaves_the_parents_open(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "events.jsonl"

    with to(JsonLines(path)) as observed:
        with forked(observed.close) as status:
            assert status() == 0
        read_all(source, keys)
    assert len(lines_of(path)) == 20


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


def test_close_that_begins_while_a_flush_is_answered_closes_the_writer():
    class Hasty(deque):
        def popleft(self):
            done = super().popleft()
            return SimpleNamespace(set=lambda: (setattr(pump, "_stopping", True), done.set()))

    writer = Collected()
    pump = Pump(writer, "a sink")
    pump._flushes = Hasty()
    pump.hear(event())
    assert pump.flush(WAIT_S)
    assert pump.close(WAIT_S)
    assert writer.closed == 1


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
    assert "900 records dropped and 0 lost" in caplog.text


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
    assert "reads continue" in warning


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
