"""A copy for all processes of a node of bytes that a digest names: one process reads and checks them, others map it.

1. A file in the node's directory, named by the digest, says where the copy is: a process and its descriptor. A lock on
   the file lets one process read and check the bytes while others that want them wait; if it dies, the next one does.
2. The copy is memory without a name (see ``Region``), sealed once it is checked: it cannot be changed or shortened, and
   the kernel frees it with the last process that maps it.
3. Another process opens the descriptor through ``/proc``, and compares owner, size, seals, and the digest that follows
   the bytes. So a file that is damaged, or names a process that ended, leads to no wrong bytes.

Where this cannot be done (no Linux, ``PENSTOCK_NODE=off``, a full disk, a directory of somebody else), each process has
its own copy.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from penstock.data.region import Region
from penstock.engine.node.member import directory, open_directory
from penstock.engine.waiting import Wakeup
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Fewer bytes are read faster than shared.
LEAST_BYTES: Final = 1 << 20
# 50 GB at 250 MB/s; a process that waits longer reads a copy of its own.
_PATIENCE_S, _LOOK_S = 200.0, 0.02
_PREFIX: Final = "copy-"
_RECORD_BYTES: Final = 64
_RECORD: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OTHERS: Final = 0o077
# A lock on a file belongs to the process: threads of a process take turns. By name of the file.
_turns: dict[str, threading.Lock] = {}
os.register_at_fork(after_in_child=_turns.clear)


@contextmanager
def node_region(digest: bytes, size_bytes: int) -> Iterator[tuple[Region, bool]]:
    """Yield a region that begins with the ``size_bytes`` that ``digest`` names, and whether they are there.

    Otherwise the caller fills in and checks the bytes; an exception from it leaves no copy for others.
    """
    if size_bytes < LEAST_BYTES or not hasattr(os, "memfd_create"):
        yield Region(size_bytes), False
        return
    name = f"{_PREFIX}{digest.hex()}"
    with _turns.setdefault(name, threading.Lock()), _locked(name) as record:
        found = None if record is None else _mapped(record, digest, size_bytes)
        if found is not None:
            yield found, True
            return
        region = Region(size_bytes + len(digest))
        region.view[size_bytes:] = digest
        yield region, False
        if record is not None:
            with suppress(ConfigError, OSError):
                descriptor = region.seal()
                os.ftruncate(record, 0)
                os.pwrite(record, f"{os.getpid()} {descriptor}\n".encode(), 0)
                _remove_stale()


@contextmanager
def _locked(name: str) -> Iterator[int | None]:
    """Lock a file in the node's directory, waiting for other processes, and yield its descriptor; None without one."""
    descriptor = None
    with suppress(ConfigError, OSError):
        where = directory(os.environ)
        if where is not None:
            folder = open_directory(where)
            try:
                descriptor = _lock(name, folder)
            finally:
                os.close(folder)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            # This releases the lock.
            os.close(descriptor)


def _lock(name: str, folder: int) -> int:
    while True:
        descriptor = os.open(name, _RECORD | os.O_CREAT, 0o600, dir_fd=folder)
        try:
            _wait_for_lock(descriptor)
            found = os.fstat(descriptor)
            mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
            if not mine or found.st_nlink > 1:
                raise ConfigError(f"{name} in the directory of the node is not a plain file of this user alone")
            # Another process may have removed it meanwhile.
            if found.st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _wait_for_lock(descriptor: int) -> None:
    """Lock a file; TimeoutError if its holder, which may be stopped, does not end within some minutes."""
    until = monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if monotonic() > until:
                raise TimeoutError from None
        else:
            return
        Wakeup().wait(_LOOK_S)


def _mapped(record: int, digest: bytes, size_bytes: int) -> Region | None:
    """Return the copy that a record names; None if it is not there, or another memory."""
    try:
        process, number = map(int, os.pread(record, _RECORD_BYTES, 0).split())
        path = Path(f"/proc/{process}/fd/{number}")
        if not str(path.readlink()).startswith("/memfd:penstock"):
            return None
        region = Region.sealed(os.open(path, os.O_RDONLY | os.O_CLOEXEC), size_bytes + len(digest))
    except (OSError, ValueError):
        return None
    return region if region.view[size_bytes:] == digest else None


def _remove_stale() -> None:
    """Remove the records of processes that ended."""
    where = directory(os.environ)
    if where is None:
        return
    folder = open_directory(where)
    try:
        with os.scandir(folder) as found:
            names = [each.name for each in found if each.name.startswith(_PREFIX)]
        # Closing a file that this process has locked would release the lock.
        for name in {*names}.difference(_turns):
            with suppress(OSError, ValueError):
                _remove_if_stale(name, folder)
    finally:
        os.close(folder)


def _remove_if_stale(name: str, folder: int) -> None:
    descriptor = os.open(name, _RECORD, dir_fd=folder)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process = os.pread(descriptor, _RECORD_BYTES, 0).partition(b" ")[0]
        if not process or not Path(f"/proc/{int(process)}").exists():
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)
