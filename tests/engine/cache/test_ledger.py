"""What processes know together, and what is left of it when one of them is killed."""

import gc
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.engine.cache import files, tiers
from penstock.engine.cache.disk import Disk
from penstock.engine.cache.ledger import Folder, Ledger, bound_disk_use, charge
from tests.children import forked, in_child
from tests.engine.cache.entries import MIB, cache_in, content, du, held, keep, name

FILE = 4096  # of each process that writes


def _ledger(tmp_path):
    return Ledger(Folder(str(tmp_path)), lambda _folder, part: ((100, 0), (400, 1), (500, 0))[part], 3)


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
    for call in ("pread", "pwrite", "fstat"):
        made = getattr(os, call)
        monkeypatch.setattr(os, call, lambda *given, made=made, call=call: (calls.append(call), made(*given))[1])
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


# -- A recount is made in slices, and whatever happens between two of them is counted once --


def _slices_of_one(monkeypatch):
    """Let each section count one slice; return the numbers of entries that each of them has seen."""
    seen = []
    monkeypatch.setattr("penstock.engine.cache.ledger._SLICE_S", 0.0)
    counted, taken = Disk._count_shard, Ledger._take

    def count(folder, number):
        found = counted(folder, number)
        seen[-1] += found[1]
        return found

    monkeypatch.setattr(Disk, "_count_shard", staticmethod(count))
    monkeypatch.setattr(Ledger, "_take", lambda self: (seen.append(0), taken(self))[1])
    return seen


def _die_within_the_lock(tmp_path):
    def child():
        with cache_in(tmp_path)._disk.ledger().locked():
            os.kill(os.getpid(), signal.SIGKILL)

    with forked(child) as status:
        assert status() == -signal.SIGKILL


def test_no_section_of_the_lock_recounts_more_than_a_slice(tmp_path, monkeypatch):
    seen = _slices_of_one(monkeypatch)
    most = []
    for count in (100, 1000):
        cache = cache_in(tmp_path, 64 * MIB)
        for number in range(count):
            keep(cache, f"{number}")
        _die_within_the_lock(tmp_path)
        seen.clear()
        found = cache.usage()
        assert found.entries == sum(seen) == count
        assert len(seen) >= 256
        most.append(max(seen))
    assert most[0] < 10
    assert most[1] < 20, "of 1000 entries, a slice has four"


@pytest.mark.parametrize(
    "harm", [_die_within_the_lock, lambda path: (path / "penstock-cache-1" / "state").write_bytes(b"")]
)
def test_changes_between_the_slices_of_a_recount_are_counted_once(tmp_path, monkeypatch, seed, harm):
    random = Random(seed)
    cache = cache_in(tmp_path, 64 * MIB)
    for number in range(300):
        keep(cache, f"{number}", random.randrange(1, 20_000))
    _slices_of_one(monkeypatch)
    harm(tmp_path)
    ledger = cache._disk.ledger()
    for number in range(40):
        keep(cache, f"{random.randrange(600)}", random.randrange(1, 20_000))
        path = files.path_of(name(f"{random.randrange(300)}"))
        cache._disk.discard(path)
        assert ledger.used >= sum(charge(each.stat()) for each in (tmp_path / "penstock-cache-1").glob("??/*"))
        if number == 20:
            _die_within_the_lock(tmp_path)
    found = cache.usage()
    with ledger.locked():
        ledger.count()
    assert (found.stored_bytes, found.entries) == (ledger.used, ledger.entries)


def test_an_unknown_count_that_a_killed_process_began_stays_unknown(tmp_path, monkeypatch):
    cache = cache_in(tmp_path)
    for number in range(50):
        keep(cache, f"{number}")
    before = cache.usage()
    (tmp_path / "penstock-cache-1" / "state").write_bytes(b"")

    def child():
        disk = Disk(cache._disk.root, 8 * MIB)
        ends = iter([False] * 100)

        def count(folder, number):
            if next(ends, True):
                os.kill(os.getpid(), signal.SIGKILL)
            return counted(folder, number)

        counted = Disk._count_shard
        monkeypatch.setattr(Disk, "_count_shard", staticmethod(count))
        with disk.ledger().locked():
            pass

    with forked(child) as status:
        assert status() == -signal.SIGKILL
    _slices_of_one(monkeypatch)
    ledger = cache._disk.ledger()
    with ledger.locked():
        assert not ledger.counting
        assert (ledger.used, ledger.entries) == (before.stored_bytes, before.entries)


def test_an_entry_whose_publication_was_interrupted_stays_reserved_until_it_is_counted(tmp_path, monkeypatch):
    cache = cache_in(tmp_path, 64 * MIB)
    keep(cache, "a")
    replaced = os.replace

    def interrupt(*given, **places):
        replaced(*given, **places)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    _slices_of_one(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        keep(cache, "b", MIB)
    monkeypatch.setattr(os, "replace", replaced)
    ledger = cache._disk.ledger()
    assert ledger.counting
    assert ledger.used >= du(tmp_path / "penstock-cache-1") - 64 * 1024
    found = cache.usage()
    assert found.entries == 2
    with ledger.locked():
        ledger.count()
    assert found.stored_bytes - FILE <= ledger.used <= found.stored_bytes + MIB + 3 * FILE
    with ledger.locked():
        assert ledger.used <= MIB + 20 * FILE, "the reservation was released"


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
