"""Objects in memory keep every promise of a driver, and a fork gets a copy of its own."""

import os
import threading
import uuid

from penstock.engine.transport.work import Threads
from penstock.stores.memory import driver as memory
from penstock.stores.memory.driver import MemoryDriver
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
