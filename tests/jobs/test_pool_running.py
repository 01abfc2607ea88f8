"""What tasks and threads bring comes to the one thread that waits, together; ``test_pool`` has the tasks themselves."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event

import pytest

from penstock.errors import Bug, Cancelled, Denied
from penstock.jobs import steps
from penstock.jobs.pool import Tasks


def test_received_messages_arrive_between_finished_tasks_until_the_first_error():
    news = SimpleQueue()

    def receive():
        found = news.get(timeout=30)
        if isinstance(found, Exception):
            raise found
        return found

    async def work():
        return await steps.run_blocking(lambda: "done")

    tasks = Tasks(Event())
    tasks.follow("post", receive)
    heard = []
    for sent in ("one", "two"):
        news.put(sent)
        tasks.start("task", work())
        while len(heard) < (2 if sent == "one" else 4):
            heard += tasks.ended()
    assert sorted(heard) == [("post", "one"), ("post", "two"), ("task", "done"), ("task", "done")]
    news.put(Denied("no more"))
    ((job, error),) = tasks.ended()
    assert (job, type(error), str(error)) == ("post", Denied, "no more")
    news.put("unheard")
    tasks.close()
    assert news.get(timeout=30) == "unheard", "after an error nothing is received"


def test_unexpected_exception_while_receiving_is_returned_as_a_bug():
    tasks = Tasks(Event())
    tasks.follow("post", lambda: 1 / 0)
    ((job, error),) = tasks.ended()
    assert (job, type(error)) == ("post", Bug)
    tasks.close()


def test_close_does_not_wait_for_a_pending_receive():
    held = Event()

    def receive():
        assert held.wait(30)
        raise Cancelled("at last")

    tasks = Tasks(Event())
    tasks.follow("post", receive)
    tasks.close()
    assert not held.is_set()
    held.set()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_call_that_blocks_is_not_begun_after_the_stop(stopped):
    stop, called = Event(), []
    tasks = Tasks(stop)

    async def work():
        await steps.run_blocking(called.append, 1)

    if stopped:
        stop.set()
    tasks.start("job", work())
    ((_, result),) = tasks.ended()
    assert (called, type(result)) == (([], Cancelled) if stopped else ([1], type(None)))
    tasks.close()
