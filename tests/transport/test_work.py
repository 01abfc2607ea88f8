"""Blocking calls run on a few threads, end one way or another, and can be called off while they wait."""

import threading

import pytest

from penstock.errors import Bug, Cancelled, NotFound
from penstock.protocols.exchange import Request, Work
from penstock.transport.work import Threads
from tests.children import python
from tests.transport.calls import Once, carry


@pytest.fixture
def threads():
    return Threads(2)


def test_a_value_comes_back(threads):
    responses = carry(threads, *[Once(Work(lambda number=number: number)) for number in range(100)])
    assert [response.body for response in responses] == list(range(100))


def test_there_are_as_many_places_as_threads():
    assert Threads(3).places() == 3


def test_errors_come_back(threads):
    def broken():
        raise ZeroDivisionError("oops")

    def missing():
        raise NotFound("not there")

    ours, theirs, request, wrong = carry(
        threads,
        Once(Work(missing)),
        Once(Work(broken)),
        Once(ValueError("no request")),
        Once(Request("GET", "http://x")),
    )
    assert type(ours.fault) is NotFound
    assert (type(theirs.fault), type(theirs.fault.__cause__)) == (Bug, ZeroDivisionError)
    assert type(request.fault) is type(wrong.fault) is Bug


def test_what_has_not_begun_or_waits_is_called_off():
    threads, gate, begun = Threads(1), threading.Event(), threading.Event()
    delayed = Once(Work(lambda: None), delays=[3600.0])
    threads.submit([delayed])
    running = Once(Work(lambda: begun.set() or gate.wait(60)))
    queued = Once(Work(lambda: pytest.fail("it was called off")))
    threads.cancel([delayed])
    assert type(delayed.wait().fault) is Cancelled
    threads.submit([running, queued])
    assert begun.wait(60)
    threads.cancel([running, queued])
    gate.set()
    assert running.wait().body is True, "what runs is left to finish"
    assert type(queued.wait().fault) is Cancelled
    assert not threads._pending
    assert not threads._cancelled


def test_a_retry_waits_and_runs_again(threads):
    call = Once(Work(lambda: "done"), delays=[0.0, 0.05])
    threads.submit([call])
    assert (call.wait().body, call.attempts) == ("done", 3)


def test_at_the_interpreter_s_end_work_is_done_where_it_is_asked_for():
    script = """
        import atexit
        from penstock.protocols.exchange import Work
        from penstock.transport.work import Threads
        from tests.transport.calls import Once, carry
        threads = Threads()
        atexit.register(lambda: print(carry(threads, Once(Work(lambda: "done")))[0].body))
        carry(threads, Once(Work(lambda: None)))
    """
    ended = python(script)
    assert ended.stdout == "done\n", ended.stderr
