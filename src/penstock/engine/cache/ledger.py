"""Cross-process cache accounting: used bytes and active writers. Files and locks, no daemon.

``used`` is never below the disk space that the cache takes: bytes are reserved before they are written, and released
after they are removed. A process that is killed in between leaves a mark, and the entries are recounted: one slice of
the cache in each section under the lock, by whichever process holds it. ``used`` is too high until then, never too low.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from errno import ENOSPC, ETIMEDOUT
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from stat import S_IWGRP, S_IWOTH
from struct import Struct
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.engine.cache.evict import reuse_now
from penstock.engine.waiting import Turn
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STATE, _LOCK, WRITERS = "state", "lock", "writers"
_MAGIC = b"PNSTCKL1"
_SIZE = 4096
_HEAD = Struct("<8s36sB")  # magic, the machine's boot id, busy mark
_MARK, _WORDS, _SHARE = Struct("<B"), Struct("<qq"), Struct("<d")  # words: used bytes, entries
# The longest wait for an entry's next use, and when it was seen.
_WAIT = Struct("<dd")
# Of a recount: slices left, bytes and entries in the slices before; and whether ``used`` is unknown until its end.
_COUNT = Struct("<qqqq")
_BOTH = Struct("<qq24xqqqq")  # words, and those of a recount
_MARK_AT, _WORDS_AT, _SHARE_AT, _WAIT_AT, _COUNT_AT = 44, 48, 64, 72, 88
_OWED = Struct("<q")
_PAGE = 4096
_MOST_S = 1e9
_SWEEP_S = 5.0
# A process that holds the lock for longer was stopped within it (a paused container, a suspended job).
_PATIENCE_S = 5.0
_LOOK_S, _MOST_LOOK_S = 0.0001, 0.002
# A section under the lock counts slices of a recount for so long, and at least one.
_SLICE_S = 0.02
_BOOT = "/proc/sys/kernel/random/boot_id"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def charge(found: os.stat_result) -> int:
    """Return a file's disk space in bytes; if its blocks are not counted yet (ZFS, btrfs), the space it will take."""
    return max(found.st_blocks * 512, -(-found.st_size // _PAGE) * _PAGE)


def bound_disk_use(size_bytes: int) -> int:
    """Return the most disk space that a new file of that size can take, including growth of its directory."""
    return (-(-size_bytes // _PAGE) + 3) * _PAGE


class Folder:
    """The cache's directory, held open: all its files are opened relative to it.

    Another user who may write to a parent directory can replace this one with theirs. Reads stay correct, at the cost
    of the cache: the open directory is still the cache's, and the other one is refused. The directory is closed with
    the last reference to this object.
    """

    __slots__ = ("_identity", "descriptor")

    def __init__(self, path: str) -> None:
        """Open ``path``; ``ConfigError`` for a link or if other users may write there, ``OSError`` if opening fails."""
        self.descriptor = -1
        refused = f"other users may write to the cache in {path}: name a directory of your own"
        if os.path.islink(path):
            raise ConfigError(refused)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._identity = _identity(self.descriptor)
        found = os.fstat(self.descriptor)
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (S_IWGRP | S_IWOTH):
            raise ConfigError(refused)

    def there(self) -> bool:
        """Return whether the directory is open (daemons close all descriptors) and was not removed."""
        with suppress(OSError):
            found = os.fstat(self.descriptor)
            return (found.st_dev, found.st_ino) == self._identity and found.st_nlink > 0
        return False

    def __del__(self) -> None:
        if self.descriptor >= 0 and _identity(self.descriptor) == self._identity:
            os.close(self.descriptor)


class Ledger:
    """A process's view of one cache directory's shared state; changes need ``locked``, which excludes all others."""

    def __init__(self, folder: Folder, recount: Callable[[Folder, int], tuple[int, int]], slices: int) -> None:
        """Open or create it; raises ``OSError``.

        ``recount`` returns bytes and number of the entries on disk in one of the ``slices`` of the cache.
        """
        self.folder, self._recount, self._slices = folder, recount, slices
        at = folder.descriptor
        self._turn = Turn()
        self._sweep_s = 0.0
        self._writer, self._writer_path, self._owed = -1, "", 0
        self._late = 0  # bytes to be released after a recount
        # Reserved bytes of finished writes, each for a next one: it needs no section under the lock before it.
        self.spares: list[int] = []
        with suppress(FileExistsError):
            os.mkdir(WRITERS, 0o700, dir_fd=at)
        self._lock = os.open(_LOCK, _FLAGS, 0o600, dir_fd=at)
        # By descriptor: daemons close all descriptors, and their numbers are reused.
        self._identities = {self._lock: _identity(self._lock)}
        try:
            self._state = _LedgerFile(at)
            self._take()
            try:
                self._state.fill()
            finally:
                flock(self._lock, LOCK_UN)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def used(self) -> int:
        return int(self._state.read(_WORDS, _WORDS_AT)[0])

    @property
    def entries(self) -> int:
        return int(self._state.read(_WORDS, _WORDS_AT)[1])

    @property
    def share(self) -> float:
        share = float(self._state.read(_SHARE, _SHARE_AT)[0])
        return share if 0.0 <= share <= 1.0 else 0.0

    @share.setter
    def share(self, share: float) -> None:
        if self._state.there():
            self._state.write(_SHARE, _SHARE_AT, share)

    def reuse(self, now_s: float) -> float:
        """Return the longest known wait for an entry's next use, decayed to ``now_s``; 0 before any wait is known."""
        reuse_s, noted_s = self._state.read(_WAIT, _WAIT_AT)
        return reuse_now(reuse_s, noted_s, now_s) if 0.0 < reuse_s < _MOST_S else 0.0

    def note_wait(self, waited_s: float, now_s: float) -> None:
        """Publish an entry's wait if it is the longest; without a lock, as for ``share``."""
        if self.reuse(now_s) < waited_s < _MOST_S and self._state.there():
            self._state.write(_WAIT, _WAIT_AT, waited_s, now_s)

    def there(self) -> bool:
        """Return whether other processes find the same files; False once the directory was removed."""
        with suppress(OSError):
            return self._state.there() and os.fstat(self._lock).st_nlink > 0
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other threads and processes; recount a slice if a holder died, all if the machine has rebooted.

        ``FileNotFoundError`` after the directory's removal, ``TimeoutError`` if another process holds the lock for 5 s.
        """
        with self._turn:
            # The lock file was closed, or another thread found the directory removed.
            if not self._is_own(self._lock):
                raise FileNotFoundError("the cache's directory was removed")
            try:
                self._take()
                self._mend()
                self._state.write(_MARK, _MARK_AT, 1)
                yield
                # An exception skips this line, because it may have come between two changes.
                self._state.write(_MARK, _MARK_AT, 0)
            finally:
                with suppress(OSError):
                    flock(self._lock, LOCK_UN)

    def _take(self) -> None:
        until, look_s = monotonic() + _PATIENCE_S, _LOOK_S
        while True:
            try:
                flock(self._lock, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                if monotonic() >= until:
                    raise TimeoutError(ETIMEDOUT, "another process (suspended?) holds the cache's lock") from None
                sleep(look_s)
                # Many that wait would otherwise take the processors from the one that holds it.
                look_s = min(2 * look_s, _MOST_LOOK_S)
            else:
                return

    def _mend(self) -> None:
        """Begin or continue a recount where one is due; if ``used`` is unknown, complete it with others."""
        while not self._count_some():
            self._state.write(_MARK, _MARK_AT, 0)
            flock(self._lock, LOCK_UN)
            sleep(_LOOK_S)
            self._take()
        if self._late and not self.counting:
            late, self._late = self._late, 0
            self.owe(-late)

    def _count_some(self) -> bool:
        """Count some slices where a recount is due; return whether ``used`` is known, though perhaps too high."""
        if not os.fstat(self._lock).st_nlink:
            raise FileNotFoundError("the cache's directory was removed")
        magic, boot, busy = self._state.read(_HEAD, 0) if self._state.size() >= _SIZE else (b"", b"", 0)
        left = self._state.read(_COUNT, _COUNT_AT)[0]
        # Another program has changed the file, the machine has rebooted, or a holder of the lock died.
        unknown = magic != _MAGIC or boot != _boot() or self.used < 0 or not 0 <= left <= self._slices
        if unknown or busy:
            self.begin_count(unknown=unknown or self._unknown)
        self._count_slices()
        return not self._unknown

    @property
    def _unknown(self) -> bool:
        left, *_, unknown = self._state.read(_COUNT, _COUNT_AT)
        return left > 0 and bool(unknown)

    @property
    def counting(self) -> bool:
        """Whether a recount has begun and not ended."""
        return int(self._state.read(_COUNT, _COUNT_AT)[0]) > 0

    def begin_count(self, *, unknown: bool = False) -> None:
        """Begin a recount; with ``unknown``, no process gets the lock before it has ended. Within the lock."""
        self._state.fill()
        self._state.write(_COUNT, _COUNT_AT, self._slices, 0, 0, int(unknown))
        if unknown:
            self._state.write(_WORDS, _WORDS_AT, 0, 0)
        self._state.write(_HEAD, 0, _MAGIC, _boot(), 1)

    def _count_slices(self) -> None:
        until = monotonic() + _SLICE_S
        while self.counting:
            self._count_slice()
            if monotonic() >= until:
                return

    def _count_slice(self) -> None:
        left, used, entries, unknown = self._state.read(_COUNT, _COUNT_AT)
        self._state.write(_MARK, _MARK_AT, 1)
        size_bytes, there = self._recount(self.folder, self._slices - left)
        left, used, entries = left - 1, used + size_bytes, entries + there
        if not left:
            self._state.write(_WORDS, _WORDS_AT, used + self._bury(), entries)
        self._state.write(_COUNT, _COUNT_AT, left, used, entries, unknown)

    def count(self) -> None:
        """Recount all files on disk at once, after removing files of dead processes; within ``locked``."""
        self.begin_count()
        while self.counting:
            self._count_slice()

    def finish(self, *, begin: bool = False) -> None:
        """Complete a recount, if one has begun, or ``begin`` one; others get the lock between two slices."""
        with self.locked():
            if begin:
                self.begin_count()
            left = self.counting
        while left:
            sleep(_LOOK_S)
            with self.locked():
                left = self.counting

    def add(self, size_bytes: int, entries: int = 0, part: int = -1) -> None:
        """Count a change, of entries in slice ``part``; within ``locked``."""
        used, there, left, counted, found, unknown = self._state.read(_BOTH, _WORDS_AT)
        self._state.write(_WORDS, _WORDS_AT, used + size_bytes, there + entries)
        if left > 0 and 0 <= part < self._slices - left:
            self._state.write(_COUNT, _COUNT_AT, left, counted + size_bytes, found + entries, unknown)

    def owe(self, size_bytes: int) -> None:
        """Reserve bytes for writes of this process, or release them if negative; within ``locked``."""
        self._enlist()
        self._owed += size_bytes
        os.pwrite(self._writer, _OWED.pack(self._owed), 0)
        self.add(size_bytes)

    def owe_until_counted(self, size_bytes: int) -> None:
        """Release bytes, of which an entry may have taken some uncounted, when the recount that is due has ended."""
        self._late += size_bytes

    def release_spares(self) -> None:
        """Release what was kept for further writes; within ``locked``."""
        size_bytes = 0
        with suppress(IndexError):  # another thread takes them, too
            while True:
                size_bytes += self.spares.pop()
        if size_bytes:
            self.owe(-size_bytes)

    def aside(self) -> str:
        """Return a new path in the directory for a file that this process is writing; after ``owe``."""
        return f"{self._writer_path}.{uuid4().hex}"

    def alone(self) -> bool:
        """Return whether no other process writes, after removing files of dead processes; within ``locked``."""
        self._bury()
        return set(self._names()) <= {os.path.basename(self._writer_path)}

    def sweep(self) -> None:
        """Begin a recount if a process died while it wrote; checks at most every 5 s; within ``locked``."""
        if monotonic() >= self._sweep_s and not self.counting:
            self._sweep_s = monotonic() + _SWEEP_S
            if self._bury(only_look=True):
                self.begin_count()
                self._count_slices()

    def _enlist(self) -> None:
        if self._writer >= 0:
            return
        path = f"{WRITERS}/{uuid4().hex}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600, dir_fd=self.folder.descriptor)
        flock(descriptor, LOCK_EX | LOCK_NB)
        os.pwrite(descriptor, _OWED.pack(0), 0)
        self._identities[descriptor] = _identity(descriptor)
        self._writer, self._writer_path, self._owed = descriptor, path, 0
        self.add(_PAGE)  # its own file

    def _names(self) -> list[str]:
        return [each for each in self._all_names() if "." not in each]

    def _all_names(self) -> list[str]:
        descriptor = os.open(WRITERS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder.descriptor)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def _bury(self, *, only_look: bool = False) -> int:
        """Remove files of dead writers; return the bytes of living writers.

        With ``only_look``, return the number of dead writers that had bytes reserved, and leave their files.
        """
        at, died = self.folder.descriptor, 0
        owed = self._owed + _PAGE if self._writer >= 0 else 0
        for name in self._names():
            path = f"{WRITERS}/{name}"
            if path == self._writer_path:
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC, dir_fd=at)
            try:
                try:
                    flock(descriptor, LOCK_EX | LOCK_NB)
                except BlockingIOError:
                    owed += _read_owed(descriptor) + _PAGE
                    continue
                if _read_owed(descriptor):
                    died += 1
                    if only_look:
                        continue
                os.unlink(path, dir_fd=at)
                self.add(-_PAGE)
            finally:
                os.close(descriptor)
        if only_look:
            return died
        living = set(self._names())
        for each in self._all_names():
            if each.partition(".")[0] not in living:
                os.unlink(f"{WRITERS}/{each}", dir_fd=at)
        return owed

    def leave(self) -> None:
        with suppress(OSError), self.locked():
            if self._writer >= 0:
                self.spares.clear()
                self.add(-self._owed - _PAGE)
                os.unlink(self._writer_path, dir_fd=self.folder.descriptor)
                if self._is_own(self._writer):
                    os.close(self._writer)
                self._writer, self._writer_path, self._owed = -1, "", 0

    def remove(self) -> None:
        """Remove its files; within ``locked``, if ``alone``. Processes that wait for the lock notice the removal."""
        for each in filter(None, (self._writer_path, _STATE, _LOCK)):
            with suppress(FileNotFoundError):
                os.unlink(each, dir_fd=self.folder.descriptor)
        os.rmdir(WRITERS, dir_fd=self.folder.descriptor)

    def close(self) -> None:
        with self._turn:
            self.drop()

    def drop(self) -> None:
        """Close its files without a lock: a forked child must not keep the parent's locks, and lacks its threads."""
        for descriptor in (self._lock, self._writer):
            if self._is_own(descriptor):
                with suppress(OSError):
                    os.close(descriptor)
        self._lock, self._writer = -1, -1

    def _is_own(self, descriptor: int) -> bool:
        found = _identity(descriptor)
        return found is not None and found == self._identities.get(descriptor)


class _LedgerFile:
    """Values at fixed offsets in a file, accessed by system calls: truncating a mapped file would kill processes.

    The file is closed with the last reference to this object, so no thread writes to a file that another has closed.
    """

    _descriptor = -1

    def __init__(self, folder: int) -> None:
        self._descriptor = os.open(_STATE, _FLAGS, 0o600, dir_fd=folder)
        self._identity = _identity(self._descriptor)

    def _stat(self) -> os.stat_result | None:
        """Return the file's ``stat`` result; None if the process has closed it (daemons close all descriptors)."""
        with suppress(OSError):
            found = os.fstat(self._descriptor)
            if (found.st_dev, found.st_ino) == self._identity:
                return found
        return None

    def there(self) -> bool:
        found = self._stat()
        return found is not None and found.st_nlink > 0

    def size(self) -> int:
        found = self._stat()
        if found is None or not found.st_nlink:
            raise FileNotFoundError("the cache's state was removed, or closed")
        return found.st_size

    def fill(self) -> None:
        """Extend the file to its full size, so that a full disk cannot fail a later write."""
        missing = _SIZE - (size := self.size())
        if missing > 0 and os.pwrite(self._descriptor, bytes(missing), size) < missing:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def read(self, words: Struct, at: int) -> tuple[Any, ...]:
        """Return the values at offset ``at``; zeros where the file was truncated."""
        return words.unpack(os.pread(self._descriptor, words.size, at).ljust(words.size, b"\0"))

    def write(self, words: Struct, at: int, *values: Any) -> None:  # noqa: ANN401  as struct has them
        if os.pwrite(self._descriptor, words.pack(*values), at) < words.size:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def __del__(self) -> None:
        if self._descriptor >= 0 and self._stat() is not None:
            os.close(self._descriptor)


def _identity(descriptor: int) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return None


def _read_owed(descriptor: int) -> int:
    text = os.pread(descriptor, _OWED.size, 0)
    return int(_OWED.unpack(text)[0]) if len(text) == _OWED.size else 0


def _boot() -> bytes:
    global _booted  # noqa: PLW0603  read under a lock, and always the same
    if not _booted:
        try:
            with open(_BOOT, "rb") as file:
                _booted = file.read(36).ljust(36)
        except OSError:
            _booted = b"-" * 36
    return _booted


_booted = b""
