"""Many tasks at once: bounded, all of them heard, and at an end soon when their caller leaves."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from threading import Event, Lock

import pytest

from penstock.errors import Bug, Cancelled, Denied, NotFound
from penstock.events import Committed, subscribe
from penstock.jobs import tasks
from penstock.jobs.tasks import Tasks, run_jobs
from penstock.source import Batch, open_source
from penstock.values import Span
from tests.jobs.carry import carry

MIB = 1 << 20


@pytest.fixture
def source(request):
    return open_source(f"memory://{request.node.name}/")[0]


def calling(function):
    """Return the work of jobs that call a function, which blocks."""

    async def work(job):
        return await tasks.run_blocking(function, job)

    return work


def test_every_job_is_returned_once_with_its_result_or_error(source):
    source.put("there", b"x")

    async def work(job):
        if job % 3 == 0:
            await tasks.head(source, "missing")
        if job % 3 == 1:
            await tasks.run_blocking(lambda: None)
        await tasks.head(source, "there")
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
            await tasks.head(source, "a")

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
                await tasks.run_blocking(stop.wait, 10)
            await tasks.put(source, str(job), b"x", metadata={}, content_type="")
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
        await tasks.head(other if job % 2 else source, "there")
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
        await tasks.put(source, str(job), b"x", metadata={}, content_type="")

    with pytest.raises(NotFound, match="broke off"):
        list(run_jobs(jobs(), work, lambda _: 0, Event()))


# What a task awaits: each verb brings its result, or raises where it is awaited.


def test_verbs_follow_one_another_in_one_task(source):
    async def work():
        with pytest.raises(NotFound):
            await tasks.head(source, "a")
        await tasks.put(source, "a", b"data", metadata={"of": "me"}, content_type="text/plain")
        found = await tasks.head(source, "a")
        await tasks.copy(source, found, "b")
        await tasks.delete(source, "a")
        assert await tasks.read(source, Span("b", 1, 3)) == b"at"
        with pytest.raises(NotFound):
            await tasks.read(source, Span("a", 0, 1))
        return found

    found = carry(work())
    assert (found.size, found.content_type, found.metadata["of"]) == (4, "text/plain", "me")


def test_an_object_without_a_type_gets_the_options_and_its_writing_is_an_event(source):
    seen = []
    stop = subscribe(seen.append)
    try:
        etag = carry(tasks.put(source, "a", b"data", metadata={}, content_type=""))
    finally:
        stop()
    assert source.head("a").content_type == source.options.write.content_type
    (told,) = (each for each in seen if isinstance(each, Committed))
    assert (told.url, told.size_bytes, told.etag) == (source.url("a"), 4, etag)


def test_blocking_call_runs_on_another_thread_and_raises_its_errors():
    async def work():
        with pytest.raises(NotFound):
            await tasks.run_blocking(_raise, NotFound("no"))
        with pytest.raises(Bug, match="unexpected ValueError"):
            await tasks.run_blocking(_raise, ValueError("no"))
        return await tasks.run_blocking(threading.get_ident)

    assert carry(work()) != threading.get_ident()


def _raise(error):
    raise error


# What tasks and threads bring comes to the one thread that waits, together; ``test_pool`` has the tasks themselves.


def test_received_messages_arrive_between_finished_tasks_until_the_first_error():
    news = SimpleQueue()

    def receive():
        found = news.get(timeout=30)
        if isinstance(found, Exception):
            raise found
        return found

    async def work():
        return await tasks.run_blocking(lambda: "done")

    running = Tasks(Event())
    running.follow("post", receive)
    heard = []
    for sent in ("one", "two"):
        news.put(sent)
        running.start("task", work())
        while len(heard) < (2 if sent == "one" else 4):
            heard += running.ended()
    assert sorted(heard) == [("post", "one"), ("post", "two"), ("task", "done"), ("task", "done")]
    news.put(Denied("no more"))
    ((job, error),) = running.ended()
    assert (job, type(error), str(error)) == ("post", Denied, "no more")
    news.put("unheard")
    running.close()
    assert news.get(timeout=30) == "unheard", "after an error nothing is received"


def test_unexpected_exception_while_receiving_is_returned_as_a_bug():
    running = Tasks(Event())
    running.follow("post", lambda: 1 / 0)
    ((job, error),) = running.ended()
    assert (job, type(error)) == ("post", Bug)
    running.close()


def test_close_does_not_wait_for_a_pending_receive():
    held = Event()

    def receive():
        assert held.wait(30)
        raise Cancelled("at last")

    running = Tasks(Event())
    running.follow("post", receive)
    running.close()
    assert not held.is_set()
    held.set()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_call_that_blocks_is_not_begun_after_the_stop(stopped):
    stop, called = Event(), []
    running = Tasks(stop)

    async def work():
        await tasks.run_blocking(called.append, 1)

    if stopped:
        stop.set()
    running.start("job", work())
    ((_, result),) = running.ended()
    assert (called, type(result)) == (([], Cancelled) if stopped else ([1], type(None)))
    running.close()
