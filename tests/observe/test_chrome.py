"""Traces are whole arrays, rows do not overlap, and processes share a file."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import pytest

from penstock.errors import TimedOut, Unusable
from penstock.events import OperationStarted, RequestEnded, RequestStarted, Retried
from penstock.observe import ChromeTrace, Record, to
from tests.children import forked
from tests.observe.reads import keys_of, read_all, read_one, source_of


def spans(path):
    return [each for each in json.loads(path.read_text()) if each["ph"] == "X"]


def test_a_trace_has_requests_and_operations_and_replaces_the_one_before(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "trace.json"
    for _ in range(2):
        with to(ChromeTrace(path)):
            read_one(source, keys[3])
    shown = spans(path)
    assert [each["name"] for each in shown if each["cat"] == "operation"] == ["read"]
    (operation,) = [each for each in shown if each["cat"] == "operation"]
    parent = operation["args"]["id"]
    requests = [each for each in shown if each["cat"] == "request" and each["args"]["parent"] == parent]
    assert [each["name"] for each in requests] == ["read"]
    assert operation["ts"] <= requests[0]["ts"]
    assert requests[0]["ts"] + requests[0]["dur"] <= operation["ts"] + operation["dur"]


def test_overlapping_requests_get_separate_trace_rows(tmp_path):
    writer = ChromeTrace(tmp_path / "trace.json").open(first=True)

    def shown(at, event):
        return [each for each in writer._shown(Record(at * 1000, event)) if each["ph"] != "M"]

    def start(number):
        return RequestStarted("s3://b/k", number, 0, "read", 1)

    def end(number):
        return RequestEnded("s3://b/k", number, 0, "read", 1, "done", 200, 0, 5, 0.1, 0.2)

    assert shown(1, start(1)) == shown(2, start(2)) == []
    (one,) = shown(3, end(1))
    assert shown(4, start(3)) == []
    (three,) = shown(5, end(3))
    (two,) = shown(6, end(2))
    assert (one["tid"], two["tid"], three["tid"]) == (1, 2, 1)
    assert (one["ts"], one["dur"], two["ts"], two["dur"]) == (1, 2, 2, 4)
    assert shown(7, end(9)) == []  # it began before the trace
    (retry,) = shown(8, Retried("s3://b/k", TimedOut("slow"), 1, 0.5))
    assert (retry["ph"], retry["args"]["error"]) == ("i", "TimedOut: slow")
    assert shown(9, OperationStarted("s3://b/k", 4, 0, "read")) == []
    writer.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_write_into_the_same_trace_which_is_whole_when_all_have_closed_it(tmp_path, method):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "trace.json"
    context = multiprocessing.get_context(method)
    children = [context.Process(target=read_all, args=(source, keys)) for _ in range(2 if method == "fork" else 1)]
    with to(ChromeTrace(path)):
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        read_all(source, keys)
    assert sorted({each["pid"] for each in spans(path)}) == sorted([os.getpid(), *(child.pid for child in children)])
    assert len(spans(path)) == 10 + 10 * len(children)


def test_a_worker_that_outlives_its_parents_sink_leaves_a_whole_trace(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "trace.json"
    context = multiprocessing.get_context("fork")
    go = context.Event()

    def late():
        assert go.wait(60)
        read_all(source, keys)

    with to(ChromeTrace(path)):
        child = context.Process(target=late)
        child.start()
        read_all(source, keys)
    assert len(spans(path)) == 10
    go.set()
    child.join(60)
    assert len(spans(path)) == 20


def test_a_killed_process_leaves_all_but_the_bracket(tmp_path):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "trace.json"

    def work():
        observed = to(ChromeTrace(path))
        read_all(source, keys)
        assert observed.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(work) as status:
        assert status() == -signal.SIGKILL
    assert len([each for each in json.loads(path.read_text() + "]") if each["ph"] == "X"]) == 10


def test_existing_non_trace_file_is_refused_and_unchanged(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(Unusable, match="is not a trace"):
        to(ChromeTrace(path))
    assert path.read_text() == "mine"


def test_ranks_join_one_trace(tmp_path, monkeypatch):
    source, keys, path = source_of(tmp_path), keys_of(tmp_path), tmp_path / "trace.json"
    monkeypatch.setenv("RANK", "1")
    with to(ChromeTrace(path)):
        with to(ChromeTrace(path)):
            read_all(source, keys)
        read_all(source, keys)
    assert len(spans(path)) == 30
    assert "rank 1" in path.read_text()
