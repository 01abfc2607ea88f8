"""Where an iteration begins, epoch and position: kept in memory that a data set's parent and workers share."""

from __future__ import annotations

import operator
import os
import struct
import threading

from penstock.catalog.shared import Region
from penstock.errors import Unusable
from penstock.order.course import Cursor

__all__ = ["Rounds"]

_HEAD = struct.Struct("qqqqq")  # the next epoch and position; the latest begun; how many iterations have been noted
# Of an iteration: its loader's seed, its workers, its number within each; its epoch and position; a bit per worker that
# joined.
_NOTE = struct.Struct("qqqqq64s")
_NOTES = 16
_MOST_WORKERS = 512
_MOST_EPOCHS = 1 << 62  # either way, so that counting on fits 64 bits


class Rounds:
    """Gives each iteration over a data set its cursor: the next epoch from its start, or what it was told.

    A DataLoader calls ``iter(dataset)`` once in every worker and tells the parent's data set nothing. Workers of one
    iteration recognise each other by the seed their loader drew for it, by how many they are and by how often each has
    begun: the first takes the next cursor, the others join it. A worker that has joined already begins another
    iteration, so seeding torch alike for each epoch does no harm. Persistent workers see what the parent sets because
    the memory is shared.
    """

    def __init__(self) -> None:
        """Begin at epoch 0."""
        self._region = Region(_HEAD.size + _NOTES * _NOTE.size)
        self._own()

    def _own(self) -> None:
        self._begun = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def set(self, epoch: int) -> None:
        """Make ``epoch`` the next iteration's, later ones count on; where that is so already, its position stays."""
        if not hasattr(epoch, "__index__") or not abs(operator.index(epoch)) < _MOST_EPOCHS:
            raise Unusable(f"an epoch is a whole number below 2^62, not {epoch!r}")
        with self._exclusive(), self._region.locked():
            if epoch != self._read()[0].epoch:
                self._write(Cursor(epoch), Cursor(epoch))

    def resume(self, cursor: Cursor) -> None:
        """Make ``cursor`` the next iteration's start; later ones are the epochs after it."""
        with self._exclusive(), self._region.locked():
            self._write(cursor, cursor)

    def next(self) -> Cursor:
        """Return where the next iteration will begin."""
        with self._exclusive(), self._region.locked():
            return self._read()[0]

    def latest(self) -> Cursor:
        """Return where the latest iteration began; or where the next will, once that has been set."""
        with self._exclusive(), self._region.locked():
            return self._read()[1]

    def begin(self) -> Cursor:
        """Return the cursor of an iteration that begins in a process by itself."""
        with self._exclusive(), self._region.locked():
            return self._begin()

    def join(self, worker: int, workers: int, seed: int) -> Cursor:
        """Return the cursor of the iteration that begins in one of ``workers`` whose loader drew ``seed`` for it."""
        if workers > _MOST_WORKERS:
            raise Unusable(f"at most {_MOST_WORKERS} workers can share a data set, not {workers}")
        with self._exclusive(), self._region.locked():
            key = (seed, workers, self._begun)
            self._begun += 1
            return self._join(key, 1 << worker)

    def _exclusive(self) -> threading.Lock:
        if self._pid != os.getpid():  # a fork: this process begins its own count, with a lock nobody holds
            self._own()
        return self._lock

    def _read(self) -> tuple[Cursor, Cursor, int]:
        """Return the next cursor, the latest, and how many iterations have been noted."""
        *numbers, noted = _HEAD.unpack_from(self._region.view)
        return Cursor(*numbers[:2]), Cursor(*numbers[2:]), noted

    def _write(self, following: Cursor, latest: Cursor, noted: int | None = None) -> None:
        _HEAD.pack_into(self._region.view, 0, *following, *latest, self._read()[2] if noted is None else noted)

    def _begin(self, noted: int | None = None) -> Cursor:
        cursor = self._read()[0]
        self._write(Cursor(cursor.epoch + 1), cursor, noted)
        return cursor

    def _join(self, key: tuple[int, int, int], bit: int) -> Cursor:
        view = self._region.view
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

    def __getstate__(self) -> Region:
        """Travel as the shared memory alone."""
        return self._region

    def __setstate__(self, region: Region) -> None:
        """Arrive with a count of its own."""
        self._region = region
        self._own()


def _place(number: int) -> int:
    return _HEAD.size + number % _NOTES * _NOTE.size
