"""Cache in memory before a directory that all processes of a machine share; one per ``CacheOptions`` in a process."""

from __future__ import annotations

import atexit
import logging
import os
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from penstock.engine.cache import files
from penstock.engine.cache.disk import Disk
from penstock.engine.cache.entry import About, Footer, about
from penstock.engine.cache.evict import share_after
from penstock.engine.cache.ledger import Folder, charge
from penstock.engine.waiting import Turn
from penstock.errors import ConfigError, Damaged
from penstock.events import count_cache
from penstock.options import CacheOptions
from penstock.options.typed import cache_folder, cache_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.cache.files import Hit

_LOG = logging.getLogger("penstock")
# Subdirectory of the configured directory that belongs to the cache alone.
_OWN = "penstock-cache-1"
# Seconds without the disk after it has failed.
_PAUSE_S = 30.0
# Reads between two updates of the hit rate that all processes share.
_NOTE = 64


class CacheTiers:
    """Entries by name, as the engine uses them. After a disk failure or damage a read is a miss, never an error.

    Thread-safe, and safe with any number of processes that share the directory; a forked child resets its state.
    """

    def __init__(self, options: CacheOptions) -> None:
        """Prepare without touching the disk; ``ConfigError`` if no directory is known."""
        self.options = options
        path = os.path.abspath(os.path.expanduser(options.path or cache_folder()))
        self.disk = Disk(os.path.join(path, _OWN), options.size_bytes)
        self._reset()

    def forget(self) -> None:
        """Reset all state in a forked child: locks and writes in progress belong to the parent."""
        self.disk.forget()
        self._reset()

    def _reset(self) -> None:
        self.memory = Memory(self.options.memory_bytes) if self.options.memory_bytes else None
        self._resume_s = 0.0
        self._noted = self._noted_hits = 0
        self.counts = count_cache(os.path.dirname(self.disk.root))

    def read(
        self, name: bytes, low: int, high: int, into: memoryview | None = None, *, since_s: float = 0.0
    ) -> files.Hit | None:
        """Return bytes ``[low, high)`` of an entry, or fill ``into`` with them; None without such an entry.

        ``high`` may be ``files.WHOLE`` or ``files.EVERY``. An entry that was written before ``since_s``, in seconds
        since the epoch, is ignored. ``ConfigError`` if other users may write to the directory.
        """
        memory = self.memory
        held = None if memory is None else memory.get(name)
        if held is None:
            held = self._from_disk(name, low, high, into)
            if held is None:
                return None
            if memory is not None and held.data is not None and low == 0 and len(held.data) == held.found.size_bytes:
                memory.put(name, held, self.disk.draw())
        elif held.data is not None:
            held = _slice_hit(held, held.data, (low, high), into)
        return held if held.found.kept_s >= since_s else None

    def _from_disk(self, name: bytes, low: int, high: int, into: memoryview | None) -> files.Hit | None:
        try:
            hit = files.read_entry(self.disk.folder(), name, low, high, into)
        except Damaged:
            self.counts.damaged += 1
            path = files.path_of(name)
            _LOG.warning("removed a damaged cache entry: %s/%s", self.disk.root, path)
            self._discard(path)
        except OSError:  # mostly: no such entry
            pass
        else:
            if hit.waited_s:
                self.disk.note_wait(hit.waited_s)
            return hit
        return None

    def look(self, name: bytes) -> Footer | None:
        try:
            return files.footer_of(self.disk.folder(), files.path_of(name), name)[1]
        except (OSError, Damaged):
            return None

    def note(self, *, hit: bool, size_bytes: int = 0) -> None:
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
                    ledger = self.disk.ledger()
                    ledger.share = share_after(ledger.share, min(hits, reads), reads)
                except OSError as error:
                    self._pause(error)

    def store(self, name: bytes, data: bytes | memoryview, what: About, *, replace: bool = False) -> bool:
        """Write an entry, unless the cache refuses it; return whether it was stored.

        An existing entry that is not smaller stays, unless ``replace``. After the disk is full or fails, nothing is
        written for 30 s.
        """
        counts = self.counts
        if monotonic() < self._resume_s:
            counts.refused += 1
            return False
        if self.memory is not None:
            self.memory.drop(name)
        try:
            kept = self.disk.store(name, data, what, replace=replace)
        except OSError as error:
            self._pause(error)
            kept = False
        counts.stored += kept
        counts.stored_bytes += len(data) if kept else 0
        counts.refused += not kept
        return kept

    def room_bytes(self) -> int:
        """Return how many bytes fit without evicting anything; 0 while the disk is paused after a failure."""
        if monotonic() < self._resume_s:
            return 0
        try:
            return self.disk.room_bytes()
        except OSError as error:
            self._pause(error)
            return 0

    def _discard(self, path: str) -> int:
        try:
            return self.disk.discard(path)
        except OSError as error:
            self._pause(error)
            return 0

    def _pause(self, error: OSError) -> None:
        self._resume_s = monotonic() + _PAUSE_S
        why = error.strerror or type(error).__name__
        _LOG.warning("the cache in %s stores no new entries for %d s: %s", self.disk.root, _PAUSE_S, why)


def _slice_hit(held: files.Hit, data: bytes, where: tuple[int, int], into: memoryview | None) -> files.Hit:
    (low, high), found = where, held.found
    if high == files.WHOLE:
        high = found.size_bytes if found.whole else found.size_bytes + 1
    if high == files.EVERY:
        high = found.size_bytes
    if high > found.size_bytes:
        return held._replace(data=None, filled=False)
    if into is not None:
        into[:] = memoryview(data)[low:high]
        return held._replace(data=None)
    return held._replace(data=data[low:high])


_TAKEN = 1 / 16  # share of entries that a full memory admits


class Memory:
    """Whole entries by name, up to ``most_bytes``; the least recently used is evicted first. Thread-safe.

    A full memory admits few of the entries read from disk, so that a part stays while an epoch passes through.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._turn = Turn()
        self._held: OrderedDict[bytes, Hit] = OrderedDict()
        self._held_bytes = 0

    def get(self, name: bytes) -> Hit | None:
        hit = self._held.get(name)
        if hit is not None:
            with self._turn:
                if name in self._held:
                    self._held.move_to_end(name)
        return hit

    def put(self, name: bytes, hit: Hit, draw: float) -> None:
        """Hold an entry, unless it is too large, or the memory is full and ``draw``, in [0, 1), is 1/16 or more."""
        size = hit.found.size_bytes
        full = self._held_bytes + size > self._most_bytes
        if size > self._most_bytes // 4 or (full and draw >= _TAKEN):
            return
        with self._turn:
            if name in self._held:
                return
            while self._held and self._held_bytes + size > self._most_bytes:
                self._held_bytes -= self._held.popitem(last=False)[1].found.size_bytes
            self._held[name] = hit
            self._held_bytes += size

    def drop(self, name: bytes | None = None) -> None:
        with self._turn:
            for each in [name] if name is not None else list(self._held):
                hit = self._held.pop(each, None)
                self._held_bytes -= 0 if hit is None else hit.found.size_bytes


_tiers: dict[CacheOptions, CacheTiers] = {}


def tiers_of(options: CacheOptions) -> CacheTiers:
    """Return the tiers for ``options``, one per process for equal options. Nothing is read or created yet."""
    tiers = _tiers.get(options)
    return tiers if tiers is not None else _tiers.setdefault(options, CacheTiers(options))


def _forget_tiers() -> None:
    for each in _tiers.values():
        each.forget()


@atexit.register
def _close_disks() -> None:
    for each in _tiers.values():
        each.disk.close()


os.register_at_fork(after_in_child=_forget_tiers)


class Cache:
    """A cache to inspect, verify and clear, while programs use it.

    Args:
        options: The directory and its limits. Nothing is touched before the first use.

    Attributes:
        path: Directory of all the cache's files.

    Raises:
        ConfigError: No directory is known.

    Example:
        >>> ps.warm("s3://bucket/train/3/", store=ps.S3Options(cache=ps.CacheOptions(path="cache"))).fetched
        60
        >>> cache = ps.cache.open_cache("cache")
        >>> cache.verify().damaged, cache.clear("s3://bucket/train/3/").entries
        (0, 60)
    """

    def __init__(self, options: CacheOptions) -> None:
        if not isinstance(options, CacheOptions):
            raise ConfigError(
                f"options must be CacheOptions, got {options!r}; penstock.cache.open_cache takes a directory"
            )
        self._tiers = tiers_of(options)
        self._disk = self._tiers.disk
        self.path = self._disk.root

    def entries(self) -> Iterator[CacheEntry]:
        """Yield the entries without damaged ones, in no order; ``ConfigError`` if the path cannot be a directory."""
        self._disk.check_place()
        for folder, path, name in self._paths():
            try:
                text, found, disk = files.footer_of(folder, path, name)
            except (OSError, Damaged):
                continue
            what = about(text, found)
            yield CacheEntry(*what[:3], found.size_bytes, what.object_bytes, charge(disk), disk.st_mtime, found.kept_s)

    def _paths(self) -> Iterator[tuple[Folder, str, bytes]]:
        with suppress(FileNotFoundError):  # no directory yet
            folder = self._disk.folder()
            for path, name in files.paths(folder):
                yield folder, path, name

    def usage(self) -> Usage:
        """Return the fill level; ``ConfigError`` if the path cannot be a directory, ``OSError`` if it is unusable."""
        self._disk.check_place()
        used, entries, share = 0, 0, 0.0
        if os.path.isdir(self.path):
            ledger = self._disk.current()
            with ledger.locked():
                ledger.release_spares()
                ledger.sweep()
            ledger.finish()
            used, entries, share = ledger.used, ledger.entries, ledger.share
        return Usage(self.path, self._tiers.options.size_bytes, used, entries, share)

    def verify(self, tell: Callable[[int, int], None] = lambda _entries, _bytes: None) -> Verified:
        """Verify the checksums of all entries, and remove damaged ones.

        Args:
            tell: Called with 1 and the bytes of each entry, to show progress; default: nothing.

        Returns:
            Number of entries, of their bytes, and of damaged ones.

        Raises:
            ConfigError: The path cannot be a directory.
            OSError: The directory is unusable.
        """
        self._disk.check_place()
        entries = size_bytes = damaged = 0
        for folder, path, name in self._paths():
            read = 0
            try:
                read = len(files.read_all(folder, path, name))
            except Damaged:
                self._disk.discard(path)
                damaged += 1
            except FileNotFoundError:  # evicted meanwhile
                continue
            entries, size_bytes = entries + 1, size_bytes + read
            tell(1, read)
        if os.path.isdir(self.path):
            self._disk.count()
        return Verified(entries, size_bytes, damaged)

    def clear(self, prefix: str = "", tell: Callable[[int, int], None] = lambda _entries, _bytes: None) -> Cleared:
        """Remove the entries of objects whose URLs begin with ``prefix``; other processes may use the cache meanwhile.

        Args:
            prefix: Beginning of URLs. An empty prefix (default) removes all entries, damaged ones too, and the
                directory if no other process writes.
            tell: Called with 1 and the disk space of each entry, to show progress; default: nothing.

        Returns:
            Number of removed entries, and the disk space that they took.

        Raises:
            ConfigError: The path cannot be a directory.
            OSError: An entry may not be removed.
        """
        if not isinstance(prefix, str):
            raise ConfigError(f"prefix must be the beginning of URLs, such as 's3://bucket/train/', got {prefix!r}")
        self._disk.check_place()
        if self._tiers.memory is not None:
            self._tiers.memory.drop()
        removed = size_bytes = 0
        for folder, path, name in self._paths():
            if not prefix or _belongs(folder, path, name, prefix):
                took = self._disk.discard(path)
                removed, size_bytes = removed + bool(took), size_bytes + took
                tell(1, took)
        if not prefix and os.path.isdir(self.path):
            self._disk.dismantle()
        return Cleared(removed, size_bytes)

    def close(self) -> None:
        """Tell other processes that this one has stopped writing; the next use reopens the directory."""
        self._disk.close()


def _belongs(folder: Folder, path: str, name: bytes, prefix: str) -> bool:
    try:
        return about(*files.footer_of(folder, path, name)[:2]).url.startswith(prefix)
    except (OSError, Damaged):
        return False


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An object in the cache, or a part of one.

    Attributes:
        url: The object's URL.
        etag: Its version; empty if unknown.
        start: Offset of the entry in the object; a negative offset counts from the object's end.
        size_bytes: Size of the entry.
        object_bytes: Size of the object; -1 if unknown.
        stored_bytes: Disk space that the entry takes.
        used_s: When it was last read, in seconds since the epoch, to within 30 s.
        kept_s: When it was written, in seconds since the epoch.
    """

    url: str
    etag: str
    start: int
    size_bytes: int
    object_bytes: int
    stored_bytes: int
    used_s: float
    kept_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """The fill level of a cache.

    Attributes:
        path: Its directory.
        size_bytes: Most disk space that the cache may take.
        stored_bytes: Disk space that it takes, including writes in progress.
        entries: Number of entries.
        hit_share: Share of recent reads that were hits, over all processes.
    """

    path: str
    size_bytes: int
    stored_bytes: int
    entries: int
    hit_share: float


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of verifying a cache.

    Attributes:
        entries: Number of entries that were compared with their checksums.
        size_bytes: Their bytes.
        damaged: Number of damaged entries, which were removed.
    """

    entries: int
    size_bytes: int
    damaged: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of clearing a cache.

    Attributes:
        entries: Number of entries that were removed.
        stored_bytes: Disk space that they took.
    """

    entries: int
    stored_bytes: int


def open_cache(cache: CacheOptions | str | os.PathLike[str] | None = None) -> Cache:
    """Return a cache to inspect: ``entries``, ``usage``, ``verify``, ``clear``. Nothing is read or created yet.

    Args:
        cache: Its options, or its directory; default: ``PENSTOCK_CACHE``, then ``~/.cache/penstock``.

    Raises:
        ConfigError: A variable is invalid, a name is empty, or no home directory is known.

    Example:
        >>> options = ps.S3Options(cache=ps.CacheOptions(path="cache"))
        >>> ps.warm("s3://bucket/train/3/", store=options).fetched
        60
        >>> ps.cache.open_cache("cache").usage().entries
        60
    """
    if isinstance(cache, str) and not cache:
        raise ConfigError("the cache's path must not be empty: leave it out for the default directory")
    given = CacheOptions(path=os.fspath(cache)) if isinstance(cache, str | os.PathLike) else cache
    return Cache(cache_options(CacheOptions() if given is None else given) or CacheOptions())
