"""The bound holds however entries come and go, and what processes leave behind when they are killed is found."""

import errno
import fcntl
import os
import signal
from time import time

import pytest

from penstock.engine.cache import files
from penstock.engine.cache.disk import Disk
from penstock.engine.cache.entry import About
from penstock.engine.cache.ledger import Ledger
from tests.children import forked
from tests.engine.cache.entries import MIB, cache_in, content, du, held, keep, name


def test_the_bound_holds_after_each_entry(tmp_path):
    cache = cache_in(tmp_path, 4 * MIB)
    for number in range(400):
        keep(cache, f"{number}", 1 + number * 97 % 40_000)
        assert du(tmp_path) <= 4 * MIB
    assert du(tmp_path) > 2 * MIB, "it is of no use where it gives up more than it has to"
    found = cache.usage()
    assert found.stored_bytes <= 4 * MIB
    assert len([*cache.entries()]) == found.entries


def test_long_unused_entries_are_evicted_and_recent_ones_are_kept(tmp_path):
    cache = cache_in(tmp_path, 4 * MIB)
    cache._disk._random.seed(1)  # which entries are compared is drawn
    count = 0
    while cache._tiers.counts.refused == 0:
        keep(cache, f"{count}", 20_000)
        count += 1
    found = [*(tmp_path / "penstock-cache-1").glob("??/*")]
    for path in found:
        os.utime(path, (time() - 100,) * 2)
    here = [number for number in range(count) if held(cache, f"{number}")]
    assert len(here) == len(found), "all were hit, and are known to have waited"
    old, others = found[::2], found[1::2]
    for path in old:
        os.utime(path, (1.0, 1.0))
    for number in range(len(old)):
        keep(cache, f"new{number}", 20_000)
    assert sum(path.exists() for path in others) == len(others)
    assert sum(path.exists() for path in old) < len(old) / 2


def test_an_entry_that_would_take_a_quarter_of_the_cache_is_refused(tmp_path):
    cache = cache_in(tmp_path, 4 * MIB)
    assert not keep(cache, "large", MIB)
    assert cache._tiers.counts.refused == 1


def test_an_entry_that_linux_would_not_read_at_once_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engine.cache.disk._LONGEST", MIB)
    cache = cache_in(tmp_path)
    assert not keep(cache, "large", 2 * MIB)
    assert keep(cache, "small", MIB // 2)


def test_a_longer_entry_stays_and_a_shorter_one_is_replaced(tmp_path):
    disk = Disk(str(tmp_path / "own"), 4 * MIB)
    path, what = files.path_of(name("a")), About("s3://b/a", "e", 0)
    for data, left in [(b"12345" * 2000, 10_000), (b"1", 10_000), (b"1" * 20_000, 20_000)]:
        disk.store(name("a"), data, what, replace=False)
        assert len(files.read_all(disk.folder(), path, name("a"))) == left
    disk.store(name("a"), b"1", what, replace=True)
    assert files.read_all(disk.folder(), path, name("a")) == b"1"
    before = disk.ledger().used
    disk.count()
    assert disk.ledger().used == before, "what was counted on the way is what is there"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_a_write_breaks_nothing_and_gets_its_bytes_back(tmp_path, monkeypatch, code):
    cache = cache_in(tmp_path, 4 * MIB)
    keep(cache, "a")
    before = cache.usage().stored_bytes

    def refuse(_folder, path, _pieces):
        with open(tmp_path / "penstock-cache-1" / path, "wb") as file:
            file.write(b"half")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "write", refuse)
    assert not keep(cache, "b")
    monkeypatch.undo()
    assert not keep(cache, "b"), "for a while nothing is written"
    assert cache.usage().stored_bytes <= before
    assert held(cache, "a") == content("a")
    assert [path for path in (tmp_path / "penstock-cache-1" / "writers").iterdir() if "." in path.name] == []


def test_an_interrupt_while_an_entry_is_written_leaves_nothing(tmp_path, monkeypatch):
    cache = cache_in(tmp_path, 4 * MIB)
    keep(cache, "a")
    before = cache.usage().stored_bytes

    def interrupted(*_ignored):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keep(cache, "b")
    monkeypatch.undo()
    assert cache.usage().stored_bytes <= before
    assert keep(cache, "b")


def test_files_that_were_removed_by_hand_are_counted_when_room_is_needed(tmp_path):
    cache = cache_in(tmp_path, 4 * MIB)
    for number in range(150):
        keep(cache, f"{number}", 20_000)
    for path in (tmp_path / "penstock-cache-1").glob("??/*"):
        path.unlink()
    assert sum(keep(cache, f"again{number}", 20_000) for number in range(400)) > 100
    assert cache.usage().entries > 100


# -- The number of sections under the lock does not grow with entries, and few wait for it in vain --


def _sections(monkeypatch):
    taken, made = [], Ledger._take
    monkeypatch.setattr(Ledger, "_take", lambda self: (taken.append(1), made(self))[1])
    return taken


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_a_fill_of_a_cache_with_room_takes_one_section_under_the_lock(tmp_path, monkeypatch, count):
    cache = cache_in(tmp_path, 512 * MIB)
    keep(cache, "first")
    taken = _sections(monkeypatch)
    for number in range(count):
        assert keep(cache, f"{number}", 1 + number % 1000)
    assert len(taken) <= count + 1
    monkeypatch.undo()
    found = cache.usage()
    assert found.entries == count + 1
    with (ledger := cache._disk.ledger()).locked():
        ledger.count()
    assert ledger.used == found.stored_bytes, "no reservation is left"


def test_a_longer_entry_reserves_more_and_a_full_cache_keeps_no_reservation(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engine.cache.disk._SPARE_SHIFT", 3)
    cache = cache_in(tmp_path, 4 * MIB)
    ledger = cache._disk.ledger()
    assert keep(cache, "a", 1000)
    assert ledger.spares
    assert keep(cache, "b", 100_000)
    assert max(ledger.spares) > 100_000
    for number in range(400):
        keep(cache, f"{number}", 1 + number * 97 % 40_000)
        assert du(tmp_path) <= 4 * MIB
        assert ledger.used <= cache._disk._room
    assert cache._tiers.counts.refused
    assert cache.usage().stored_bytes > 2 * MIB


def test_a_process_that_is_killed_with_a_reservation_leaves_no_bytes_behind(tmp_path):
    cache = cache_in(tmp_path, 512 * MIB)
    keep(cache, "a")
    before = cache.usage()

    def child():
        mine = cache_in(tmp_path, 512 * MIB)
        keep(mine, "b")
        assert mine._disk.ledger().spares
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(child) as status:
        assert status() == -signal.SIGKILL
    cache._disk.ledger()._sweep_s = 0.0
    after = cache.usage()
    assert after.entries == 2
    assert after.stored_bytes - before.stored_bytes <= 2 * 4096 + len(content("b"))


def test_a_process_that_waits_for_the_lock_looks_ever_more_rarely(tmp_path, monkeypatch):
    cache, slept = cache_in(tmp_path), []
    keep(cache, "a")
    ledger = cache._disk.ledger()
    other = os.open(tmp_path / "penstock-cache-1" / "lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr("penstock.engine.cache.ledger.monotonic", lambda: sum(slept))
    monkeypatch.setattr("penstock.engine.cache.ledger.sleep", slept.append)
    with pytest.raises(TimeoutError), ledger.locked():
        pass
    os.close(other)
    assert len(slept) < 2600, "5 s in looks of 2 ms"
    assert slept[:3] == [0.0001, 0.0002, 0.0004]
