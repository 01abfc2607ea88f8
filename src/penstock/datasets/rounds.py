"""Which epoch an iteration is: counted in memory that a data set's parent and workers share."""

from __future__ import annotations

import os
import struct
import threading

from penstock.catalog.shared import Region
from penstock.errors import Unusable

__all__ = ["Rounds"]

_HEAD = struct.Struct("qq")  # the next epoch; how many iterations have been noted
# Of an iteration: its loader's seed, its workers, its number within each, its epoch, a bit per worker that joined.
_NOTE = struct.Struct("qqqq64s")
_NOTES = 16
_MOST_WORKERS = 512


class Rounds:
    """Gives each iteration over a data set its epoch: the next one, or what ``set_epoch`` said.

    A DataLoader calls ``iter(dataset)`` once in every worker and tells the parent's data set nothing. Workers of one
    iteration recognise each other by the seed their loader drew for it, by how many they are and by how often each has
    begun: the first takes the next epoch, the others join it. A worker that has joined already begins another
    iteration, so seeding torch alike for each epoch does no harm. Persistent workers see ``set_epoch`` because the
    memory is shared.
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
        """Make ``epoch`` the next iteration's; later ones count on from it."""
        with self._exclusive(), self._region.locked():
            _, noted = _HEAD.unpack_from(self._region.view)
            _HEAD.pack_into(self._region.view, 0, epoch, noted)

    def begin(self) -> int:
        """Return the epoch of an iteration that begins in a process by itself."""
        with self._exclusive(), self._region.locked():
            return self._next()

    def join(self, worker: int, workers: int, seed: int) -> int:
        """Return the epoch of the iteration that begins in one of ``workers`` whose loader drew ``seed`` for it."""
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

    def _next(self) -> int:
        epoch: int
        epoch, noted = _HEAD.unpack_from(self._region.view)
        _HEAD.pack_into(self._region.view, 0, epoch + 1, noted)
        return epoch

    def _join(self, key: tuple[int, int, int], bit: int) -> int:
        view = self._region.view
        epoch: int
        _, noted = _HEAD.unpack_from(view)
        for number in range(noted - 1, max(-1, noted - 1 - _NOTES), -1):
            at = _place(number)
            *noted_key, epoch, joined = _NOTE.unpack_from(view, at)
            bits = int.from_bytes(joined, "little")
            if tuple(noted_key) == key and not bits & bit:
                _NOTE.pack_into(view, at, *key, epoch, (bits | bit).to_bytes(64, "little"))
                return epoch
        epoch = self._next()
        _HEAD.pack_into(view, 0, epoch + 1, noted + 1)
        _NOTE.pack_into(view, _place(noted), *key, epoch, bit.to_bytes(64, "little"))
        return epoch

    def __getstate__(self) -> Region:
        """Travel as the shared memory alone."""
        return self._region

    def __setstate__(self, region: Region) -> None:
        """Arrive with a count of its own."""
        self._region = region
        self._own()


def _place(number: int) -> int:
    return _HEAD.size + number % _NOTES * _NOTE.size
