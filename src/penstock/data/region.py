"""Memory that a process and its workers map together instead of copying it."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading
import weakref
from contextlib import contextmanager
from errno import EMFILE, ENFILE
from multiprocessing import context, reduction
from typing import TYPE_CHECKING, Any

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Bytes of a region that slots share, enough for some 600 datasets. Memory is used only as slots are taken.
_ARENA = 1 << 20
# Of Linux: no more seals, no other size (0x1, 0x2, 0x4), no write through mappings to come (0x10).
_SEALS = 0x17
_LINE = 64  # alignment of slots: no two share a cache line


class Region:
    """Shared memory of ``size`` bytes, zero at first, that every process with this object reads and writes in place.

    A forked child inherits the mapping. Pickling for a process that is being spawned (``spawn`` and ``forkserver``)
    passes the descriptor, and both sides see each other's writes. Any other pickling (``pickle.dumps``, a queue, Ray)
    passes the bytes, and the copy is independent. The memory has no name in any file system, so the kernel frees it
    with its last holder, however that process ended. Hold ``locked`` for memory that several processes write to.

    Attributes:
        size: Bytes; may be 0.
        view: The whole memory, writable; pass on ``view.toreadonly()`` where writing would be wrong.
    """

    __slots__ = ("__weakref__", "_descriptor", "size", "view")

    def __init__(self, size: int) -> None:
        try:
            descriptor = _allocate(size)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            raise Unusable(
                "out of file descriptors for this catalog: raise the limit of open files (ulimit -n)"
            ) from error
        self._adopt(descriptor, size)

    def _adopt(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.size = size
        try:
            whole = mmap.mmap(descriptor, max(size, 1))
        except PermissionError:
            # Sealed.
            whole = mmap.mmap(descriptor, max(size, 1), access=mmap.ACCESS_READ)
        self.view = memoryview(whole)[:size]

    def seal(self) -> int:
        """Let no process change the size, or write to the memory except through this mapping; return the descriptor.

        ``OSError`` where the system cannot (Linux before 5.1).
        """
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return self._descriptor

    @classmethod
    def sealed(cls, descriptor: int, size: int) -> Region:
        """Return the region that another process has sealed, read-only; ``ValueError`` if it is another memory.

        Takes over the descriptor.
        """
        region = cls.__new__(cls)
        try:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_size != size:
                raise ValueError("another memory")
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("memory that may change")
        except BaseException:
            os.close(descriptor)
            raise
        region._adopt(descriptor, size)  # noqa: SLF001  the same class
        return region

    @contextmanager
    def locked(self, start: int = 0, size: int = 0) -> Iterator[None]:
        """Lock ``size`` bytes (0: all) against other processes, not threads; a process that dies releases its lock."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, size, start)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, size, start)

    def __reduce__(self) -> tuple[Callable[..., Region], tuple[object, int]]:
        """Pickle the descriptor for a process being spawned, and the bytes for anything else."""
        if context.get_spawning_popen() is not None:
            return _map, (reduction.DupFd(self._descriptor), self.size)
        return _copy_to_region, (self.view.tobytes(), self.size)


class Slot:
    """A few bytes of shared memory, like a ``Region``, but without a separate descriptor: slots share regions."""

    __slots__ = ("_region", "_start", "view")

    def __init__(self, size: int) -> None:
        self._adopt(*_arenas.take(size), size)

    def _adopt(self, region: Region, start: int, size: int) -> None:
        self._region, self._start = region, start
        self.view = region.view[start : start + size]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the slot against other processes, not threads; a process that dies releases its lock."""
        with self._region.locked(self._start, len(self.view)):
            yield

    def __reduce__(self) -> tuple[Callable[..., Slot], tuple[object, ...]]:
        """Pickle the region for a process being spawned, and the bytes for anything else."""
        if context.get_spawning_popen() is not None:
            return _slot_of, (self._region, self._start, len(self.view))
        return _slot_with, (self.view.tobytes(),)


class _Arenas:
    """Allocator of slots in successive regions; no slot is reused: a worker may hold it longer than its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._used = 0

    def take(self, size: int) -> tuple[Region, int]:
        with self._lock:
            if self._region is None or self._used + size > self._region.size:
                self._region, self._used = Region(max(size, _ARENA)), 0
            start, self._used = self._used, -(-(self._used + size) // _LINE) * _LINE
            return self._region, start


_arenas = _Arenas()


def _disown() -> None:
    global _arenas  # noqa: PLW0603  one for each process; the parent continues with the old one
    _arenas = _Arenas()


os.register_at_fork(after_in_child=_disown)


def _slot_of(region: Region, start: int, size: int) -> Slot:
    slot = Slot.__new__(Slot)
    slot._adopt(region, start, size)  # noqa: SLF001  the other half of Slot.__reduce__
    return slot


def _slot_with(data: bytes) -> Slot:
    slot = Slot(len(data))
    slot.view[:] = data
    return slot


def _map(handle: Any, size: int) -> Region:  # noqa: ANN401  a descriptor on its way, which is a class of POSIX only
    region = Region.__new__(Region)
    region._adopt(handle.detach(), size)  # noqa: SLF001  the other half of Region.__reduce__
    return region


def _copy_to_region(data: bytes, size: int) -> Region:
    region = Region(size)
    region.view[:] = data
    return region


def _allocate(size: int) -> int:
    """Return the descriptor of an unnamed file of ``size`` bytes, at least 1: an empty file cannot be mapped."""
    if hasattr(os, "memfd_create"):  # Linux
        # A memfd is not limited by the size of /dev/shm, which is 64 MiB in a container by default.
        descriptor = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(max(size, 1))
        return os.dup(file.fileno())
