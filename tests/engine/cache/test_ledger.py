"""What processes know together, and what is left of it when one of them is killed."""

import gc
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.engine.cache import tiers
from penstock.engine.cache.ledger import Folder, Ledger, bound_disk_use
from tests.children import forked, in_child
from tests.engine.cache.entries import MIB, cache_in, content, du, held, keep

FILE = 4096  # of each process that writes


def _ledger(tmp_path):
    return Ledger(Folder(str(tmp_path)), lambda _folder: (1000, 1))


@contextmanager
def _paused(work=lambda pause: pause()):
    """Run ``work`` in a forked child up to where it calls what it takes; it goes on, and ends well, after the block."""
    ready, go = os.pipe(), os.pipe()
    with forked(lambda: work(lambda: (os.write(ready[1], b"1"), os.read(go[0], 1)))) as status:
        os.read(ready[0], 1)
        yield
        os.write(go[1], b"1")
        assert status() == 0


def test_reservations_count_for_live_processes_and_are_dropped_for_dead_processes(tmp_path):
    ledger = _ledger(tmp_path)
    with ledger.locked():
        ledger.owe(500)
    assert ledger.used == 1500 + FILE

    def child(pause):
        ledger.close()
        mine = _ledger(tmp_path)
        with mine.locked():
            mine.owe(70)
        open(tmp_path / mine.aside(), "wb").close()
        pause()

    with _paused(child):
        with ledger.locked():
            ledger.count()
        assert ledger.used == 1570 + 2 * FILE
        assert len([*(tmp_path / "writers").iterdir()]) == 3
    with ledger.locked():
        ledger.sweep()
    assert ledger.used == 1500 + FILE
    assert len([*(tmp_path / "writers").iterdir()]) == 1
    with ledger.locked():
        assert ledger.alone()


def test_a_process_that_dies_within_the_lock_has_it_counted_anew(tmp_path):
    ledger = _ledger(tmp_path)
    with ledger.locked():
        pass

    def child():
        ledger.close()
        with (mine := _ledger(tmp_path)).locked():
            mine.add(10**9, 5)
            os.kill(os.getpid(), signal.SIGKILL)

    with forked(child) as status:
        assert status() != 0
    with ledger.locked():
        assert (ledger.used, ledger.entries) == (1000, 1)


def test_process_that_is_stopped_within_the_lock_keeps_no_other_waiting(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("penstock.engine.cache.ledger._PATIENCE_S", 0.1)
    cache = cache_in(tmp_path)
    keep(cache, "a")

    def child(pause):
        own = cache_in(tmp_path)
        keep(own, "b")
        with own._disk.ledger().locked():
            pause()

    with _paused(child):
        assert not keep(cache, "c"), "nothing is kept meanwhile"
        assert "holds the cache's lock" in caplog.text
        assert held(cache, "a") == content("a")
        with pytest.raises(TimeoutError):
            cache.usage()
    assert cache.usage().entries == 2


def test_an_exception_within_the_lock_has_it_counted_anew(tmp_path):
    ledger = _ledger(tmp_path)
    with pytest.raises(KeyboardInterrupt), ledger.locked():
        ledger.add(77)
        raise KeyboardInterrupt
    with ledger.locked():
        assert ledger.used == 1000


@pytest.mark.parametrize("damage", [b"", b"\xff" * 4096, b"x" * 10])
def test_damaged_state_is_counted_anew(tmp_path, damage):
    with _ledger(tmp_path).locked():
        pass
    (tmp_path / "state").write_bytes(damage)
    ledger = _ledger(tmp_path)
    with ledger.locked():
        assert (ledger.used, ledger.entries) == (1000, 1)
    assert 0 <= ledger.share <= 1


@pytest.mark.parametrize("left", [0, 50, 70, 4095])
def test_state_that_another_program_truncates_ends_no_process_and_is_counted_anew(tmp_path, left):
    """A mapped file that is cut ends its process with SIGBUS at the next look."""

    def child():
        ledger = _ledger(tmp_path)
        with ledger.locked():
            ledger.add(77, 5)
        os.truncate(tmp_path / "state", left)
        ledger.share = 0.5
        ledger.note_wait(100.0, 1000.0)
        assert ledger.used >= 0
        assert ledger.reuse(1000.0) >= 0
        assert 0 <= ledger.share <= 1
        with ledger.locked():
            assert (ledger.used, ledger.entries) == (1000, 1)
            os.truncate(tmp_path / "state", left)
            ledger.add(77)
        with ledger.locked():
            assert (ledger.used, ledger.entries) == (1000, 1)
        assert (tmp_path / "state").stat().st_size == 4096

    in_child(child)


def test_cache_keeps_working_after_its_state_file_is_truncated_or_removed(tmp_path):
    def child():
        cache = cache_in(tmp_path)
        state = tmp_path / "penstock-cache-1" / "state"
        for number, harm in enumerate((lambda: os.truncate(state, 0), state.unlink)):
            assert keep(cache, f"a{number}")
            harm()
            for _ in range(200):
                assert held(cache, f"a{number}") == content(f"a{number}")
                cache._tiers.note(hit=True)
            harmed = cache.usage()
            assert harmed.entries == 1 + 2 * number
            assert keep(cache, f"b{number}")
            assert cache.usage().entries == 2 + 2 * number
        assert cache.usage().stored_bytes >= du(tmp_path) - 64 * 1024

    in_child(child)


def test_the_words_of_a_hit_cost_three_calls_for_sixty_four(tmp_path, monkeypatch):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    calls = []
    for name in ("pread", "pwrite", "fstat"):
        made = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, made=made, name=name: (calls.append(name), made(*given))[1])
    for _ in range(64):
        cache._tiers.note(hit=True)
    assert calls == ["pread", "fstat", "pwrite"]


def test_a_ledger_keeps_no_descriptor_when_it_is_let_go(tmp_path):
    gc.collect()  # of what tests before have left
    before = len([*Path("/proc/self/fd").iterdir()])
    ledger = _ledger(tmp_path)
    with ledger.locked():
        ledger.owe(1)
    ledger.close()
    del ledger
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_lock_whose_directory_was_removed_is_refused(tmp_path):
    (tmp_path / "own").mkdir()
    ledger = _ledger(tmp_path / "own")
    (tmp_path / "own").rename(tmp_path / "other")
    (tmp_path / "other" / "lock").unlink()
    with pytest.raises(FileNotFoundError), ledger.locked():
        pass


def test_a_forked_child_does_not_hold_its_parents_locks(tmp_path, monkeypatch):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    monkeypatch.setitem(tiers._tiers, cache._tiers.options, cache._tiers)
    with _paused():
        cache.close()
        other = cache_in(tmp_path)
        keep(other, "b")
        assert other.clear().entries == 2
        assert [*tmp_path.iterdir()] == [], "the parent's locks ended with it"


def test_reservation_covers_file_size_plus_overhead():
    assert all(bound_disk_use(size) >= size + 8192 for size in (0, 1, 4095, 4096, 4097, MIB))


def test_two_processes_that_write_at_once_keep_one_count(tmp_path):
    cache = cache_in(tmp_path, 8 * MIB)

    def child():
        mine = cache_in(tmp_path, 8 * MIB)
        for number in range(60):
            keep(mine, f"child{number}")

    with forked(child) as status:
        for number in range(60):
            keep(cache, f"parent{number}")
        assert status() == 0
    keys = [f"{who}{number}" for who in ("child", "parent") for number in range(60)]
    assert all(held(cache, key) == content(key) for key in keys)
    before = cache.usage()
    cache.verify()
    assert cache.usage().stored_bytes == before.stored_bytes
    assert before.entries == 120
    assert du(tmp_path) <= before.stored_bytes + 64 * 1024
