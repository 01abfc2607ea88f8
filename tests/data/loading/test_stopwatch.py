"""Calls are timed, also those that raise and those of several threads; demand is what a thread could have run."""

from __future__ import annotations

import threading
from time import monotonic, thread_time

import pytest

from penstock.data.loading import stats
from penstock.data.loading.stats import Stopwatch, demanded_s


def test_calls_are_timed_and_answered():
    released = threading.Event()
    watch = Stopwatch(released.wait)
    threading.Timer(0.05, released.set).start()
    assert watch(60) is True
    assert watch.seconds > 0
    before = watch.seconds
    watch(60)
    assert watch.seconds > before


def test_a_call_that_raises_is_timed_and_raises():
    watch = Stopwatch(int)
    with pytest.raises(ValueError, match="nine"):
        watch("nine")
    assert watch.seconds > 0


def test_threads_are_added_up():
    gate = threading.Barrier(4)
    watch = Stopwatch(lambda _: gate.wait(60))
    threads = [threading.Thread(target=watch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watch.seconds > 0


def demand_of(work):
    """Return what a thread of its own demanded while it did ``work``, and the seconds that it ran and that passed."""
    found = []
    began_s = monotonic()  # before the thread, whose first wait for a processor is demand, too

    def run():
        work()
        found.extend((demanded_s(), thread_time(), monotonic() - began_s))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def spin():
    until_s = thread_time() + 0.05
    while thread_time() < until_s:
        pass


def test_a_thread_that_runs_demands_a_processor():
    demanded, ran, passed = demand_of(spin)
    assert 0.04 <= demanded <= passed * 1.1
    assert demanded >= ran * 0.8


def test_a_thread_that_waits_for_something_demands_none():
    demanded, _, passed = demand_of(lambda: threading.Event().wait(0.2))
    assert demanded <= passed - 0.15, "0.2 s of it asleep"


def test_demand_equals_cpu_time_without_kernel_schedstat(monkeypatch, tmp_path):
    monkeypatch.setattr(stats, "_SCHEDSTAT", tmp_path / "none")
    demanded, ran, _ = demand_of(spin)
    assert demanded == pytest.approx(ran, abs=0.01)
