"""Where an iteration begins, epoch and position: kept in memory that a dataset's parent and workers share."""

from __future__ import annotations

import multiprocessing
import os
import struct
import threading
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING
from weakref import WeakSet

from torch.utils.data import get_worker_info

from penstock.catalog.storage.region import Slot
from penstock.errors import Unusable
from penstock.order.sampling import Cursor
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Epochs", "rank_pid"]

_HEAD = struct.Struct("qqqqqqq")  # the next cursor; the one begun latest; how many iterations have been noted
# Of an iteration: its loader's seed, its workers, its number within each; its cursor; a bit per worker that joined.
_NOTE = struct.Struct("qqqqqq64s")
_NOTES = 16
_MOST_WORKERS = 512
_MOST_EPOCHS = 1 << 62  # either way, so that counting on fits 64 bits


class Epochs:
    """Gives each iteration over a dataset its cursor: the next epoch from its start, or the one that was set.

    A DataLoader calls ``iter(dataset)`` once in every worker and tells the parent's dataset nothing. Workers of one
    iteration recognise each other by the seed their loader drew for it, by how many they are and by how often each has
    begun: the first takes the next cursor, the others join it. A worker that has joined already begins another
    iteration, so seeding torch alike for each epoch does no harm. Persistent workers see what the parent sets because
    the memory is shared.

    Only the workers of the process that owns the memory share it. Any other process that inherits it or receives it
    as it is spawned (a rank that is started after its dataset was made) owns a copy from its first use on.
    """

    def __init__(self) -> None:
        """Begin at epoch 0."""
        self._slot = Slot(_HEAD.size + _NOTES * _NOTE.size)
        self._owner = os.getpid()
        self._arrive()

    def _arrive(self) -> None:
        _alive.add(self)
        self._begun = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def set(self, epoch: int) -> None:
        """Make ``epoch`` the next iteration's, later ones count on; where that is so already, its position stays."""
        epoch = whole(epoch, "an epoch")
        if not abs(epoch) < _MOST_EPOCHS:
            raise Unusable(f"an epoch is a whole number below 2^62, not {epoch!r}")
        with self._exclusive():
            coming = self._read()[0]
            if epoch != coming.epoch:
                cursor = _start(epoch, coming)
                self._write(cursor, cursor)

    def resume(self, cursor: Cursor) -> None:
        """Make ``cursor`` the next iteration's start; later ones are the epochs after it."""
        with self._exclusive():
            self._write(cursor, cursor)

    def restart(self, cursor: Cursor) -> None:
        """Let an iteration that has begun begin at ``cursor`` instead; later ones are the epochs after it.

        Each worker may do so in turn, with a cursor of its own in the same epoch.
        """
        with self._exclusive():
            self._write(_start(cursor.epoch + 1, cursor), cursor)

    def next(self) -> Cursor:
        """Return where the next iteration will begin."""
        with self._exclusive():
            return self._read()[0]

    def latest(self) -> Cursor:
        """Return where the latest iteration began; or where the next will, once that has been set."""
        with self._exclusive():
            return self._read()[1]

    def begin(self) -> Cursor:
        """Return the cursor of an iteration that begins in a process by itself."""
        with self._exclusive():
            return self._begin()

    def join(self, worker: int, workers: int, seed: int) -> Cursor:
        """Return the cursor of the iteration that begins in one of ``workers`` whose loader drew ``seed`` for it."""
        if workers > _MOST_WORKERS:
            raise Unusable(f"at most {_MOST_WORKERS} workers can share a dataset, not {workers}")
        with self._exclusive(worker=True):
            key = (seed, workers, self._begun)
            self._begun += 1
            return self._join(key, 1 << worker)

    @contextmanager
    def _exclusive(self, *, worker: bool = False) -> Iterator[None]:
        if self._pid != os.getpid():  # a fork: this process begins its own count, with a lock that is free
            self._arrive()
        with self._lock:
            self._own(worker=worker)
            with self._slot.locked():
                yield

    def _own(self, *, worker: bool) -> None:
        """Take a copy of the memory where another process owns it that is not this worker's rank."""
        if self._owner == os.getpid() or self._owner == rank_pid(worker=worker):
            return
        if worker or get_worker_info() is not None:
            raise Unusable("this dataset was made before its ranks were started: make it in each rank")
        with self._slot.locked():
            data = bytes(self._slot.view)
        self._slot = Slot(len(data))
        self._slot.view[:] = data
        self._owner = os.getpid()

    def settle(self) -> None:
        """Own the memory before a process is started that may be a worker, unless this process is one itself."""
        if self._owner != os.getpid() and get_worker_info() is None:
            with self._exclusive():
                pass

    def _read(self) -> tuple[Cursor, Cursor, int]:
        """Return the next cursor, the latest, and how many iterations have been noted."""
        *numbers, noted = _HEAD.unpack_from(self._slot.view)
        return Cursor(*numbers[:3]), Cursor(*numbers[3:]), noted

    def _write(self, following: Cursor, latest: Cursor, noted: int | None = None) -> None:
        _HEAD.pack_into(self._slot.view, 0, *following, *latest, self._read()[2] if noted is None else noted)

    def _begin(self, noted: int | None = None) -> Cursor:
        cursor = self._read()[0]
        self._write(_start(cursor.epoch + 1, cursor), cursor, noted)
        return cursor

    def _join(self, key: tuple[int, int, int], bit: int) -> Cursor:
        view = self._slot.view
        noted = self._read()[2]
        for number in range(noted - 1, max(-1, noted - 1 - _NOTES), -1):
            at = _place(number)
            *numbers, joined = _NOTE.unpack_from(view, at)
            bits = int.from_bytes(joined, "little")
            if tuple(numbers[:3]) == key and not bits & bit:
                _NOTE.pack_into(view, at, *numbers, (bits | bit).to_bytes(64, "little"))
                return Cursor(*numbers[3:])
        cursor = self._begin(noted + 1)
        _NOTE.pack_into(view, _place(noted), *key, *cursor, bit.to_bytes(64, "little"))
        return cursor

    def __getstate__(self) -> tuple[Slot, int | None]:
        """Travel to a process that is being spawned as the shared memory and its owner; elsewhere as a copy."""
        if get_spawning_popen() is None:
            return self._slot, None
        self.settle()
        return self._slot, self._owner

    def __setstate__(self, state: tuple[Slot, int | None]) -> None:
        """Arrive with a count of its own."""
        self._slot, owner = state
        self._owner = os.getpid() if owner is None else owner
        self._arrive()


def rank_pid(*, worker: bool = False) -> int:
    """Return the id of the process that is the rank here: a loader's worker's parent, else this process."""
    parent = multiprocessing.parent_process() if worker or get_worker_info() is not None else None
    return os.getpid() if parent is None or parent.pid is None else parent.pid


_alive: WeakSet[Epochs] = WeakSet()


def _settle() -> None:
    for epochs in list(_alive):
        epochs.settle()


# A rank that hands a dataset it inherited straight to a loader with forked workers never uses it itself.
os.register_at_fork(before=_settle)


def _start(epoch: int, run: Cursor) -> Cursor:
    """Return where an epoch begins of the run that ``run`` is a cursor of: lanes stay."""
    return Cursor(epoch, lanes=run.lanes)


def _place(number: int) -> int:
    return _HEAD.size + number % _NOTES * _NOTE.size
