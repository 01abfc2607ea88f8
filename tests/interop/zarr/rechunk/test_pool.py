"""Regions in threads: all of them heard, within the memory, and at an end soon when the caller leaves."""

from __future__ import annotations

from threading import Event, Lock

import pytest

from penstock.errors import Bug, Cancelled, NotFound
from penstock.interop.zarr.rechunk.pool import run_jobs


def test_every_job_comes_back_once_with_what_came_of_it():
    def work(job):
        if job == 5:
            raise NotFound("nothing there")
        return 1 / (job - 7)

    ended = dict(run_jobs(range(50), work, lambda _: 1, Event(), 1000))
    assert sorted(ended) == [*range(50)]
    assert isinstance(ended[5], NotFound)
    assert isinstance(ended[7], Bug)
    assert isinstance(ended[7].__cause__, ZeroDivisionError)


@pytest.mark.parametrize(("cost_bytes", "most"), [(1, 16), (300, 3), (5000, 1)])
def test_no_more_jobs_than_the_memory_allows_are_under_way(cost_bytes, most):
    lock, let, running, peak = Lock(), Event(), 0, 0

    def work(_):
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
            if running == most:
                let.set()
        let.wait(60)
        with lock:
            running -= 1

    assert len([*run_jobs(range(40), work, lambda _: cost_bytes, Event(), 1000)]) == 40
    assert peak == most


def test_leaving_stops_the_work():
    stop, begun = Event(), Event()

    def work(job):
        if job:
            begun.set()
            stop.wait(60)
            raise Cancelled("cancelled")

    results = run_jobs(range(8), work, lambda _: 1, stop, 1000)
    assert next(results)[0] == 0
    begun.wait(60)
    results.close()
    assert stop.is_set()
