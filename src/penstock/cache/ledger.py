"""What the processes that share a cache know together: how full it is, and who writes. Files, locks and no daemon.

``used`` never falls below what the cache takes of the disk: bytes are reserved before they are written, and given back
after they were removed. A process that is killed between the two leaves a mark, and the next one counts anew.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from errno import ENOSPC
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cache.evict import reuse_now
from penstock.waiting import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Ledger", "charge", "grown"]

_STATE, _LOCK, WRITERS = "state", "lock", "writers"
_MAGIC = b"PNSTCKL1"
_SIZE = 4096
_HEAD = Struct("<8s36sB")  # magic, the machine's boot, whether somebody is at it
_MARK, _WORDS, _SHARE = Struct("<B"), Struct("<qq"), Struct("<d")  # words: used, entries
_WAIT = Struct("<dd")  # the longest wait for another use of an entry, and when it was seen
_MARK_AT, _WORDS_AT, _SHARE_AT, _WAIT_AT = 44, 48, 64, 72
_OWED = Struct("<q")
_PAGE = 4096
_MOST_S = 1e9
_SWEEP_S = 5.0
_BOOT = "/proc/sys/kernel/random/boot_id"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def charge(found: os.stat_result) -> int:
    """Return what a file takes of the disk; where blocks are not counted yet (ZFS, btrfs), what it will take."""
    return max(found.st_blocks * 512, -(-found.st_size // _PAGE) * _PAGE)


def grown(size_bytes: int) -> int:
    """Return what a new file of that size takes at most, with what its directory may grow by."""
    return (-(-size_bytes // _PAGE) + 3) * _PAGE


class Ledger:
    """The shared state of one cache directory, for one process; ``locked`` excludes all others from what changes it."""

    def __init__(self, root: str, recount: Callable[[], tuple[int, int]]) -> None:
        """Open or make it; ``recount`` returns bytes and number of the entries that are there. Raises ``OSError``."""
        self._root, self._recount = root, recount
        self._turn = Turn()
        self._sweep_s = 0.0
        self._writer, self._writer_path, self._owed = -1, "", 0
        os.makedirs(os.path.join(root, WRITERS), mode=0o700, exist_ok=True)
        self._lock = os.open(os.path.join(root, _LOCK), _FLAGS, 0o600)
        self._identities = {self._lock: _identity(self._lock)}  # of descriptors: daemons close all, and use them anew
        try:
            self._state = _State(os.path.join(root, _STATE))
            flock(self._lock, LOCK_EX)
            try:
                self._state.fill()
            finally:
                flock(self._lock, LOCK_UN)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def used(self) -> int:
        """Bytes of the disk that are taken, or will be by what is being written."""
        return int(self._state.read(_WORDS, _WORDS_AT)[0])

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self._state.read(_WORDS, _WORDS_AT)[1])

    @property
    def share(self) -> float:
        """The share of reads that were hits, lately, of all processes."""
        share = float(self._state.read(_SHARE, _SHARE_AT)[0])
        return share if 0.0 <= share <= 1.0 else 0.0

    @share.setter
    def share(self, share: float) -> None:
        """Tell all processes; without a lock: the last word is as good as any."""
        if self._state.there():
            self._state.write(_SHARE, _SHARE_AT, share)

    def reuse(self, now_s: float) -> float:
        """Return the longest time that an entry has waited for its next use, as far as it counts by now."""
        reuse_s, noted_s = self._state.read(_WAIT, _WAIT_AT)
        return reuse_now(reuse_s, noted_s, now_s) if 0.0 < reuse_s < _MOST_S else 0.0

    def note_wait(self, waited_s: float, now_s: float) -> None:
        """Tell all processes that an entry has waited so long; without a lock, as for ``share``."""
        if self.reuse(now_s) < waited_s < _MOST_S and self._state.there():
            self._state.write(_WAIT, _WAIT_AT, waited_s, now_s)

    def there(self) -> bool:
        """Say whether its files are those that other processes find: not once the directory was removed."""
        with suppress(OSError):
            return self._state.there() and os.fstat(self._lock).st_nlink > 0
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other threads and processes. After a death within, or a start of the machine, it counts anew.

        ``FileNotFoundError``: the directory was removed, and perhaps made again.
        """
        with self._turn:
            if not self._is_own(self._lock):  # it was closed, or another thread found the directory removed
                raise FileNotFoundError(f"{self._root} was removed")
            try:
                flock(self._lock, LOCK_EX)
                if not os.fstat(self._lock).st_nlink:
                    raise FileNotFoundError(f"{self._root} was removed")
                if not self._sound():
                    self.count()
                self._state.write(_MARK, _MARK_AT, 1)
                yield
                self._state.write(_MARK, _MARK_AT, 0)  # not where an exception came between two changes
            finally:
                with suppress(OSError):
                    flock(self._lock, LOCK_UN)

    def _sound(self) -> bool:
        if self._state.size() < _SIZE:  # another program has truncated it
            return False
        magic, boot, busy = self._state.read(_HEAD, 0)
        return magic == _MAGIC and boot == _boot() and not busy and self.used >= 0

    def count(self) -> None:
        """Count what is there; within ``locked``. What dead processes were writing is removed first."""
        self._state.fill()
        self._state.write(_MARK, _MARK_AT, 1)
        owed = self._bury()
        used, entries = self._recount()
        self._state.write(_WORDS, _WORDS_AT, used + owed, entries)
        self._state.write(_HEAD, 0, _MAGIC, _boot(), 0)

    def add(self, size_bytes: int, entries: int = 0) -> None:
        """Add to what is taken; within ``locked``."""
        used, there = self._state.read(_WORDS, _WORDS_AT)
        self._state.write(_WORDS, _WORDS_AT, used + size_bytes, there + entries)

    def owe(self, size_bytes: int) -> None:
        """Reserve bytes for what this process writes, or give them back; within ``locked``."""
        self._enlist()
        self._owed += size_bytes
        os.pwrite(self._writer, _OWED.pack(self._owed), 0)
        self.add(size_bytes)

    def aside(self) -> str:
        """Return a path for a file of this process's that is being written; after ``owe``."""
        return f"{self._writer_path}.{uuid4().hex}"

    def alone(self) -> bool:
        """Say whether no other process writes; within ``locked``. What dead ones were writing is removed."""
        self._bury()
        return set(self._names()) <= {os.path.basename(self._writer_path)}

    def sweep(self) -> None:
        """Count anew where a process died while it wrote, at most every few seconds; within ``locked``."""
        if monotonic() >= self._sweep_s:
            self._sweep_s = monotonic() + _SWEEP_S
            if self._bury(only_look=True):
                self.count()

    def _enlist(self) -> None:
        if self._writer >= 0:
            return
        path = os.path.join(self._root, WRITERS, uuid4().hex)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        flock(descriptor, LOCK_EX | LOCK_NB)
        os.pwrite(descriptor, _OWED.pack(0), 0)
        self._identities[descriptor] = _identity(descriptor)
        self._writer, self._writer_path, self._owed = descriptor, path, 0
        self.add(_PAGE)  # its own file

    def _names(self) -> list[str]:
        return [each for each in os.listdir(os.path.join(self._root, WRITERS)) if "." not in each]

    def _bury(self, *, only_look: bool = False) -> int:
        """Remove what dead writers left; return what living ones take, or, to look, how many died in debt."""
        folder, died = os.path.join(self._root, WRITERS), 0
        owed = self._owed + _PAGE if self._writer >= 0 else 0
        for name in self._names():
            path = os.path.join(folder, name)
            if path == self._writer_path:
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                try:
                    flock(descriptor, LOCK_EX | LOCK_NB)
                except BlockingIOError:
                    owed += _owed(descriptor) + _PAGE
                    continue
                if _owed(descriptor):
                    died += 1
                    if only_look:
                        continue
                os.unlink(path)
                self.add(-_PAGE)
            finally:
                os.close(descriptor)
        if only_look:
            return died
        living = set(self._names())
        for each in os.listdir(folder):
            if each.partition(".")[0] not in living:
                os.unlink(os.path.join(folder, each))
        return owed

    def leave(self) -> None:
        """Let others know that this process writes no more; at its end, or before a ``clear``."""
        with suppress(OSError), self.locked():
            if self._writer >= 0:
                self.add(-self._owed - _PAGE)
                os.unlink(self._writer_path)
                if self._is_own(self._writer):
                    os.close(self._writer)
                self._writer, self._writer_path, self._owed = -1, "", 0

    def remove(self) -> None:
        """Remove its files; within ``locked``, and ``alone``. Others who wait for the lock find them gone."""
        for each in (self._writer_path, *(os.path.join(self._root, name) for name in (_STATE, _LOCK))):
            with suppress(FileNotFoundError):
                if each:
                    os.unlink(each)
        os.rmdir(os.path.join(self._root, WRITERS))

    def close(self) -> None:
        """Let go of files, once no other thread uses them."""
        with self._turn:
            self.drop()

    def drop(self) -> None:
        """Let go of files in a forked child: the parent's locks must not live on in it, nor are its threads here."""
        for descriptor in (self._lock, self._writer):
            if self._is_own(descriptor):
                with suppress(OSError):
                    os.close(descriptor)
        self._lock, self._writer = -1, -1

    def _is_own(self, descriptor: int) -> bool:
        found = _identity(descriptor)
        return found is not None and found == self._identities.get(descriptor)


class _State:
    """Words in a file, read and written by system calls: truncating a file ends the processes that have it mapped.

    It is closed with the last reference to this object, so no thread writes to one that another has closed.
    """

    _descriptor = -1

    def __init__(self, path: str) -> None:
        """Open or make it. Raises ``OSError``."""
        self._descriptor = os.open(path, _FLAGS, 0o600)
        self._identity = _identity(self._descriptor)

    def _stat(self) -> os.stat_result | None:
        """Return what is known of it; None where the process has closed it (daemons close all)."""
        with suppress(OSError):
            found = os.fstat(self._descriptor)
            if (found.st_dev, found.st_ino) == self._identity:
                return found
        return None

    def there(self) -> bool:
        """Say whether it is open, and was not removed."""
        found = self._stat()
        return found is not None and found.st_nlink > 0

    def size(self) -> int:
        """Return its size. ``FileNotFoundError``: see ``there``."""
        found = self._stat()
        if found is None or not found.st_nlink:
            raise FileNotFoundError("the cache's state was removed, or closed")
        return found.st_size

    def fill(self) -> None:
        """Write all of it, lest its disk be full later."""
        missing = _SIZE - (size := self.size())
        if missing > 0 and os.pwrite(self._descriptor, bytes(missing), size) < missing:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def read(self, words: Struct, at: int) -> tuple[Any, ...]:
        """Return words; zeros for those that were cut off."""
        return words.unpack(os.pread(self._descriptor, words.size, at).ljust(words.size, b"\0"))

    def write(self, words: Struct, at: int, *values: Any) -> None:  # noqa: ANN401  as struct has them
        """Write words."""
        if os.pwrite(self._descriptor, words.pack(*values), at) < words.size:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def __del__(self) -> None:
        """Close it, where it is still the same."""
        if self._descriptor >= 0 and self._stat() is not None:
            os.close(self._descriptor)


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Return which file is open there; None: none is."""
    with suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return None


def _owed(descriptor: int) -> int:
    text = os.pread(descriptor, _OWED.size, 0)
    return int(_OWED.unpack(text)[0]) if len(text) == _OWED.size else 0


def _boot() -> bytes:
    global _booted  # noqa: PLW0603  asked for under a lock, and always the same
    if not _booted:
        try:
            with open(_BOOT, "rb") as file:
                _booted = file.read(36).ljust(36)
        except OSError:
            _booted = b"-" * 36
    return _booted


_booted = b""
