"""The cache's directory: admission and eviction of entries, coordinated between all processes of a machine."""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random
from stat import S_ISDIR
from time import time
from typing import TYPE_CHECKING

from penstock.engine.cache import files
from penstock.engine.cache.entry import About, footer
from penstock.engine.cache.evict import choose_victims, rank, rank_candidates, soon, stale_after
from penstock.engine.cache.ledger import WRITERS, Folder, Ledger, bound_disk_use, charge
from penstock.engine.waiting import Turn
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.engine.cache.evict import Candidate

# Largest entry: Linux reads and writes at most 2 GiB in one call.
_LONGEST = 1 << 30
# Least number of candidates in a sample. Every shard in the sample is listed completely.
_SAMPLE = 64
# A sample holds at least 4 times the bytes needed, and is discarded after 1/4 of its entries.
_USED = 4
# Probability of drawing a new sample for an entry that can replace no candidate of the current one.
_ANEW = 1 / 16
_MISSED = 4096  # missed names whose time is remembered
_ANY = -1.0  # below every rank
# A process keeps a reservation of up to 1/4096 of the cache from one write to the next.
_SPARE_SHIFT = 12
# Least bytes kept free for directories and for files that are not entries.
_SLACK = 256 << 10


class Disk:
    """Entries by name in one directory. Thread-safe and multi-process-safe; all methods may raise ``OSError``."""

    def __init__(self, root: str, size_bytes: int) -> None:
        """Limit the cache to ``size_bytes`` of disk, as ``du`` counts them; nothing on disk is touched yet."""
        self.root = root
        self._room = size_bytes - max(_SLACK, size_bytes >> 6)
        self.forget()

    def forget(self) -> None:
        """Reset all state in a forked child: locks and writes in progress belong to the parent."""
        ledger: Ledger | None = getattr(self, "_shared", None)
        if ledger is not None:
            ledger.drop()
        self._shared: Ledger | None = None
        self._folder: Folder | None = None
        self._turn = Turn()
        self._ranking: list[tuple[float, Candidate]] = []  # candidates, the first to be evicted first
        self._left = 0  # evictions left in this sample
        self._missed: dict[bytes, float] = {}  # time of the last miss by name
        self._random = Random()  # noqa: S311  not a secret: selects the misses that a full cache admits

    def ledger(self) -> Ledger:
        """Return the shared ledger, opened at first use; ``ConfigError`` if other users may write to the directory."""
        ledger = self._shared
        if ledger is None:
            with self._turn:
                if (ledger := self._shared) is None:
                    os.makedirs(self.root, mode=0o700, exist_ok=True)
                    ledger = self._shared = Ledger(self.folder(), self._count_shard, len(files.SHARDS))
        return ledger

    def current(self) -> Ledger:
        """Return the shared ledger, reopened if its files or the directory were removed."""
        if self._shared is not None and not self._shared.there():
            self.reopen()
        return self.ledger()

    def folder(self) -> Folder:
        """Return the directory, opened at first use and reopened after its removal. Raises the errors of ``Folder``."""
        folder = self._folder
        if folder is None or not folder.there():
            folder = self._folder = Folder(self.root)
        return folder

    def check_place(self) -> None:
        """Raise ``ConfigError`` if the path cannot be a directory; a missing directory is not an error."""
        try:
            found = os.stat(self.root)
        except NotADirectoryError:
            pass
        except OSError:
            return
        else:
            if S_ISDIR(found.st_mode):
                return
        raise ConfigError(f"{self.root} is not a directory, or is below a file: choose a directory for the cache")

    def note_wait(self, waited_s: float) -> None:
        if self._shared is not None:
            # The hit counts even if the shared state cannot be updated.
            with suppress(OSError):
                self._shared.note_wait(waited_s, time())

    def draw(self) -> float:
        return self._random.random()

    def room_bytes(self) -> int:
        return max(0, self._room - self.ledger().used)

    def store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool) -> bool:
        try:
            return self._store(name, data, what, replace=replace)
        except FileNotFoundError:  # the directory was removed
            self.reopen()
            return self._store(name, data, what, replace=replace)

    def _store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool) -> bool:
        tail = footer(name, data, what, what.asked_s or time())
        need = bound_disk_use(len(data) + len(tail))
        ledger = self.ledger()
        order = self._order(name, ledger)
        full = ledger.used + need > self._room
        if need > min(self._room // 4, _LONGEST) or (full and not self._admits(order)):
            return False
        held = self._reserve(ledger, need, order)
        if not held:
            return False
        aside, published, spare = ledger.aside(), False, False
        try:
            found = files.write(ledger.folder, aside, (data, tail))
            with ledger.locked():
                published = True
                self._publish(ledger, aside, files.path_of(name), found, replace=replace)
                spare = held <= self._room >> _SPARE_SHIFT and ledger.used <= self._room
                if not spare:
                    held, gone = 0, held
                    ledger.owe(-gone)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside, dir_fd=ledger.folder.descriptor)
            with suppress(OSError), ledger.locked():
                if published:
                    ledger.owe_until_counted(held)
                else:
                    ledger.owe(-held)
            raise
        if spare:
            ledger.spares.append(held)
        return True

    def _reserve(self, ledger: Ledger, need: int, order: float) -> int:
        """Return how many bytes were reserved for a write of ``need``, now or for an earlier one; 0 without room."""
        held = 0
        try:
            with suppress(IndexError):
                held = ledger.spares.pop()
            if held >= need:
                return held
            with ledger.locked():
                if ledger.used + need - held <= self._room or self._make_room(ledger, need - held, order):
                    ledger.owe(need - held)
                    return need
                held, gone = 0, held
                if gone:
                    ledger.owe(-gone)
                return 0
        except BaseException:
            if held:
                ledger.spares.append(held)
            raise

    def _publish(self, ledger: Ledger, aside: str, path: str, found: os.stat_result, *, replace: bool) -> None:
        """Rename a file into place, within the lock; without ``replace`` an existing file that is not smaller stays."""
        old: os.stat_result | None = None
        at = ledger.folder.descriptor
        with suppress(FileNotFoundError):
            old = os.stat(path, dir_fd=at, follow_symlinks=False)
        if old is not None and old.st_size >= found.st_size and not replace:
            os.unlink(aside, dir_fd=at)
            return
        shard = os.path.dirname(path)
        before = files.folder_bytes(ledger.folder, shard)
        with suppress(FileExistsError):
            os.mkdir(shard, 0o700, dir_fd=at)
        os.replace(aside, path, src_dir_fd=at, dst_dir_fd=at)
        part = files.SHARDS.index(shard)
        ledger.add(charge(found) + files.folder_bytes(ledger.folder, shard) - before, 1, part)
        if old is not None:
            ledger.add(-charge(old), -1, part)

    def _order(self, name: bytes, ledger: Ledger) -> float:
        """Return the rank of a missed entry; lowest if it is missed again soon after its last miss."""
        now_s = time()
        missed_s = self._missed.pop(name, 0.0)
        self._missed[name] = now_s
        if len(self._missed) > _MISSED:
            with suppress(StopIteration, KeyError, RuntimeError):  # another thread does the same
                del self._missed[next(iter(self._missed))]
        return _ANY if soon(now_s - missed_s, ledger.reuse(now_s)) else rank(name.hex())

    def _admits(self, order: float) -> bool:
        ranking = self._ranking
        return self._left <= 0 or not ranking or order < ranking[0][0] or self.draw() < _ANEW

    def _make_room(self, ledger: Ledger, need: int, order: float) -> bool:
        """Evict entries for a newcomer of rank ``order``, within the lock; return whether ``need`` bytes then fit."""
        ledger.sweep()
        short = ledger.used + need - self._room
        if self._left <= 0 or not choose_victims(self._ranking, order, short):
            self._look(ledger, short)
        while (short := ledger.used + need - self._room) > 0:
            gone = choose_victims(self._ranking, order, short)
            if not gone:
                return False
            del self._ranking[: len(gone)]
            self._left -= len(gone)
            for each in gone:
                self._give_up(ledger, each)
        return True

    def _give_up(self, ledger: Ledger, each: Candidate) -> None:
        with suppress(FileNotFoundError):  # another process was faster
            found = os.stat(each.path, dir_fd=ledger.folder.descriptor, follow_symlinks=False)
            if found.st_mtime == each.used_s:  # else it was used meanwhile
                self._remove(ledger, each.path, each.size_bytes)

    def _look(self, ledger: Ledger, need: int) -> None:
        """Rank the entries of some shards, drawn at random, as candidates for eviction."""
        shards = list(files.SHARDS)
        self._random.shuffle(shards)
        sample: list[Candidate] = []
        while shards and (len(sample) < _SAMPLE or sum(each.size_bytes for each in sample) < _USED * need):
            sample += files.candidates(ledger.folder, shards.pop())
        if not shards and len(sample) < ledger.entries:
            ledger.count()  # fewer entries than were recorded
        now_s = time()
        self._ranking = rank_candidates(sample, now_s, stale_after(ledger.reuse(now_s)))
        self._left = max(1, len(sample) // _USED)

    def _remove(self, ledger: Ledger, path: str, size_bytes: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path, dir_fd=ledger.folder.descriptor)
            ledger.add(-size_bytes, -1, files.SHARDS.index(os.path.dirname(path)))

    def discard(self, path: str) -> int:
        ledger = self.current()
        with ledger.locked():
            try:
                size_bytes = charge(os.stat(path, dir_fd=ledger.folder.descriptor, follow_symlinks=False))
            except FileNotFoundError:
                return 0
            self._remove(ledger, path, size_bytes)
            return size_bytes

    def count(self) -> None:
        self.current().finish(begin=True)

    @staticmethod
    def _count_shard(folder: Folder, number: int) -> tuple[int, int]:
        sizes = [each.size_bytes for each in files.candidates(folder, files.SHARDS[number])]
        return sum(sizes) + files.folder_bytes(folder, files.SHARDS[number]), len(sizes)

    def dismantle(self) -> None:
        """Remove empty shards, and the cache's directory if no entry is left and no other process writes."""
        ledger = self.current()
        with ledger.locked():
            for number, shard in enumerate(files.SHARDS):
                took = files.folder_bytes(ledger.folder, shard)
                with suppress(OSError):  # missing, or not empty
                    os.rmdir(shard, dir_fd=ledger.folder.descriptor)
                    ledger.add(-took, part=number)
            if ledger.alone() and set(os.listdir(ledger.folder.descriptor)) <= {WRITERS, "lock", "state"}:
                ledger.remove()
                # Another user may have put a directory in its place.
                with suppress(OSError):
                    os.rmdir(self.root)
        if not os.path.isdir(self.root):
            self.reopen()

    def reopen(self) -> None:
        ledger, self._shared, self._folder = self._shared, None, None
        if ledger is not None:
            ledger.close()

    def close(self) -> None:
        """Tell other processes that this one has stopped writing; the next use reopens the directory."""
        if self._shared is not None:
            self._shared.leave()
            self.reopen()
