"""Hooks run where they should, in their order, and one that breaks costs nothing else."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from penstock.events import (
    at_end,
    begin,
    carry,
    context,
    context_of,
    enter,
    list_restores,
    restore_and_make,
    when_fetching,
)
from penstock.events import listeners as room
from tests.children import python


@pytest.fixture(autouse=True)
def _no_hook_is_left():
    before = [dict(each) for each in (room._carried, room._starting, room._ending, room._contexts)]
    yield
    assert [room._carried, room._starting, room._ending, room._contexts] == before


def broken(*_):
    raise AttributeError("another version of telemetry")


def test_nothing_is_carried_but_to_a_process_that_is_being_spawned():
    stop = carry(lambda: print)
    try:
        assert list_restores() == ()
    finally:
        stop()
    stop()


class Parcel:
    """Unpickled, it is what ``restore_and_make`` makes of it."""

    def __reduce__(self):
        return restore_and_make, (list_restores(), list, "ab")


def tell(queue, parcel, pickled):
    queue.put((parcel, pickle.loads(pickled), told))


told: list[str] = []


def restore():
    told.append("restored")


def test_only_objects_pickled_for_a_spawned_process_carry_restore_hooks():
    stops = [carry(lambda: broken), carry(lambda: restore)]
    spawning = multiprocessing.get_context("spawn")
    queue = spawning.SimpleQueue()
    try:
        child = spawning.Process(target=tell, args=(queue, Parcel(), pickle.dumps(Parcel())))
        child.start()
    finally:
        for stop in stops:
            stop()
    assert queue.get() == (["a", "b"], ["a", "b"], ["restored"])
    child.join()
    assert child.exitcode == 0


def test_begin_calls_registered_hooks_despite_a_failing_hook():
    begun = []
    stops = [when_fetching(broken), when_fetching(lambda: begun.append(1))]
    begin()
    for stop in stops:
        stop()
    begin()
    assert begun == [1]


def test_a_context_is_read_and_entered_where_somebody_has_one():
    assert context() == b""
    entered = []
    stop = context_of(lambda: b"x" * 100, entered.append)
    assert context() == b"x" * 64
    enter(b"there")
    stop()
    stop = context_of(broken, print)
    stop()
    stop = context_of(lambda: b"", entered.append)  # one that comes late
    stop()
    room._entered.clear()
    stop = context_of(broken, broken)
    assert context() == b""
    enter(b"ignored")
    stop()
    assert entered == [b"there", b"there"]
    room._entered.clear()


def test_the_end_comes_after_the_last_event():
    script = """
        import penstock as ps
        from penstock.events import at_end, subscribe, operation
        scope = operation("read", str, "never heard")
        at_end(lambda: print("end"))
        at_end(lambda: 1 / 0)
        stop = at_end(lambda: print("not this one"))
        stop()
        subscribe(lambda event: print(type(event).__name__))
        scope = operation("read", str, "file:///x")
    """
    assert python(script).stdout.split() == ["OperationStarted", "OperationEnded", "end"]


def test_a_hook_is_ended_by_its_function():
    at_end(broken)()
