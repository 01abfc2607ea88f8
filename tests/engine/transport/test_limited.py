"""Calls that never return are given up, and slow reads get a second call."""

import threading

import pytest

from penstock.engine.contracts.exchange import Work
from penstock.engine.transport.limited import LimitedThreads
from penstock.engine.waiting import allow_time
from penstock.errors import Cancelled, TimedOut
from tests.children import in_child
from tests.engine.transport.calls import Once, carry
from tests.threads import until


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def test_values_and_errors_come_back_with_the_seconds_that_they_took():
    first, second = carry(LimitedThreads(1, 60), Once(Work(lambda: 1)), Once(Work(lambda: 1 // 0)))
    assert (first.body, first.first_byte_s > 0) == (1, True)
    assert second.fault is not None


def test_call_that_does_not_return_times_out_and_others_go_on(gate):
    threads = LimitedThreads(1, 0.05)
    stuck, queued = Once(Work(lambda: gate.wait(60))), Once(Work(lambda: 2))
    threads.submit([stuck, queued])
    assert "did not return within 0.05 s" in str(stuck.wait().fault)
    assert type(stuck.wait().fault) is TimedOut
    assert queued.wait().body == 2
    gate.set()
    until(lambda: not threads._lost)
    assert carry(threads, Once(Work(lambda: 3)))[0].body == 3


def test_call_that_moves_many_bytes_may_take_longer(gate):
    threads = LimitedThreads(2, 0.05)

    def work():
        allow_time(3600)
        return gate.wait(60)

    slow, stuck = Once(Work(work)), Once(Work(lambda: gate.wait(60)))
    threads.submit([slow, stuck])
    assert type(stuck.wait().fault) is TimedOut
    gate.set()
    assert slow.wait().body is True


def test_timed_out_call_is_tried_again_and_its_late_answer_dropped(gate):
    calls = []

    def work():
        calls.append(1)
        return gate.wait(60) if len(calls) == 1 else "second"

    threads = LimitedThreads(1, 0.05)
    tried = Once(Work(work), delays=[0.0])
    threads.submit([tried])
    assert tried.wait().body == "second"
    gate.set()
    until(lambda: not threads._lost)
    assert tried.wait().body == "second"


def test_cancelled_call_ends_at_once_though_it_runs_on(gate):
    threads, begun = LimitedThreads(1, 3600), threading.Event()
    running = Once(Work(lambda: begun.set() or gate.wait(60)))
    threads.submit([running])
    assert begun.wait(60)
    threads.cancel([running])
    assert type(running.wait().fault) is Cancelled


def test_store_whose_calls_never_return_gets_no_more_of_them(gate):
    threads = LimitedThreads(64, 0.01)
    stuck = [Once(Work(lambda: gate.wait(60))) for _ in range(64)]
    carry(threads, *stuck)
    (refused,) = carry(threads, Once(Work(lambda: pytest.fail("it was called"))))
    assert "64 calls of this store have never returned" in str(refused.fault)


def test_forked_child_begins_without_its_parents_calls(gate):
    threads = LimitedThreads(1, 3600)
    threads.submit([Once(Work(lambda: gate.wait(60)))])
    until(lambda: threads._calls)

    def work():
        assert carry(threads, Once(Work(lambda: 5)))[0].body == 5

    in_child(work)


class _Watch:
    def __init__(self, make):
        self.make, self.asked = make, []

    def late_s(self, _now):
        return 0.01

    def look(self, traffic):
        self.asked += traffic.under_way
        return [(traffic.under_way[0].operation, self.make.pop())] if self.make else []


def test_slow_call_gets_a_second_one_beyond_the_number_of_threads(gate):
    threads, slow, extra = LimitedThreads(1, 3600), Once(Work(lambda: gate.wait(60))), Once(Work(lambda: "extra"))
    threads.watch(watch := _Watch([extra]))
    threads.submit([slow])
    assert extra.wait().body == "extra"
    assert watch.asked[0].operation is slow
    assert watch.asked[0].waited_s >= 0.01


def test_broken_watch_stops_no_call(gate):
    threads, calls = LimitedThreads(2, 0.1), [Once(Work(lambda: gate.wait(60))), Once(Work(lambda: 1))]
    threads.watch(None.__class__)
    assert [type(each.fault) for each in carry(threads, *calls)] == [TimedOut, type(None)]


def test_lookout_ends_when_idle_and_begins_again(monkeypatch, gate):
    monkeypatch.setattr("penstock.engine.transport.limited._IDLE_S", 0.01)
    threads = LimitedThreads(1, 0.05)
    assert carry(threads, Once(Work(lambda: 1)))[0].body == 1
    until(lambda: threads._lookout is None)
    assert type(carry(threads, Once(Work(lambda: gate.wait(60))))[0].fault) is TimedOut
