"""Connections are closed when they rest too long or are too many, and never while one of them carries a call."""

from __future__ import annotations

import pytest

from penstock.engine.transport.session import KEPT, Connections, Handles
from penstock.options import TransportOptions


class _Noted(Handles):
    """Handles of which so many carry a call and so many none, that note how they ended."""

    def __init__(self, active=0, free=0, used_s=0.0):
        super().__init__(TransportOptions(idle_s=10.0))
        self.active, self.free, self.used_s, self.end = active, [None] * free, used_s, ""

    def close(self):
        self.end = "closed"

    def abandon(self):
        self.end = "abandoned"


def _held(*all_handles):
    connections = Connections()
    for handles in all_handles:
        connections.hold(handles)
    return connections


def test_long_idle_connection_is_closed_unless_it_carries_a_call():
    old, busy, recent = _Noted(free=1), _Noted(active=1), _Noted(free=1, used_s=5.0)
    connections = _held(old, busy, recent)
    connections.tidy(10.5)
    assert [each.end for each in (old, busy, recent)] == ["closed", "", ""]
    assert not connections.untidy(11.0)
    assert connections.untidy(11.6)


def test_connections_of_a_discarded_session_are_closed_at_next_tidy():
    left = _Noted(free=2, used_s=5.0)
    connections = _held(left)
    connections.tidy(6.0)
    connections.discarded.append(left)
    assert connections.untidy(6.0)
    connections.tidy(6.0)
    assert left.end == "closed"
    assert not connections.discarded


def test_the_longest_unused_make_room_for_the_others():
    busy, older, newer = _Noted(active=3), _Noted(free=3, used_s=1.0), _Noted(free=3, used_s=2.0)
    connections = _held(busy, newer, older)
    assert connections.make_room(6) == 6
    assert [each.end for each in (busy, older, newer)] == ["", "closed", ""]
    assert not connections.crowded


@pytest.mark.parametrize(("most", "kept"), [(4, 3), (1, 1), (4 * KEPT, KEPT)])
def test_each_store_keeps_a_share_of_half_as_many_again_where_all_are_busy(most, kept):
    connections = _held(_Noted(active=4 * KEPT), _Noted(active=4 * KEPT))
    assert connections.make_room(most) == kept
    assert connections.crowded


def test_connections_are_closed_once_and_those_of_another_process_s_descriptors_never():
    once, all_of_them, lost = _Noted(free=1), _Noted(free=1), _Noted(free=1)
    connections = _held(once, all_of_them)
    connections.close(once)
    once.end = ""
    connections.close(once)
    connections.close_all()
    assert (once.end, all_of_them.end) == ("", "closed")
    connections = _held(lost)
    connections.abandon()
    connections.close_all()
    assert lost.end == "abandoned"
