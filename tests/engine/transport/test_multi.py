"""A set of transfers moves them all on one thread, tells each end once, and wakes whenever it is told to."""

import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from penstock.engine.contracts.exchange import Request
from penstock.engine.transport.easy import Easy
from penstock.engine.transport.libcurl import OK
from penstock.engine.transport.loop import MissingMulti, Multi
from penstock.errors import Bug, Unreachable
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted
from tests.engine.transport.calls import WAIT_S, Gate, hello

REFUSED = 7  # CURLE_COULDNT_CONNECT


@contextmanager
def _loaded(url):
    """Yield a transfer that is loaded with a GET."""
    easy = Easy(TransportOptions())
    easy.load(Request("GET", url), fresh=False)
    yield easy
    easy.unload()
    easy.close()


def _ended(multi, count):
    """Move transfers until so many have ended."""
    ended, until = [], time.monotonic() + WAIT_S
    while len(ended) < count:
        assert time.monotonic() < until, "a transfer never ended"
        assert multi.perform()
        ended += multi.finished()
        assert multi.poll(0 if len(ended) == count else 10)
    return ended


def test_each_finished_transfer_is_reported_once_with_its_result_code():
    multi = Multi(4)
    with Scripted(hello) as server, ExitStack() as held:
        good = [held.enter_context(_loaded(server.url)) for _ in range(3)]
        bad = held.enter_context(_loaded("http://127.0.0.1:1"))
        for easy in (*good, bad):
            multi.add(easy)
        ended = _ended(multi, 4)
        assert sorted(ended) == sorted([*((easy.pointer, OK) for easy in good), (bad.pointer, REFUSED)])
        assert multi.finished() == []
        for easy in (*good, bad):
            multi.remove(easy)


def test_removed_unfinished_transfer_is_never_reported_and_others_complete():
    multi, gate = Multi(4), Gate()
    with Scripted(gate) as slow, Scripted(hello) as quick, _loaded(slow.url) as held, _loaded(quick.url) as other:
        multi.add(held)
        while not gate.asked.acquire(blocking=False):
            assert multi.perform()
            assert multi.poll(1)
        multi.remove(held, unfinished=True)
        gate.opened.set()
        multi.add(other)
        assert _ended(multi, 1) == [(other.pointer, OK)]
        multi.remove(other)


def test_a_transfer_that_is_added_twice_is_a_bug_that_names_the_call():
    multi = Multi(4)
    with _loaded("http://127.0.0.1:1") as easy:
        multi.add(easy)
        with pytest.raises(Bug, match="curl_multi_add_handle"):
            multi.add(easy)
        multi.remove(easy, unfinished=True)


@pytest.mark.parametrize("first", ["wakeup", "poll"])
def test_a_wakeup_ends_the_poll_that_waits_or_the_next_one(first):
    multi = Multi(4)
    if first == "wakeup":
        assert multi.wakeup()
    else:
        threading.Thread(target=multi.wakeup).start()
    began = time.monotonic()
    assert multi.poll(WAIT_S * 1000)
    assert time.monotonic() - began < WAIT_S / 2


def test_missing_multi_handle_raises_unreachable_with_its_cause_on_add():
    cause, missing = OSError("no descriptor"), Unreachable("cannot make connections")
    missing.__cause__ = cause
    multi = MissingMulti(missing)
    with _loaded("http://127.0.0.1:1") as easy, pytest.raises(Unreachable, match="make connections") as raised:
        multi.add(easy)
    assert raised.value is not missing, "each operation completes its own"
    assert raised.value.__cause__ is cause
    multi.keep(3)
    assert (multi.perform(), multi.finished()) == (True, [])
