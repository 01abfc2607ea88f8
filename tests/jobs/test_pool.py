"""Many tasks at once: bounded, all of them heard, and at an end soon when their caller leaves."""

from __future__ import annotations

from threading import Event, Lock

import pytest

from penstock.errors import Bug, Cancelled, Denied, NotFound
from penstock.jobs import steps
from penstock.jobs.pool import run_jobs
from penstock.source import Batch, open_source

MIB = 1 << 20


@pytest.fixture
def source(request):
    return open_source(f"memory://{request.node.name}/")[0]


def calling(function):
    """Return the work of jobs that call a function, which blocks."""

    async def work(job):
        return await steps.run_blocking(function, job)

    return work


def test_every_job_is_returned_once_with_its_result_or_error(source):
    source.put("there", b"x")

    async def work(job):
        if job % 3 == 0:
            await steps.head(source, "missing")
        if job % 3 == 1:
            await steps.run_blocking(lambda: None)
        await steps.head(source, "there")
        return job * 2

    ended = dict(run_jobs(range(1000), work, lambda _: 1, Event()))
    assert sorted(ended) == list(range(1000))
    for job, result in ended.items():
        assert isinstance(result, NotFound) if job % 3 == 0 else result == job * 2


def test_unexpected_exception_is_returned_as_a_bug_with_its_cause():
    async def work(_):
        return 1 / 0

    ((_, error),) = run_jobs(["a"], work, lambda _: 1, Event())
    assert isinstance(error, Bug)
    assert "unexpected ZeroDivisionError" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("cost_bytes", "most", "memory"),
    [(0, 32, ()), (100 * MIB, 3, ()), (1000 * MIB, 1, ()), (300, 3, (1000,))],
    ids=["many", "few", "one", "given"],
)
def test_no_more_blocking_calls_than_32_and_384_mib_are_under_way(cost_bytes, most, memory):
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

    results = [result for _, result in run_jobs(range(2 * most), calling(work), lambda _: cost_bytes, Event(), *memory)]
    assert results == [None] * (2 * most)
    assert peak == most


def test_64_tasks_are_under_way_and_after_some_hundred_256(source):
    begun, ended, peaks = 0, 0, []

    async def work(_):
        nonlocal begun
        begun += 1
        peaks.append(begun - ended)
        with pytest.raises(NotFound):
            await steps.head(source, "a")

    for _ in run_jobs(range(3000), work, lambda _: 0, Event()):
        ended += 1
    assert begun == 3000
    assert max(peaks[:65]) == 64
    assert max(peaks) == 256


def test_closing_early_signals_running_jobs_and_starts_no_more():
    stop, done = Event(), []

    def work(job):
        if job:
            assert stop.wait(10)
        done.append(job)

    jobs = run_jobs(range(1000), calling(work), lambda _: 100 * MIB, stop)
    assert next(jobs) == (0, None)
    jobs.close()
    assert stop.is_set()
    assert len(done) < 10


def test_leaving_early_calls_requests_off_and_unwinds_every_task(source):
    stop, unwound, begun = Event(), [], []

    async def work(job):
        try:
            begun.append(job)
            if job:
                await steps.run_blocking(stop.wait, 10)
            await steps.put(source, str(job), b"x", metadata={}, content_type="")
        finally:
            unwound.append(job)

    jobs = run_jobs(range(1000), work, lambda _: 0, stop)
    assert next(jobs) == (0, None)
    jobs.close()
    assert sorted(unwound) == sorted(begun)
    assert [each.key for each in source.page("").entries] == ["0"], "what was waited for goes no further"


def test_jobs_stopped_before_their_start_are_cancelled():
    stop = Event()
    stop.set()
    results = [result for _, result in run_jobs(range(3), calling(lambda job: job), lambda _: 1, stop)]
    assert [type(result) for result in results] == [Cancelled] * 3


def test_unsendable_requests_fail_separately_and_other_jobs_complete(source, monkeypatch):
    source.put("there", b"x")
    other, _ = open_source("memory://of-the-others/")
    send = Batch.send

    def refused(self):
        if self._fetcher().driver.url("") == "memory://of-the-others/":
            self._verbs.clear()
            raise Denied("no credentials")
        send(self)

    async def work(job):
        await steps.head(other if job % 2 else source, "there")
        return job

    monkeypatch.setattr(Batch, "send", refused)
    ended = dict(run_jobs(range(100), work, lambda _: 0, Event()))
    assert all(ended[job] == job for job in range(0, 100, 2))
    failures = [ended[job] for job in range(1, 100, 2)]
    assert {type(each) for each in failures} == {Denied}
    assert len({id(each) for each in failures}) == 50, "texts are added to errors: no two share one"


def test_failing_job_iterator_raises_and_ends_running_jobs(source):
    def jobs():
        yield from range(20)
        raise NotFound("the listing broke off")

    async def work(job):
        await steps.put(source, str(job), b"x", metadata={}, content_type="")

    with pytest.raises(NotFound, match="broke off"):
        list(run_jobs(jobs(), work, lambda _: 0, Event()))
