"""Where a data set stands: this process's place among ranks and workers, and where its next iteration begins."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING

from torch.utils.data import get_worker_info

from penstock.datasets.place import resolve
from penstock.datasets.rounds import Rounds

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from penstock.order.course import Cursor
    from penstock.values import Place

__all__ = ["Standing"]


class Standing:
    """The rank is found when it is asked for (a process group may come after the data set), in the parent.

    Attributes:
        rounds: Counts the epochs, for the parent and its workers.

    """

    def __init__(self, place: Place | DeviceMesh | None) -> None:
        """Stand at ``place``; None: wherever ``resolve`` finds this process."""
        self._place = place
        self.rounds = Rounds()

    def rank(self) -> Place:
        """Return this process's rank among how many."""
        return resolve(self._place)

    def begin(self) -> tuple[Cursor, Place]:
        """Begin an iteration: return where and for whom, the process alone or one of a loader's workers."""
        info = get_worker_info()
        if info is None:
            return self.rounds.begin(), self.rank()
        # torch seeds each worker with the loader's draw and the worker's number
        cursor = self.rounds.join(info.id, info.num_workers, info.seed - info.id)
        return cursor, replace(self.rank(), worker=info.id, workers=info.num_workers)

    def __getstate__(self) -> tuple[Place | DeviceMesh | None, Rounds]:
        """Travel with the parent's place to a process it spawns, which has no process group to ask.

        Anywhere else (a queue, Ray) the place is found where it arrives: it may be another rank.
        """
        return (self._place if get_spawning_popen() is None else self.rank()), self.rounds

    def __setstate__(self, state: tuple[Place | DeviceMesh | None, Rounds]) -> None:
        """Arrive."""
        self._place, self.rounds = state
