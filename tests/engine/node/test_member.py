"""A process takes its share of connections, memory and rates, whatever becomes of the others or of the directory."""

from __future__ import annotations

import gc
import os
import shutil
from math import inf
from time import monotonic

import pytest

from penstock.engine.budget import Budget
from penstock.engine.node import member as room
from penstock.engine.node.member import FILE, NodeMember, node_status
from penstock.engine.node.table import GroupCounts, ProcessRow
from penstock.options import NodeOptions
from penstock.source import open_source
from penstock.values import Span
from tests.engine.node.process import processes

STORE, GROUP = 11, 77


class Paced:
    """A store that counts what a test says."""

    store = STORE

    def __init__(self):
        self.told = {}
        self.rates = {}

    def counted(self):
        told, self.told = self.told, {}
        return told

    def bound(self, rates):
        self.rates = rates


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_NODE", str(tmp_path / "node"))
    return tmp_path / "node"


@pytest.fixture
def member():
    member = NodeMember()
    yield member
    member.forget()


class Clock:
    """Moves on by a tick with each look."""

    def __init__(self):
        self.now = monotonic()

    def tick(self, member, busy=0, *, full=False, after_s=0.25):
        self.now += after_s
        return member.tick(self.now, busy, full=full)


def test_without_a_store_nothing_is_opened(where, member):
    assert Clock().tick(member)[0] == inf
    assert not where.exists()


def test_single_process_gets_all_connections_and_the_full_budget(where, member):
    member.enter(paced := Paced(), NodeOptions(connections=100, ahead_bytes=1000))
    budget = member.hold(Budget(800, 8), NodeOptions())
    most, next_s = Clock().tick(member, 5)
    assert most == 100
    assert next_s > monotonic()
    assert budget.bytes_limit == 800
    assert paced.rates == {}
    assert member.status.directory == str(where)
    assert member.status.processes == ()


def test_connections_and_memory_are_shared_with_others(where, member):
    with processes(where, 1) as (other,):
        other.ask("row", {"connections": inf, "most_connections": 64, "size_bytes": 900, "most_bytes": 1e12})
        member.enter(_held := Paced(), NodeOptions(connections=1000, ahead_bytes=1000))
        first, second = (member.hold(Budget(450, 8), NodeOptions()) for _ in range(2))
        clock = Clock()
        assert clock.tick(member, 64, full=True)[0] == 32  # the strictest total counts
        assert member.status.processes == (other.pid,)
        assert first.bytes_limit == second.bytes_limit == 250
        third = member.hold(Budget(450, 8), NodeOptions())
        assert third.bytes_limit == 250  # at once, and what is fair a moment later
        clock.tick(member, 10)
        assert first.bytes_limit == second.bytes_limit == third.bytes_limit == 166
        other.kill()
        clock.tick(member, 10, after_s=60)
        assert member.status.processes == ()
        assert third.bytes_limit == 333
        del first, second
        gc.collect()
        clock.tick(member)
        assert third.bytes_limit == 450


def test_an_idle_process_leaves_its_part_to_others(where, member):
    with processes(where, 1) as (other,):
        other.ask("row", {"connections": 1.0, "most_connections": 100, "most_bytes": 1e12})
        member.enter(_held := Paced(), NodeOptions(connections=100))
        assert Clock().tick(member, 50, full=True)[0] == 99


def test_a_rate_that_another_process_learned_counts_here(where, member):
    with processes(where, 1) as (other,):
        other.ask("row", {"connections": 1.0, "most_connections": 100, "most_bytes": 1e12, "rates": [[GROUP, inf]]})
        member.enter(paced := Paced(), NodeOptions())
        member.enter(stranger := Paced(), NodeOptions())
        stranger.store = 12
        clock = Clock()
        clock.tick(member)
        other.ask("learned", GROUP, STORE, 200.0)
        clock.tick(member)
        assert paced.rates.keys() == {GROUP}
        assert stranger.rates == {}
        paced.told = {GROUP: GroupCounts(STORE, "", sent=3, waits=True)}
        clock.tick(member)
        assert paced.rates[GROUP] == pytest.approx(100, rel=0.05)
        [rate] = member.status.rates
        assert rate.share_per_s == paced.rates[GROUP]
        assert rate.per_s == pytest.approx(200, rel=0.05)


def learned(member, paced, clock):
    """Have a store refuse half of a hundred requests a second."""
    for _ in range(12):
        paced.told = {GROUP: GroupCounts(STORE, "reads of x", sent=25, refused=12, waits=True)}
        clock.tick(member)
    return paced.rates[GROUP]


@pytest.mark.parametrize("how", ["off", "refused", "missing", "relative"])
def test_without_a_directory_each_process_is_for_itself(where, member, monkeypatch, how):
    if how == "off":
        monkeypatch.setenv("PENSTOCK_NODE", "off")
    elif how == "refused":
        where.mkdir(mode=0o700)
        where.chmod(0o777)
    else:
        monkeypatch.setenv("PENSTOCK_NODE", str(where / "no" / "such") if how == "missing" else "node")
    member.enter(paced := Paced(), NodeOptions(connections=100))
    clock = Clock()
    assert clock.tick(member)[0] == 100
    assert 35 <= learned(member, paced, clock) <= 55  # 52 a second were accepted
    assert member.status.directory == ""
    assert member.status.reason


def test_the_rate_outlives_the_directory(where, member):
    member.enter(paced := Paced(), NodeOptions())
    clock = Clock()
    learned(member, paced, clock)
    shutil.rmtree(where)
    clock.tick(member, after_s=6)
    assert where.exists()  # it met others at a new one
    assert member.status.reason == ""
    learned(member, paced, clock)


def test_a_broken_file_is_left_and_tried_again(where, member):
    member.enter(_held := Paced(), NodeOptions())
    clock = Clock()
    clock.tick(member)
    (where / FILE).write_bytes(b"nonsense")
    clock.tick(member)
    assert "remove it" in member.status.reason
    (where / FILE).unlink()
    clock.tick(member, after_s=31)
    assert member.status.reason == ""
    assert member.status.directory == str(where)


def test_counts_are_kept_while_another_process_holds_the_shared_table(where, member):
    with processes(where, 1) as (other,):
        other.ask("meet")
        member.enter(paced := Paced(), NodeOptions())
        clock = Clock()
        clock.tick(member)
        assert other.ask("hold") is True
        paced.told = {GROUP: GroupCounts(STORE, "", sent=5, refused=4)}
        clock.tick(member)
        paced.told = {GROUP: GroupCounts(STORE, "reads of x", sent=5, refused=4)}
        clock.tick(member)
        assert member.status.rates == ()
        other.tell("go on")
        assert other.hear() == "left"
        clock.tick(member)
        assert [each.requests for each in member.status.rates] == ["reads of x"]
    [rate] = member._meet(member._shared, ProcessRow(seen_at=clock.now), clock.now)[1]
    assert rate.rate.refused == 8


def test_a_store_that_takes_no_part_asks_for_nothing(where, member):
    member.enter(_held := Paced(), NodeOptions(share=False))
    budget = member.hold(Budget(800, 8), NodeOptions(share=False))
    assert Clock().tick(member)[0] == inf
    assert budget.bytes_limit == 800
    assert not where.exists()


def test_garbage_collected_store_leaves_the_node_and_frees_its_share(where, member):
    clock = Clock()
    member.enter(paced := Paced(), NodeOptions(connections=7))
    assert clock.tick(member)[0] == 7
    with processes(where, 1) as (other,):
        assert other.ask("meet") == [os.getpid()]
        other.ask("row", {"size_bytes": 1e12, "most_connections": 7, "most_bytes": 1000})
        budget = member.hold(Budget(800, 8), NodeOptions())
        clock.tick(member)
        assert budget.bytes_limit == 500
        del paced
        gc.collect()
        assert clock.tick(member)[0] == inf
        assert budget.bytes_limit == 800
        assert other.ask("meet", 60.0) == []
        assert member.status.directory == ""
        member.enter(_again := Paced(), NodeOptions(connections=7))
        clock.tick(member)
        assert other.ask("meet") == [os.getpid()]


@pytest.mark.usefixtures("where")
def test_budgets_of_stores_without_a_network_are_forgotten(tmp_path):
    (tmp_path / "a").write_bytes(b"data")
    source, key = open_source(f"{tmp_path}/a")
    gc.collect()
    before = len(room.member._budgets)
    for _ in range(20):
        with source.lookahead(iter([Span(key, 0, 4)])) as ahead:
            assert [*ahead] == [b"data"]
    del ahead
    gc.collect()
    assert len(room.member._budgets) <= before


@pytest.mark.usefixtures("where")  # beside this process's own member, this one would be seen as another
def test_a_slow_directory_is_asked_seldom(member):
    member.enter(_held := Paced(), NodeOptions())
    now = monotonic() - 1.0  # a second ago: so long it took
    assert member.tick(now, 0, full=False)[1] >= now + 20


def test_a_forked_child_is_another_member(where):
    with processes(where, 2) as (first, second):
        assert first.ask("member") == []
        assert first.ask("fork_member") == [first.pid]
        assert second.ask("meet", 60.0) == [first.pid]


def test_the_status_needs_no_request():
    assert node_status().ahead_share <= 1.0
    assert os.getpid() not in node_status().processes
