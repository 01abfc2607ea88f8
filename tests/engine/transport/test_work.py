"""Blocking calls run on a few threads, end one way or another, and can be called off while they wait."""

import threading
import time
from functools import partial

import numpy as np
import pytest

from penstock.engine.contracts.exchange import Request, Work
from penstock.engine.transport import work
from penstock.engine.transport.work import Threads
from penstock.errors import Bug, Cancelled, NotFound
from tests.children import in_child, python
from tests.engine.transport.calls import Breaking, Once, carry
from tests.threads import at_once, interrupt, until


@pytest.fixture
def threads():
    return Threads(2)


def test_a_value_comes_back_and_there_are_as_many_places_as_threads(threads):
    responses = carry(threads, *[Once(Work(lambda number=number: number)) for number in range(100)])
    assert [response.body for response in responses] == list(range(100))
    assert (threads.concurrency(), Threads(3).concurrency()) == (2, 3)


def test_errors_come_back(threads):
    def missing():
        raise NotFound("not there")

    asked = (Work(missing), Work(lambda: 1 // 0), ValueError("no request"), Request("GET", "http://x"))
    ours, theirs, request, wrong = carry(threads, *map(Once, asked))
    assert type(ours.fault) is NotFound
    assert (type(theirs.fault), type(theirs.fault.__cause__)) == (Bug, ZeroDivisionError)
    assert type(request.fault) is type(wrong.fault) is Bug


def test_queued_and_delayed_work_is_cancelled_but_running_work_finishes():
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
    assert not threads._jobs


def test_a_retry_waits_and_runs_again(threads):
    call = Once(Work(lambda: "done"), delays=[0.0, 0.05])
    threads.submit([call])
    assert (call.wait().body, call.attempts) == ("done", 3)


def test_work_waiting_for_a_retry_blocks_no_other_work(threads):
    waiting = [Once(Work(lambda: None), delays=[3600.0]) for _ in range(5)]
    threads.submit(waiting)
    assert [response.body for response in carry(threads, *[Once(Work(lambda: 1)) for _ in range(9)])] == [1] * 9
    assert len(threads._workers) <= 2 * 4
    threads.cancel(waiting)
    assert {type(each.wait().fault) for each in waiting} == {Cancelled}
    assert not threads._waiting


def test_exception_in_done_callback_is_delivered_as_bug_and_the_thread_survives():
    threads, broken = Threads(1), Breaking(Work(lambda: 1))
    after = Once(Work(lambda: 2))
    assert [type(response.fault) for response in carry(threads, broken, after)] == [Bug, type(None)]
    assert broken.responses[0].body == 1


def test_no_more_threads_run_than_stated():
    threads, lock, running, most = Threads(3), threading.Lock(), 0, 0

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1

    calls = [Once(Work(work)) for _ in range(200)]
    at_once(*(partial(threads.submit, calls[at::8]) for at in range(8)))
    for call in calls:
        call.wait()
    assert most == 3


def test_threads_end_when_nothing_is_left_to_do():
    threads = Threads()
    known = set(threading.enumerate())
    carry(threads, *[Once(Work(lambda: None)) for _ in range(100)])
    assert set(threading.enumerate()) == known, "what looks for threads left behind sees none"
    until(lambda: not threads._workers)
    assert carry(threads, Once(Work(lambda: "again")))[0].body == "again"


def test_work_submitted_while_the_last_thread_exits_is_completed():
    threads = Threads(1)
    for wait_s in np.linspace(0.9, 1.1, 20) * work._LINGER_S:
        time.sleep(wait_s)  # about when it goes
        carry(threads, Once(Work(lambda: None)))


def test_an_interrupt_at_any_moment_of_a_submit_leaves_the_threads_usable():
    threads = Threads(2)
    for at in range(400):
        calls = [Once(Work(lambda: None)) for _ in range(4)]
        interrupt(partial(threads.submit, calls), at)
        threads.cancel(calls)
        assert carry(threads, Once(Work(lambda: "done")))[0].body == "done", f"interrupted at step {at}"
    assert len(threads._workers) <= 2


def test_forked_child_runs_work_on_its_own_threads():
    threads, gate, begun = Threads(1), threading.Event(), threading.Event()
    blocked = Once(Work(lambda: begun.set() or gate.wait(60)))
    threads.submit([blocked])
    assert begun.wait(60)

    def child():
        assert carry(threads, Once(Work(lambda: "child")))[0].body == "child"

    in_child(child)
    gate.set()
    assert blocked.wait().body is True


def test_interpreter_exit_waits_for_running_and_queued_work():
    script = """
        import time
        from penstock.engine.contracts.exchange import Work
        from penstock.engine.transport.work import Threads
        from tests.engine.transport.calls import Once
        Threads(1).submit([Once(Work(lambda: time.sleep(0.3))), Once(Work(lambda: print("written", flush=True)))])
    """
    ended = python(script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "written\n", "")


def test_interpreter_exit_leaves_a_cancelled_function_that_does_not_return():
    script = """
        import threading, time
        from penstock.engine.contracts.exchange import Work
        from penstock.engine.transport import work
        from tests.engine.transport.calls import Once
        work._CLOSE_S = 0.1
        begun = threading.Event()
        stuck = Once(Work(lambda: begun.set() or time.sleep(120)))
        threads = work.Threads(2)
        threads.submit([stuck])
        begun.wait(60)
        threads.cancel([stuck])
        threads.submit([Once(Work(lambda: time.sleep(0.5) or print("written", flush=True)))])
    """
    began = time.monotonic()
    ended = python(script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "written\n", "")
    assert time.monotonic() - began < 60, "the cancelled function would take twice as long"


def test_at_the_interpreter_s_end_work_is_done_where_it_is_asked_for():
    script = """
        import atexit
        from penstock.engine.contracts.exchange import Work
        from penstock.engine.transport.work import Threads
        from tests.engine.transport.calls import Once, carry
        threads = Threads()
        atexit.register(lambda: print(carry(threads, Once(Work(lambda: "done")))[0].body))
        carry(threads, Once(Work(lambda: None)))
    """
    ended = python(script)
    assert ended.stdout == "done\n", ended.stderr
