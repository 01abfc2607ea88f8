"""Memory that a process and its workers map together instead of copying it."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import weakref
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Region"]


class Region:
    """``size`` bytes, zero at first, that every process holding this object reads and writes in place.

    A forked child inherits the mapping. Pickled for a process that is being spawned (``spawn`` and ``forkserver``) the
    descriptor travels, and both sides see each other's writes; pickled anywhere else (``pickle.dumps``, a queue, Ray)
    the bytes travel, and the copy lives its own life. It has no name in any file system, so the kernel frees
    it with its last holder, however that died. What several processes write to belongs within ``locked``.

    Attributes:
        size: Bytes; may be 0.
        view: All of it, writable; hand out ``view.toreadonly()`` where nobody should write.

    """

    __slots__ = ("__weakref__", "_descriptor", "size", "view")

    def __init__(self, size: int) -> None:
        """Allocate ``size`` fresh bytes."""
        self._adopt(_allocate(size), size)

    def _adopt(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.size = size
        self.view = memoryview(mmap.mmap(descriptor, max(size, 1)))[:size]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other processes that hold this region; one that dies lets go. Threads need another lock."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def __reduce__(self) -> tuple[Callable[..., Region], tuple[object, int]]:
        """Pass the descriptor to a process being spawned, and the bytes to anyone else."""
        if context.get_spawning_popen() is not None:
            return _map, (reduction.DupFd(self._descriptor), self.size)
        return _copy, (self.view.tobytes(), self.size)


class _Handle(Protocol):
    def detach(self) -> int: ...


def _map(handle: _Handle, size: int) -> Region:
    region = Region.__new__(Region)
    region._adopt(handle.detach(), size)  # noqa: SLF001  the other half of Region.__reduce__
    return region


def _copy(data: bytes, size: int) -> Region:
    region = Region(size)
    region.view[:] = data
    return region


def _allocate(size: int) -> int:
    """Return the descriptor of a nameless file of ``size`` bytes; one byte when 0, since nothing cannot be mapped."""
    if hasattr(os, "memfd_create"):  # Linux
        # A memfd is not bound by the size of /dev/shm, which is 64 MiB in a container that nobody configured.
        descriptor = os.memfd_create("penstock")
        os.ftruncate(descriptor, max(size, 1))
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(max(size, 1))
        return os.dup(file.fileno())
