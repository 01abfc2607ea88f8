"""The cache's directory: what it takes in, and what it gives up, with all processes of a machine at it."""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random
from stat import S_ISDIR, S_IWOTH
from time import time
from typing import TYPE_CHECKING

from penstock.cache import files
from penstock.cache.entry import About, footer
from penstock.cache.evict import chosen, rank, ranked, soon, stale_after
from penstock.cache.ledger import WRITERS, Ledger, charge, grown
from penstock.errors import ConfigError
from penstock.waiting import Turn

if TYPE_CHECKING:
    from penstock.cache.evict import Candidate

__all__ = ["Disk"]

_LONGEST = 1 << 30  # of an entry: Linux reads and writes no more than 2 GiB at once
_SAMPLE = 64  # entries of which some go; of a directory with more, all are looked at
_USED = 4  # a fourth of them, before others are looked at
_ANEW = 1 / 16  # how often others are looked at for an entry that none of them yields to
_MISSED = 4096  # names of which it is known when they were missed
_ANY = -1.0  # below every rank
_SLACK = 256 << 10  # least bytes kept free for directories and files that are no entries


class Disk:
    """Entries by name in one directory. Thread-safe, and safe with any number of processes; all may raise ``OSError``.

    Attributes:
        root: The directory, which is the cache's own.

    """

    def __init__(self, root: str, size_bytes: int) -> None:
        """Take ``size_bytes`` of the disk at most, as ``du`` counts them; touch nothing yet."""
        self.root = root
        self._room = size_bytes - max(_SLACK, size_bytes >> 6)
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a forked child: locks and what is being written belong to the parent."""
        ledger: Ledger | None = getattr(self, "_shared", None)
        if ledger is not None:
            ledger.drop()
        self._shared: Ledger | None = None
        self._turn = Turn()
        self._ranking: list[tuple[float, Candidate]] = []  # what may go, the first to go first
        self._left = 0  # how many of them
        self._missed: dict[bytes, float] = {}  # when each was
        self._random = Random()  # noqa: S311  no secret: which misses a full cache takes in

    def ledger(self) -> Ledger:
        """Return what is shared, opened at first use; ``ConfigError`` where other users may write to the directory."""
        ledger = self._shared
        if ledger is None:
            with self._turn:
                if (ledger := self._shared) is None:
                    os.makedirs(self.root, mode=0o700, exist_ok=True)
                    self.check_owner()
                    ledger = self._shared = Ledger(self.root, self._count)
        return ledger

    def current(self) -> Ledger:
        """Return what is shared; opened anew where its files, or the directory, were removed."""
        if self._shared is not None and not self._shared.there():
            self.reopen()
        return self.ledger()

    def check_owner(self) -> None:
        """Refuse a directory that other users may write to: what they put there would be read as the store's."""
        found = os.stat(self.root, follow_symlinks=False)
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & S_IWOTH or not S_ISDIR(found.st_mode):
            raise ConfigError(f"other users may write to the cache in {self.root}: name a directory of your own")

    def check_place(self) -> None:
        """Refuse a place where no directory can be: ``ConfigError``. That there is none yet is no error."""
        try:
            found = os.stat(self.root)
        except NotADirectoryError:
            pass
        except OSError:
            return
        else:
            if S_ISDIR(found.st_mode):
                return
        raise ConfigError(f"{self.root} is no directory, or lies below a file: name a directory for the cache")

    def note_wait(self, waited_s: float) -> None:
        """Take note that an entry was used after so many seconds without."""
        if self._shared is not None:
            with suppress(OSError):  # a hit is one, whatever became of the cache's state
                self._shared.note_wait(waited_s, time())

    def draw(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def room_bytes(self) -> int:
        """Return how many bytes fit without giving anything up."""
        return max(0, self._room - self.ledger().used)

    def store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool) -> bool:
        """Write an entry, unless it is refused; says whether it was written, or is there by another's hand."""
        try:
            return self._store(name, data, what, replace=replace)
        except FileNotFoundError:  # the directory was removed
            self.reopen()
            return self._store(name, data, what, replace=replace)

    def _store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool) -> bool:
        tail = footer(name, data, what, time())
        need = grown(len(data) + len(tail))
        ledger = self.ledger()
        order = self._order(name, ledger)
        full = ledger.used + need > self._room
        if need > min(self._room // 4, _LONGEST) or (full and not self._admits(order)):
            return False
        with ledger.locked():
            if ledger.used + need > self._room and not self._make_room(ledger, need, order):
                return False
            ledger.owe(need)
        aside = ledger.aside()
        try:
            found = files.write(aside, (data, tail))
            with ledger.locked():
                self._publish(ledger, aside, files.path_of(self.root, name), found, replace=replace)
                ledger.owe(-need)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            with suppress(OSError), ledger.locked():
                ledger.owe(-need)
            raise
        return True

    def _publish(self, ledger: Ledger, aside: str, path: str, found: os.stat_result, *, replace: bool) -> None:
        """Rename a file into place, within the lock; a longer one that is there stays."""
        old: os.stat_result | None = None
        with suppress(FileNotFoundError):
            old = os.stat(path, follow_symlinks=False)
        if old is not None and old.st_size >= found.st_size and not replace:
            os.unlink(aside)
            return
        folder = os.path.dirname(path)
        before = files.folder_bytes(folder)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        os.replace(aside, path)
        ledger.add(charge(found) + files.folder_bytes(folder) - before, 1)
        if old is not None:
            ledger.add(-charge(old), -1)

    def _order(self, name: bytes, ledger: Ledger) -> float:
        """Return the rank of an entry that was missed; below all others where it is missed again and again."""
        now_s = time()
        missed_s = self._missed.pop(name, 0.0)
        self._missed[name] = now_s
        if len(self._missed) > _MISSED:
            with suppress(StopIteration, KeyError, RuntimeError):  # another thread does the same
                del self._missed[next(iter(self._missed))]
        return _ANY if soon(now_s - missed_s, ledger.reuse(now_s)) else rank(name.hex())

    def _admits(self, order: float) -> bool:
        """Say whether a full cache may have something that yields to an entry of that rank."""
        ranking = self._ranking
        return self._left <= 0 or not ranking or order < ranking[0][0] or self.draw() < _ANEW

    def _make_room(self, ledger: Ledger, need: int, order: float) -> bool:
        """Remove what yields to an entry of that rank, within the lock; say whether ``need`` bytes fit then."""
        ledger.sweep()
        short = ledger.used + need - self._room
        if self._left <= 0 or not chosen(self._ranking, order, short):
            self._look(ledger, short)
        while (short := ledger.used + need - self._room) > 0:
            gone = chosen(self._ranking, order, short)
            if not gone:
                return False
            del self._ranking[: len(gone)]
            self._left -= len(gone)
            for each in gone:
                self._give_up(ledger, each)
        return True

    def _give_up(self, ledger: Ledger, each: Candidate) -> None:
        with suppress(FileNotFoundError):  # another process was faster
            if os.stat(each.path, follow_symlinks=False).st_mtime == each.used_s:  # else it was used meanwhile
                self._remove(ledger, each.path, each.size_bytes)

    def _look(self, ledger: Ledger, need: int) -> None:
        """Rank the entries of some directories, drawn at random."""
        shards = list(files.SHARDS)
        self._random.shuffle(shards)
        sample: list[Candidate] = []
        while shards and (len(sample) < _SAMPLE or sum(each.size_bytes for each in sample) < _USED * need):
            sample += files.candidates(self.root, shards.pop())
        if not shards and len(sample) < ledger.entries:
            ledger.count()  # it has less than was thought
        now_s = time()
        self._ranking = ranked(sample, now_s, stale_after(ledger.reuse(now_s)))
        self._left = max(1, len(sample) // _USED)

    def _remove(self, ledger: Ledger, path: str, size_bytes: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
            ledger.add(-size_bytes, -1)

    def discard(self, path: str) -> int:
        """Remove an entry; returns what it took of the disk, 0 where there is none."""
        ledger = self.current()
        with ledger.locked():
            try:
                size_bytes = charge(os.stat(path, follow_symlinks=False))
            except FileNotFoundError:
                return 0
            self._remove(ledger, path, size_bytes)
            return size_bytes

    def count(self) -> None:
        """Count anew what is there."""
        ledger = self.current()
        with ledger.locked():
            ledger.count()

    def _count(self) -> tuple[int, int]:
        used = entries = 0
        for shard in files.SHARDS:
            used += files.folder_bytes(f"{self.root}/{shard}")
            for each in files.candidates(self.root, shard):
                used, entries = used + each.size_bytes, entries + 1
        return used, entries

    def dismantle(self) -> None:
        """Remove the directories, where no other process writes and no entry is there."""
        ledger = self.current()
        with ledger.locked():
            for shard in files.SHARDS:
                folder = f"{self.root}/{shard}"
                took = files.folder_bytes(folder)
                with suppress(OSError):  # it is not there, or not empty
                    os.rmdir(folder)
                    ledger.add(-took)
            if ledger.alone() and set(os.listdir(self.root)) <= {WRITERS, "lock", "state"}:
                ledger.remove()
                os.rmdir(self.root)
        if not os.path.isdir(self.root):
            self.reopen()

    def reopen(self) -> None:
        """Look at the directory anew at the next use."""
        ledger, self._shared = self._shared, None
        if ledger is not None:
            ledger.close()

    def close(self) -> None:
        """Tell the others that this process writes no more; the next use begins anew."""
        if self._shared is not None:
            self._shared.leave()
            self.reopen()
