"""Sinks are open in the process that asks, in those it forks and spawns, and gone when they are closed."""

from __future__ import annotations

import logging
import multiprocessing
import os

import pytest

from penstock.errors import Unusable
from penstock.events import listening
from penstock.observe import JsonLines, subscription, to
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
