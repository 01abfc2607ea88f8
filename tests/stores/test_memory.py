"""Objects in memory keep every promise of a driver, and a fork gets a copy of its own."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

from penstock.engine.transport.work import Threads
from penstock.errors import InvalidURL, NotFound
from penstock.source import open_source
from penstock.stores import memory
from penstock.stores.memory import MemoryDriver
from penstock.stores.urls import parse
from penstock.testing.drivers import Trial
from tests.children import forked


def test_sources_of_one_name_share_their_objects():
    name = uuid.uuid4().hex
    Trial(MemoryDriver(name), Threads()).put("key", b"bytes")
    assert Trial(MemoryDriver(name), Threads()).get("key") == b"bytes"
    assert Trial(MemoryDriver(uuid.uuid4().hex), Threads()).keys() == []


def test_trap_01_a_fork_while_another_thread_is_inside():
    entered, leave = threading.Event(), threading.Event()

    def inside():
        with memory._lock:
            entered.set()
            leave.wait(60)

    holder = threading.Thread(target=inside)
    holder.start()
    assert entered.wait(60)
    threading.Timer(0.2, leave.set).start()  # the fork waits for the lock; it cannot itself let go of it
    with forked(lambda: Trial(MemoryDriver("fork"), Threads()).put("key", b"child's")) as status:
        assert status() == 0
    holder.join()
    assert Trial(MemoryDriver("fork"), Threads()).keys() == []
    assert os.getpid()


# -- Each name is a set of objects of its own in this process --


def test_sets_of_different_names_do_not_see_one_another():
    one, other = (open_source(f"memory://{uuid.uuid4().hex}/")[0] for _ in range(2))
    one.put("key", b"bytes")
    assert one.head("key").size == 5
    with pytest.raises(NotFound):
        other.head("key")


def test_a_set_needs_a_name():
    with pytest.raises(InvalidURL, match="no bucket: write memory://bucket/key"):
        parse("memory:///key")
    assert not parse("memory://m/key").local
