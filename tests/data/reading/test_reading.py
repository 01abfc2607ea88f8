"""Items that prepare, values that several samples wait for, and readings taken as lists."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref

import pytest

from penstock.data.reading import reading
from penstock.data.reading.reading import Prepared, in_lists
from penstock.errors import Cancelled, Damaged
from tests.data.datasets.chunks import Chunked

BATCHES = [[3, 1, 9], [0], [2, 8, 4, 5]]


def test_lists_leave_out_items_that_prepare():
    reading = Chunked(12).reading(iter(BATCHES), 1)
    assert list(in_lists(reading)) == BATCHES
    assert (reading.counts.requests, reading.closed) == (3, 1)


def test_lists_of_no_batches_are_none():
    assert list(in_lists(Chunked(12).reading([], 1))) == []


def test_an_error_of_preparation_ends_lists_at_the_batch_that_needs_it():
    reading = Chunked(12, broken=[1]).reading(iter(BATCHES), 1)
    lists = in_lists(reading)
    assert [next(lists), next(lists)] == BATCHES[:2]
    with pytest.raises(Damaged, match="chunk 1"):
        next(lists)
    assert reading.closed == 1
    assert list(lists) == []


def test_lists_that_are_dropped_close_their_reading():
    reading = Chunked(12).reading(iter(BATCHES), 1)
    lists = in_lists(reading)
    next(lists)
    lists.close()
    assert reading.closed == 1


def test_prepared_value_is_made_once_and_released_by_forget():
    made = []
    value = Prepared(lambda: made.append(1) or {"a"})
    value.prepare()
    value.prepare()
    assert (value.get(), value.get(), made) == ({"a"}, {"a"}, [1])
    held = weakref.ref(value.get())
    value.forget()
    gc.collect()
    assert held() is None


def test_samples_wait_for_a_value_that_another_thread_makes():
    begun, go = threading.Event(), threading.Event()

    def make() -> str:
        begun.set()
        assert go.wait(60)
        return "made"

    value, got = Prepared(make), []
    waiting = [threading.Thread(target=lambda: got.append(value.get())) for _ in range(3)]
    making = threading.Thread(target=value.prepare)
    for thread in (making, *waiting):
        thread.start()
    assert begun.wait(60)
    assert got == []
    go.set()
    for thread in (making, *waiting):
        thread.join(60)
    assert got == ["made"] * 3


@pytest.mark.parametrize("kind", [ValueError, SystemExit, StopIteration])
def test_an_error_is_kept_for_each_that_asks(kind):
    def make() -> None:
        raise kind("odd")

    value = Prepared(make)
    value.prepare()
    depths = []
    for _ in range(5):
        with pytest.raises(kind, match="odd") as caught:
            value.get()
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(depths)) == 1, "each raise lengthens the traceback"


def test_samples_waiting_for_an_abandoned_value_wake_with_cancelled():
    value, raised = Prepared(lambda: "never"), []

    def wait() -> None:
        with pytest.raises(Cancelled, match="closed"):
            value.get()
        raised.append(1)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    value.abandon()
    for thread in waiting:
        thread.join(60)
    assert raised == [1] * 3
    value.prepare()
    wait()


def test_a_value_that_is_made_when_it_is_abandoned_stays():
    value = Prepared(lambda: "made")
    value.prepare()
    value.abandon()
    assert value.get() == "made"


@pytest.mark.parametrize("asked", ["prepare", "get", "abandon"])
def test_value_can_be_abandoned_at_any_line_during_its_calls(asked):
    """As the garbage collector does, on the same thread: a lock that is held there would never be had."""
    for line in range(40):
        value, left, ended = Prepared(lambda: "made"), [line], []
        if asked == "get":
            value.prepare()

        def trace(frame, event, _argument, value=value, left=left):
            if frame.f_code.co_filename in (threading.__file__, reading.__file__):
                left[0] -= event == "line"
                if not left[0]:
                    left[0] = -1
                    value.abandon()
            return trace

        def run(value=value, ended=ended, trace=trace):
            sys.settrace(trace)
            try:
                getattr(value, asked)()
            finally:
                sys.settrace(None)
            ended.append(asked)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
        assert ended == [asked]
