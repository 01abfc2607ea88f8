"""The command's thread pool: bounded, all of it heard, and at an end soon when its caller leaves."""

from __future__ import annotations

from threading import Event, Lock

import pytest

from penstock.bulk.pool import run_jobs
from penstock.errors import Bug, Cancelled, NotFound

MIB = 1 << 20


def test_every_job_comes_back_once_with_what_came_of_it():
    def work(job):
        if job % 3 == 0:
            raise NotFound("nothing there", url=f"memory://x/{job}")
        return job * 2

    ended = dict(run_jobs(range(100), work, lambda _: 1, Event()))
    assert sorted(ended) == list(range(100))
    for job, result in ended.items():
        assert isinstance(result, NotFound) if job % 3 == 0 else result == job * 2


def test_what_is_no_error_of_penstock_s_comes_back_as_a_bug_with_its_cause():
    ((_, error),) = run_jobs(["a"], lambda _: 1 / 0, lambda _: 1, Event())
    assert isinstance(error, Bug)
    assert "unexpected ZeroDivisionError" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(("cost_bytes", "most"), [(0, 32), (100 * MIB, 3), (1000 * MIB, 1)], ids=["many", "few", "one"])
def test_no_more_jobs_than_32_and_384_mib_are_under_way(cost_bytes, most):
    lock, let, beyond, running, peak = Lock(), Event(), Event(), 0, 0

    def work(_):
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
            full = running == most
            if running > most:
                beyond.set()
        if full and not let.is_set():  # as many as there may be; nothing ends until one more had its chance
            beyond.wait(0.05)
            let.set()
        assert let.wait(10)
        with lock:
            running -= 1

    results = [result for _, result in run_jobs(range(2 * most), work, lambda _: cost_bytes, Event())]
    assert results == [None] * (2 * most)
    assert peak == most


def test_leaving_early_tells_those_at_it_and_begins_no_other():
    stop, done = Event(), []

    def work(job):
        if job:
            assert stop.wait(10)
        done.append(job)

    jobs = run_jobs(range(1000), work, lambda _: 100 * MIB, stop)
    assert next(jobs) == (0, None)
    jobs.close()
    assert stop.is_set()
    assert len(done) < 10


def test_what_is_called_off_before_it_began_is_cancelled():
    stop = Event()
    stop.set()
    results = [result for _, result in run_jobs(range(3), lambda job: job, lambda _: 1, stop)]
    assert [type(result) for result in results] == [Cancelled] * 3
