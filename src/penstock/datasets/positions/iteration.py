"""The iterations over a dataset: for which rank and worker each reads, and at which position each begins."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING

from torch.utils.data import get_worker_info

from penstock.datasets.positions.conflicts import check_sharding
from penstock.datasets.positions.epochs import Epochs, rank_pid
from penstock.datasets.positions.place import check, resolve
from penstock.values import Place

if TYPE_CHECKING:
    from penstock.datasets.positions.place import PlaceLike
    from penstock.order.sampling import Cursor

__all__ = ["Iterations"]


class Iterations:
    """The rank is found when it is asked for (a process group may come after the dataset), in the parent.

    Attributes:
        epochs: Counts the epochs, for the parent and its workers.
        begun: Where the latest iteration began that this process itself iterates; None before the first.

    """

    def __init__(self, place: PlaceLike) -> None:
        """Stand at ``place``; None: wherever ``resolve`` finds this process."""
        check(place)
        self._place = place
        self._found: tuple[int, Place] | None = None  # by the process that spawned this one: its id, its place
        self.epochs = Epochs()
        self.begun: Cursor | None = None

    def rank(self) -> Place:
        """Return this process's rank among how many; in a loader's worker, the one of the process that started it."""
        if self._found is not None and self._found[0] == rank_pid():
            return self._found[1]
        return resolve(self._place)

    def begin(self) -> tuple[Cursor, Place]:
        """Begin an iteration: return its cursor and place, which may be a loader's worker's."""
        info, place = get_worker_info(), self.place()
        check_sharding(place)
        if info is None:
            self.begun = self.epochs.begin()
            return self.begun, place
        # torch seeds each worker with the loader's draw and the worker's number
        return self.epochs.join(info.id, info.num_workers, info.seed - info.id), place

    def place(self) -> Place:
        """Return this process's place: the rank, or one of its loader's workers."""
        info = get_worker_info()
        return self.rank() if info is None else replace(self.rank(), worker=info.id, workers=info.num_workers)

    def __getstate__(self) -> tuple[PlaceLike, tuple[int, Place] | None, Epochs]:
        """Travel with the parent's place to a process it spawns: if a loader's worker, it has no process group to ask.

        Anywhere else (a rank that is spawned, a queue, Ray) the place is found where it arrives: it may be another one.
        """
        if get_spawning_popen() is None:
            return self._place, None, self.epochs
        place = self.rank()
        check_sharding(place)  # who starts a worker is not there in it
        given = self._place if isinstance(self._place, Place | str | None) else place  # a mesh cannot be pickled
        return given, (rank_pid(), place), self.epochs

    def __setstate__(self, state: tuple[PlaceLike, tuple[int, Place] | None, Epochs]) -> None:
        """Arrive."""
        self._place, self._found, self.epochs = state
        self.begun = None
