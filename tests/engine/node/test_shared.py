"""Processes see one another through the file, however they end; and none of them ever waits for another."""

from __future__ import annotations

import os
import random
import shutil
import signal
from time import monotonic

import pytest

from penstock.engine.node.member import FILE, Shared
from penstock.engine.node.table import MEMBERS, SIZE, ProcessRow, member_at
from penstock.errors import ConfigError
from tests.engine.node.process import processes

LATER_S = 60.0  # no row is fresh then: only locks tell which process lives


@pytest.fixture
def where(tmp_path):
    return tmp_path / "node"


@pytest.fixture
def shared(where):
    shared = Shared(where)
    yield shared
    shared.close()


def test_processes_see_one_another(where):
    with processes(where, 2) as (first, second):
        assert first.ask("meet") == []
        assert second.ask("meet") == [first.pid]
        assert first.ask("meet", LATER_S) == [second.pid]


def test_a_killed_process_is_gone(where):
    with processes(where, 3) as (first, second, third):
        for each in (first, second, third):
            each.ask("meet")
        second.kill()
        assert first.ask("meet") == sorted([second.pid, third.pid])  # its row is fresh
        assert first.ask("meet", LATER_S) == [third.pid]
        assert third.ask("meet") == [first.pid]  # and was emptied


def test_a_process_that_is_stopped_lives(where):
    with processes(where, 2) as (first, second):
        second.ask("meet")
        os.kill(second.pid, signal.SIGSTOP)
        assert first.ask("meet", LATER_S) == [second.pid]
        os.kill(second.pid, signal.SIGCONT)
        assert second.ask("meet", LATER_S) == [first.pid]


def test_no_process_waits_for_one_that_is_stopped_in_the_midst(where, shared):
    with processes(where, 1) as (first,):
        first.ask("meet")
        assert first.ask("hold") is True
        os.kill(first.pid, signal.SIGSTOP)
        with shared.locked() as within:
            assert not within
        os.kill(first.pid, signal.SIGKILL)
        first.child.wait()
        with shared.locked() as within:
            assert within
            assert shared.living(shared.read(), monotonic() + LATER_S) == {}


def test_forked_child_joins_as_separate_member_and_exit_keeps_parent_joined(where):
    with processes(where, 2) as (first, second):
        first.ask("meet")
        assert first.ask("fork") == [first.pid]
        assert second.ask("meet", LATER_S) == [first.pid]  # the child is gone, its parent is not


def test_random_kills_leave_exactly_the_living(where, seed):
    draw = random.Random(seed)
    with processes(where, 6) as started:
        living = list(started)
        for each in started:
            each.ask("meet")
        while len(living) > 1:
            victim = living.pop(draw.randrange(len(living)))
            victim.tell("meet")  # it may die in the midst of that
            victim.kill()
            for each in living:
                assert each.ask("meet", LATER_S) == sorted(other.pid for other in living if other is not each)


def test_places_run_out_and_come_back(where, shared):
    with processes(where, 1) as (first,):
        first.ask("meet")
        now = monotonic()
        with shared.locked():
            rows = {place: ProcessRow(nonce=1, seen_at=now) for place in range(MEMBERS)}
            assert not shared.write(ProcessRow(seen_at=now), rows)
            assert shared.write(ProcessRow(seen_at=now), {})
        assert first.ask("meet", LATER_S) == [os.getpid()]


def test_a_file_that_was_removed_is_noticed(where, shared):
    assert shared.there()
    shutil.rmtree(where)
    assert not shared.there()
    other = Shared(where)
    assert not shared.there()
    shared.close()
    assert other.there()
    other.close()


def test_descriptors_that_were_closed_under_it_are_not_touched(shared, tmp_path):
    with (tmp_path / "another").open("wb") as another:
        number = shared._descriptor
        os.dup2(another.fileno(), number)
        assert not shared.there()
        with pytest.raises(OSError, match="closed its files"), shared.locked():
            pass
        shared.close()
        os.close(number)  # it is open still, and nothing was written to it
    assert (tmp_path / "another").read_bytes() == b""


@pytest.mark.parametrize("content", [b"x" * SIZE, b"short", bytes(SIZE)])
def test_a_file_that_is_not_penstocks_is_refused(where, shared, content):
    (where / FILE).write_bytes(content)
    with shared.locked(), pytest.raises(ConfigError, match="remove it"):
        shared.read()


@pytest.mark.parametrize("size", [0, 1, 20, 64, 4096, SIZE - 1])
def test_a_file_that_is_truncated_meanwhile_is_begun_again(where, shared, size):
    with shared.locked():
        shared.write(ProcessRow(seen_at=1.0), shared.living(shared.read(), 1.0))
        os.truncate(where / FILE, size)
        assert shared.read().rows == {}
    assert (where / FILE).stat().st_size == SIZE
    assert member_at(MEMBERS - 1) < SIZE
