"""A region is one piece of memory for a process and its workers, and leaves nothing behind."""

import multiprocessing
import pickle
import signal
import sys
from pathlib import Path

import pytest

from penstock.data.region import Region, Slot


def _travelled(thing):
    return pickle.loads(pickle.dumps(thing))


def _answer(region, pipe):
    seen = bytes(region.view)
    region.view[0] = 42
    pipe.send(seen)


@pytest.mark.parametrize("kind", [Region, Slot])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_region_writes_are_shared_between_parent_and_worker(method, kind):
    region = kind(5)
    region.view[:] = b"hello"
    processes = multiprocessing.get_context(method)
    here, there = processes.Pipe()
    worker = processes.Process(target=_answer, args=(region, there))
    worker.start()
    assert here.poll(60)
    assert here.recv() == b"hello"
    worker.join()
    assert bytes(region.view) == b"*ello"


def _count(region, together):
    together.wait(60)
    for _ in range(5000):
        with region.locked():
            region.view[:8] = (int.from_bytes(region.view[:8], "little") + 1).to_bytes(8, "little")


@pytest.mark.parametrize("kind", [Region, Slot])
def test_processes_take_turns_within_the_lock(kind):
    region = kind(8)
    processes = multiprocessing.get_context("spawn")
    together = processes.Barrier(3)
    workers = [processes.Process(target=_count, args=(region, together)) for _ in range(2)]
    for worker in workers:
        worker.start()
    _count(region, together)
    for worker in workers:
        worker.join()
    assert int.from_bytes(region.view, "little") == 15_000


def _hold(region, pipe):
    with region.locked():
        pipe.send("locked")
        signal.pause()


def test_a_killed_process_lets_go_of_the_lock():
    region = Region(8)
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    worker = processes.Process(target=_hold, args=(region, there))
    worker.start()
    assert here.poll(60)
    here.recv()
    worker.kill()
    with region.locked():
        worker.join()


def test_pickling_outside_process_start_makes_an_independent_copy():
    region = Region(3)
    copy = _travelled(region)
    copy.view[:] = b"abc"
    assert bytes(region.view) == b"\0\0\0"
    assert bytes(copy.view) == b"abc"


def test_nothing_is_a_region_too():
    assert bytes(_travelled(Region(0)).view) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_region_is_an_unlinked_memfd_closed_on_deletion():
    region = Region(1 << 20)
    descriptor = Path(f"/proc/self/fd/{region._descriptor}")
    assert str(descriptor.readlink()) == "/memfd:penstock (deleted)"
    del region
    assert not descriptor.is_symlink()


def test_a_view_keeps_the_memory_alive():
    view = Region(4).view
    view[:] = b"safe"
    assert bytes(view) == b"safe"


def test_slots_are_apart_and_zero_at_first_and_a_copy_is_another():
    slots = [Slot(size) for size in (1, 100, 1 << 19, 1 << 19, 1 << 21)]
    for number, slot in enumerate(slots, 1):
        assert not any(slot.view[:100])
        slot.view[:] = bytes([number]) * len(slot.view)
    assert [set(slot.view) for slot in slots] == [{1}, {2}, {3}, {4}, {5}]
    copy = _travelled(slots[1])
    copy.view[:] = bytes(100)
    assert set(slots[1].view) == {2}


def _fill(slot, pipe):
    own = Slot(8)
    own.view[:] = b"children"
    pipe.send(bytes(slot.view))


def test_slots_allocated_in_a_forked_child_do_not_alias_parent_slots():
    slot = Slot(8)
    processes = multiprocessing.get_context("fork")
    here, there = processes.Pipe()
    child = processes.Process(target=_fill, args=(slot, there))
    child.start()
    assert here.poll(60)
    after = Slot(8)
    child.join()
    assert bytes(slot.view) == bytes(after.view) == here.recv() == bytes(8)


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc says is open")
def test_slots_cost_a_descriptor_for_many():
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [Slot(2000) for _ in range(300)]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    assert len(kept) == 300
