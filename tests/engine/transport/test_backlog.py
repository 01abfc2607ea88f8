"""Calls wait in the order they came, the delayed ones until their time, and any of them can be called off."""

from __future__ import annotations

import pytest

from penstock.engine.transport.loop import Backlog
from penstock.engine.transport.session import Session
from penstock.options import TransportOptions
from tests.engine.transport.calls import mailbox


@pytest.fixture
def sessions():
    box = mailbox()
    return [Session(box, TransportOptions()) for _ in range(2)]


def test_calls_are_ready_in_the_order_they_came_and_sessions_in_theirs(sessions):
    one, other = sessions
    backlog = Backlog()
    backlog.add(other, ["a"])
    backlog.add(one, ["b", "c"])
    backlog.add(other, ["d"])
    assert [*backlog.sessions] == [other, one]
    assert ([*other.ready], [*one.ready]) == ([("a", False), ("d", False)], [("b", False), ("c", False)])


def test_delayed_calls_are_ready_when_their_time_has_come(sessions):
    one, other = sessions
    backlog = Backlog()
    assert backlog.next_at() is None
    backlog.delay(3.0, one, "late", fresh=False)
    backlog.delay(1.0, one, "soon", fresh=True)
    backlog.delay(1.0, other, "soon, too", fresh=False)
    assert backlog.next_at() == 1.0
    backlog.take_due(0.9)
    assert not backlog.sessions
    backlog.take_due(1.0)
    assert [*backlog.sessions] == [one, other]
    assert ([*one.ready], [*other.ready]) == ([("soon", True)], [("soon, too", False)])
    assert backlog.next_at() == 3.0


def test_chosen_calls_are_taken_out_wherever_they_wait(sessions):
    one, other = sessions
    backlog = Backlog()
    backlog.add(one, ["ready", "spared"])
    backlog.delay(1.0, one, "delayed", fresh=False)
    backlog.delay(2.0, other, "spared later", fresh=False)
    other.ready.append(("in no turn", False))
    chosen = {"ready", "delayed", "in no turn"}
    ended = backlog.call_off(lambda _session, call: call in chosen, [other])
    assert sorted(ended, key=lambda each: each[1]) == [(one, "delayed"), (other, "in no turn"), (one, "ready")]
    assert backlog.operations() == ["spared later", "spared"]
    assert not other.ready
