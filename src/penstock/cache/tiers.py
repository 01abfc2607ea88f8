"""A cache: memory before a directory that all processes of a machine share. One for each directory in a process."""

from __future__ import annotations

import atexit
import logging
import os
from time import monotonic
from typing import TYPE_CHECKING

from penstock.cache import files
from penstock.cache.disk import Disk
from penstock.cache.entry import About, Footer, about
from penstock.cache.evict import share_after
from penstock.cache.ledger import charge
from penstock.cache.memory import Memory
from penstock.cache.survey import Cleared, Entry, Usage, Verified
from penstock.config.caching import cache_folder
from penstock.errors import ConfigError, Damaged
from penstock.events import count_cache
from penstock.options import CacheOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Cache", "open_cache"]

_LOG = logging.getLogger("penstock")
_OWN = "penstock-cache-1"  # the directory that is the cache's own, below the one that was named
_PAUSE_S = 30.0  # without the disk, after it refused something
_NOTE = 64  # reads after which the other processes hear of hits and misses


class Cache:
    """Entries by name. Nothing that goes wrong here breaks a read: the read is a miss then.

    Thread-safe, and safe with any number of processes that have the same directory; a forked child begins anew.

    Attributes:
        options: As they were given.
        counts: What this process did.

    """

    def __init__(self, options: CacheOptions) -> None:
        """Touch no disk yet. ``ConfigError``: no directory is known."""
        if not isinstance(options, CacheOptions):
            raise ConfigError(
                f"a cache is made from CacheOptions, not {options!r}; penstock.open_cache takes a directory"
            )
        self.options = options
        path = os.path.abspath(os.path.expanduser(options.path or cache_folder()))
        self._disk = Disk(os.path.join(path, _OWN), options.size_bytes)
        self._forget()

    def forget(self) -> None:
        """Begin anew, in a forked child: locks and what is being written belong to the parent."""
        self._disk.forget()
        self._forget()

    def _forget(self) -> None:
        self._memory = Memory(self.options.memory_bytes) if self.options.memory_bytes else None
        self._checked = False
        self._resume_s = 0.0
        self._noted = self._noted_hits = 0
        self.counts = count_cache(os.path.dirname(self._disk.root))

    @property
    def path(self) -> str:
        """The directory that all of it lies in."""
        return self._disk.root

    def read(
        self, name: bytes, low: int, high: int, into: memoryview | None = None, *, since_s: float = 0.0
    ) -> files.Hit | None:
        """Return bytes ``[low, high)`` of an entry, or fill ``into`` with them; None where there is no such entry.

        ``high`` may be ``files.WHOLE`` or ``files.EVERY``. An entry that was written before ``since_s`` (seconds since
        the epoch) does not count. ``ConfigError`` where other users may write to the directory.
        """
        memory = self._memory
        held = None if memory is None else memory.get(name)
        if held is None:
            held = self._from_disk(name, low, high, into)
            if held is None:
                return None
            if memory is not None and held.data is not None and low == 0 and len(held.data) == held.found.size_bytes:
                memory.put(name, held, self._disk.draw())
        elif held.data is not None:
            held = _cut(held.data, held.found, (low, high), into)
        return held if held.found.kept_s >= since_s else None

    def _from_disk(self, name: bytes, low: int, high: int, into: memoryview | None) -> files.Hit | None:
        path = files.path_of(self._disk.root, name)
        if not self._checked:
            self._check()
        try:
            hit = files.read(path, name, low, high, into)
        except Damaged:
            self.counts.damaged += 1
            _LOG.warning("an entry of the cache was damaged and is removed: %s", path)
            self._discard(path)
        except OSError:  # mostly: there is none
            pass
        else:
            if hit.waited_s:
                self._disk.note_wait(hit.waited_s)
            return hit
        return None

    def _check(self) -> None:
        try:
            self._disk.check_owner()
        except OSError:  # not there yet: opening it checks it then
            return
        self._checked = True

    def look(self, name: bytes) -> Footer | None:
        """Return what an entry says of itself; None where there is none."""
        try:
            return files.footer_of(files.path_of(self._disk.root, name), name)[1]
        except (OSError, Damaged):
            return None

    def note(self, *, hit: bool, size_bytes: int = 0) -> None:
        """Count a read."""
        counts = self.counts
        if hit:
            counts.hits += 1
            counts.hit_bytes += size_bytes
            self._noted_hits += 1
        else:
            counts.misses += 1
        self._noted += 1
        if self._noted >= _NOTE:
            reads, hits, self._noted, self._noted_hits = self._noted, self._noted_hits, 0, 0
            if monotonic() >= self._resume_s:
                try:
                    ledger = self._disk.ledger()
                    ledger.share = share_after(ledger.share, min(hits, reads), reads)
                except OSError as error:
                    self._pause(error)

    def store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool = False) -> bool:
        """Write an entry, unless the cache does not take it in; says whether it did.

        An entry that is there and has as many bytes stays, unless ``replace``. Where the disk is full or fails, nothing
        is written for 30 s.
        """
        counts = self.counts
        if monotonic() < self._resume_s:
            counts.refused += 1
            return False
        if self._memory is not None:
            self._memory.drop(name)
        try:
            kept = self._disk.store(name, data, what, replace=replace)
        except OSError as error:
            self._pause(error)
            kept = False
        counts.stored += kept
        counts.stored_bytes += len(data) if kept else 0
        counts.refused += not kept
        return kept

    def room_bytes(self) -> int:
        """Return how many bytes fit without giving anything up; 0 where the disk takes none."""
        if monotonic() < self._resume_s:
            return 0
        try:
            return self._disk.room_bytes()
        except OSError as error:
            self._pause(error)
            return 0

    def _discard(self, path: str) -> int:
        try:
            return self._disk.discard(path)
        except OSError as error:
            self._pause(error)
            return 0

    def entries(self) -> Iterator[Entry]:
        """Yield what is there, in no order; damaged files are left out. ``ConfigError``: it is in no directory."""
        self._disk.check_place()
        for path, name in files.paths(self._disk.root):
            try:
                text, found = files.footer_of(path, name)
                disk = os.stat(path)
            except (OSError, Damaged):
                continue
            what = about(text, found)
            yield Entry(*what[:3], found.size_bytes, what.object_bytes, charge(disk), disk.st_mtime, found.kept_s)

    def usage(self) -> Usage:
        """Return how full it is. ``ConfigError``: it is in no directory; ``OSError``: that cannot be used."""
        self._disk.check_place()
        used, entries, share = 0, 0, 0.0
        if os.path.isdir(self._disk.root):
            ledger = self._disk.current()
            with ledger.locked():
                ledger.sweep()
                used, entries, share = ledger.used, ledger.entries, ledger.share
        return Usage(self._disk.root, self.options.size_bytes, used, entries, share)

    def verify(self, tell: Callable[[int, int], None] = lambda _entries, _bytes: None) -> Verified:
        """Compare every entry with its checksums and remove those that are damaged; ``tell(1, bytes)`` for each.

        Raises as ``usage`` does.
        """
        self._disk.check_place()
        entries = size_bytes = damaged = 0
        for path, name in files.paths(self._disk.root):
            read = 0
            try:
                read = len(files.read_all(path, name))
            except Damaged:
                self._disk.discard(path)
                damaged += 1
            except FileNotFoundError:  # given up meanwhile
                continue
            entries, size_bytes = entries + 1, size_bytes + read
            tell(1, read)
        if os.path.isdir(self._disk.root):
            self._disk.count()
        return Verified(entries, size_bytes, damaged)

    def clear(self, prefix: str = "", tell: Callable[[int, int], None] = lambda _entries, _bytes: None) -> Cleared:
        """Remove the entries of objects whose URLs begin with ``prefix``; ``tell(1, bytes)`` for each.

        With "" all, damaged ones too, and the directory where no other process writes. Other processes may use the
        cache meanwhile. ``ConfigError``: it is in no directory; ``OSError``: it may not be removed.
        """
        if not isinstance(prefix, str):
            raise ConfigError(f"prefix is what URLs begin with, such as 's3://bucket/train/', not {prefix!r}")
        self._disk.check_place()
        if self._memory is not None:
            self._memory.drop()
        removed = size_bytes = 0
        for path, name in files.paths(self._disk.root):
            if not prefix or _belongs(path, name, prefix):
                took = self._disk.discard(path)
                removed, size_bytes = removed + bool(took), size_bytes + took
                tell(1, took)
        if not prefix and os.path.isdir(self._disk.root):
            self._disk.dismantle()
        return Cleared(removed, size_bytes)

    def _pause(self, error: OSError) -> None:
        self._resume_s = monotonic() + _PAUSE_S
        why = error.strerror or type(error).__name__
        _LOG.warning("the cache in %s takes nothing in for %d s: %s", self._disk.root, _PAUSE_S, why)

    def close(self) -> None:
        """Tell other processes that this one writes no more; the next use begins anew."""
        self._disk.close()


def _cut(data: bytes, found: Footer, where: tuple[int, int], into: memoryview | None) -> files.Hit:
    """Return a part of an entry that is held whole."""
    low, high = where
    if high == files.WHOLE:
        high = found.size_bytes if found.whole else found.size_bytes + 1
    if high == files.EVERY:
        high = found.size_bytes
    if high > found.size_bytes:
        return files.Hit(None, found, filled=False)
    if into is not None:
        into[:] = memoryview(data)[low:high]
        return files.Hit(None, found, filled=True)
    return files.Hit(data[low:high], found, filled=True)


def _belongs(path: str, name: bytes, prefix: str) -> bool:
    try:
        return about(*files.footer_of(path, name)).url.startswith(prefix)
    except (OSError, Damaged):
        return False


_caches: dict[CacheOptions, Cache] = {}


def open_cache(options: CacheOptions) -> Cache:
    """Return the cache that options mean: one in a process for equal options. Nothing is read or made yet."""
    cache = _caches.get(options)
    return cache if cache is not None else _caches.setdefault(options, Cache(options))


def _forget() -> None:
    for each in _caches.values():
        each.forget()


@atexit.register
def _leave() -> None:
    for each in _caches.values():
        each.close()


os.register_at_fork(after_in_child=_forget)
